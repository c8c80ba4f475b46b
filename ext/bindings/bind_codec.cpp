// Bindings of ext/src/codec.
#include <nanobind/stl/array.h>

#include "bound_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

namespace {

template <typename T, Name kName>
using MatrixOf = Argument<Matrix<T>, kName>;
using Rows = MatrixOf<const float, "rows">;
using Stored = MatrixOf<const std::byte, "stored">;
using Out = MatrixOf<std::byte, "out">;
using Scale = Values<const float, "scale">;
using Offset = Values<const int32_t, "offset">;

/// The matrix of an argument, which has so many columns, and where it is said, rows.
template <typename T, Name kName>
Matrix<T> checked(const MatrixOf<T, kName>& argument, int64_t columns, int64_t rows = -1) {
  const Matrix<T> found = argument;
  if (rows < 0) rows = found.rows;
  TIERING_EXPECT(found.rows == rows && found.columns == columns, kName.text, ": expected shape (", rows, ", ", columns,
                 "), found (", found.rows, ", ", found.columns, ")");
  return found;
}

void init_codec(BoundCodec* self, const std::string& stored, const std::string& delivered, int64_t dim,
                const std::optional<Scale>& scale, const std::optional<Offset>& offset) {
  RowCodec codec{parse_encoding(stored, kNumEncodings), parse_encoding(delivered, kNumDelivered), dim};
  TIERING_EXPECT(dim >= 0, "dim: expected at least 0, found ", dim);
  if (codec::visit(codec.stored, [](auto kind) { return kind.kScaled; })) {
    TIERING_EXPECT(scale && offset, "scale, offset: expected parameters of ", stored);
    const std::span<const float> scales = *scale;
    const std::span<const int32_t> offsets = *offset;
    TIERING_EXPECT(static_cast<int64_t>(scales.size()) == dim && scales.size() == offsets.size(),
                   "scale, offset: expected ", dim, " values each, found ", scales.size(), " and ", offsets.size());
    codec.scale = scales.data();
    codec.offset = offsets.data();
  }
  new (self) BoundCodec{codec, scale, offset};
}

template <typename T>
auto column_values(Buffer<T> ColumnFit::* field) {
  return [field](const ColumnFit& fit) { return copied((fit.*field).span()); };
}

}  // namespace

void bind_codec(nb::module_& m) {
  nb::class_<BoundCodec>(m, "RowCodec")
      .def("__init__", &init_codec, "stored"_a, "delivered"_a, "dim"_a, "scale"_a = nb::none(), "offset"_a = nb::none())
      .def_prop_ro("row_bytes", [](const BoundCodec& self) { return self.codec.stored_bytes(); })
      .def_prop_ro("out_bytes", [](const BoundCodec& self) { return self.codec.out_bytes(); })
      .def(
          "encode",
          [](const BoundCodec& self, const Rows& rows, const Out& out, Threads threads) {
            const auto from = checked(rows, self.codec.dim);
            const auto to = checked(out, self.codec.stored_bytes(), from.rows);
            encode_rows(self.codec, from.entries.data(), from.rows, to.entries.data(), threads);
          },
          "rows"_a, "out"_a, "threads"_a = 1, Release())
      .def(
          "decode",
          [](const BoundCodec& self, const Stored& stored, const Out& out, Threads threads) {
            const auto from = checked(stored, self.codec.stored_bytes());
            const auto to = checked(out, self.codec.out_bytes(), from.rows);
            decode_rows(self.codec, from.entries.data(), from.rows, to.entries.data(), threads);
          },
          "stored"_a, "out"_a, "threads"_a = 1, Release());
  nb::class_<ColumnFit>(m, "ColumnFit")
      .def(nb::init<int64_t>(), "dim"_a)
      .def(
          "add",
          [](ColumnFit& self, const Rows& rows, Threads threads) {
            const auto from = checked(rows, self.dim);
            self.add(from.entries.data(), from.rows, threads);
          },
          "rows"_a, "threads"_a = 1, Release())
      .def_prop_ro("low", column_values(&ColumnFit::low))
      .def_prop_ro("high", column_values(&ColumnFit::high))
      .def_prop_ro("least", column_values(&ColumnFit::least))
      .def_prop_ro("lowest_bit", column_values(&ColumnFit::lowest_bit))
      .def_ro("num_rows", &ColumnFit::num_rows)
      .def_ro("odd", &ColumnFit::odd);
  nb::class_<ColumnErrors>(m, "ColumnErrors")
      .def(nb::init<int64_t>(), "dim"_a)
      .def(
          "add",
          [](ColumnErrors& self, const BoundCodec& bound, const Rows& rows, const Stored& stored, Threads threads) {
            const auto from = checked(rows, self.dim);
            TIERING_EXPECT(bound.codec.dim == self.dim, "codec: expected one of ", self.dim, " columns");
            const auto codes = checked(stored, bound.codec.stored_bytes(), from.rows);
            self.add(bound.codec, from.entries.data(), codes.entries.data(), from.rows, threads);
          },
          "codec"_a, "rows"_a, "stored"_a, "threads"_a = 1, Release())
      .def_ro("num_rows", &ColumnErrors::num_rows)
      .def_prop_ro("sums", [](const ColumnErrors& self) {
        std::vector<Buffer<double>> sums;
        for (const auto& each : self.sums) sums.push_back(copied(each.span()));
        return sums;
      });
}
