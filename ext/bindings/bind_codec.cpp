// Bindings of ext/src/codec.
#include "bound_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

namespace {

using Stored = Argument<RowsView, "stored">;
using Scale = Values<const float, "scale">;
using Offset = Values<const int32_t, "offset">;

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

using Rows = Argument<NumberRows, "rows">;

/// float32 rows of `dim` columns.
NumberRows checked_rows(const Rows& rows, int64_t dim) {
  const NumberRows found = rows;
  TIERING_EXPECT(found.kind == NumberKind::kFloat32 && found.dim == dim, "rows: expected float32 rows of ", dim,
                 " columns");
  return found;
}

const float* begin_of(const NumberRows& rows) { return static_cast<const float*>(rows.data); }

/// Checks that bytes are `num_rows` rows of `row_bytes`, without gaps.
template <Name kName, typename View>
View checked_bytes(const Argument<View, kName>& bytes, int64_t num_rows, int64_t row_bytes) {
  const View found = bytes;
  const auto width = static_cast<int64_t>(bytes.array.shape(1));
  bool fits = found.num_rows == num_rows && width == row_bytes;
  if constexpr (requires { found.stride_bytes; }) fits = fits && (num_rows <= 1 || found.stride_bytes == row_bytes);
  TIERING_EXPECT(fits, kName.text, ": expected ", num_rows, " rows of ", row_bytes, " bytes without gaps, found ",
                 found.num_rows, " of ", width);
  return found;
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
          [](const BoundCodec& self, const Rows& rows, const Argument<RowsTarget, "out">& out, Threads threads) {
            const NumberRows from = checked_rows(rows, self.codec.dim);
            const RowsTarget to = checked_bytes(out, from.num_rows, self.codec.stored_bytes());
            encode_rows(self.codec, begin_of(from), from.num_rows, to.data, threads);
          },
          "rows"_a, "out"_a, "threads"_a = 1, Release())
      .def(
          "decode",
          [](const BoundCodec& self, const Stored& stored, const Argument<RowsTarget, "out">& out, Threads threads) {
            const RowsView from =
                checked_bytes(stored, static_cast<int64_t>(stored.array.shape(0)), self.codec.stored_bytes());
            const RowsTarget to = checked_bytes(out, from.num_rows, self.codec.out_bytes());
            decode_rows(self.codec, from.data, from.num_rows, to.data, threads);
          },
          "stored"_a, "out"_a, "threads"_a = 1, Release());
  nb::class_<ColumnFit>(m, "ColumnFit")
      .def(nb::init<int64_t>(), "dim"_a)
      .def(
          "add",
          [](ColumnFit& self, const Rows& rows, Threads threads) {
            const NumberRows from = checked_rows(rows, self.dim);
            self.add(begin_of(from), from.num_rows, threads);
          },
          "rows"_a, "threads"_a = 1, Release())
      .def_prop_ro("low", column_values(&ColumnFit::low))
      .def_prop_ro("high", column_values(&ColumnFit::high))
      .def_prop_ro("least", column_values(&ColumnFit::least))
      .def_prop_ro("lowest_bit", column_values(&ColumnFit::lowest_bit))
      .def_ro("num_rows", &ColumnFit::num_rows)
      .def_prop_ro("odd", [](const ColumnFit& fit) {
        std::vector<std::pair<int64_t, int64_t>> places;
        for (const auto& place : fit.odd) places.emplace_back(place.row, place.column);
        return places;
      });
  nb::class_<ColumnErrors>(m, "ColumnErrors")
      .def(nb::init<int64_t>(), "dim"_a)
      .def(
          "add",
          [](ColumnErrors& self, const BoundCodec& bound, const Rows& rows, const Stored& stored, Threads threads) {
            const NumberRows from = checked_rows(rows, self.dim);
            TIERING_EXPECT(bound.codec.dim == self.dim, "codec: expected one of ", self.dim, " columns");
            const RowsView codes = checked_bytes(stored, from.num_rows, bound.codec.stored_bytes());
            self.add(bound.codec, begin_of(from), codes.data, from.num_rows, threads);
          },
          "codec"_a, "rows"_a, "stored"_a, "threads"_a = 1, Release())
      .def_ro("num_rows", &ColumnErrors::num_rows)
      .def_prop_ro("sums", [](const ColumnErrors& self) {
        std::vector<Buffer<double>> sums;
        for (const auto* each : {&self.first, &self.sum, &self.squares, &self.error_squares, &self.worst})
          sums.push_back(copied(each->span()));
        return sums;
      });
}
