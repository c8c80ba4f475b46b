// Bindings of ext/src/codec.
#include <nanobind/stl/array.h>

#include "bound_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

namespace {

using Rows = Matrix<const float>;
using Stored = Matrix<const std::byte>;

/// Throws InputError unless a matrix has so many columns, and where it is said, rows.
template <typename T>
void expect_shape(const Matrix<T>& found, const char* name, int64_t columns, int64_t rows = -1) {
  if (rows < 0) rows = found.rows;
  TIERING_EXPECT(found.rows == rows && found.columns == columns, name, ": expected shape (", rows, ", ", columns,
                 "), found (", found.rows, ", ", found.columns, ")");
}

void init_codec(BoundCodec* self, const std::string& stored, const std::string& delivered, int64_t dim,
                const std::optional<Array<std::span<const float>>>& scale,
                const std::optional<Array<std::span<const int32_t>>>& offset) {
  RowCodec codec{parse_encoding(stored, kNumEncodings), parse_encoding(delivered, kNumDelivered), dim};
  TIERING_EXPECT(dim >= 0, "dim: expected at least 0, found ", dim);
  std::vector<AnyArray> arrays;
  if (codec::visit(codec.stored, [](auto kind) { return kind.kScaled; })) {
    TIERING_EXPECT(scale && offset, "scale, offset: expected parameters of ", stored);
    const auto scales = scale->get("scale");
    const auto offsets = offset->get("offset");
    TIERING_EXPECT(static_cast<int64_t>(scales.size()) == dim && scales.size() == offsets.size(),
                   "scale, offset: expected ", dim, " values each, found ", scales.size(), " and ", offsets.size());
    codec.scale = scales.data();
    codec.offset = offsets.data();
    arrays = {scale->array, offset->array};
  }
  new (self) BoundCodec{codec, std::move(arrays)};
}

void encode(const BoundCodec& self, Rows rows, Matrix<std::byte> out, int threads) {
  expect_shape(rows, "rows", self.codec.dim);
  expect_shape(out, "out", self.codec.stored_bytes(), rows.rows);
  encode_rows(self.codec, rows.entries.data(), rows.rows, out.entries.data(), threads);
}

void decode(const BoundCodec& self, Stored stored, Matrix<std::byte> out, int threads) {
  expect_shape(stored, "stored", self.codec.stored_bytes());
  expect_shape(out, "out", self.codec.out_bytes(), stored.rows);
  decode_rows(self.codec, stored.entries.data(), stored.rows, out.entries.data(), threads);
}

void add_to_fit(ColumnFit& self, Rows rows, int threads) {
  expect_shape(rows, "rows", self.dim);
  self.add(rows.entries.data(), rows.rows, threads);
}

void add_to_errors(ColumnErrors& self, const BoundCodec& bound, Rows rows, Stored stored, int threads) {
  expect_shape(rows, "rows", self.dim);
  TIERING_EXPECT(bound.codec.dim == self.dim, "codec: expected one of ", self.dim, " columns");
  expect_shape(stored, "stored", bound.codec.stored_bytes(), rows.rows);
  self.add(bound.codec, rows.entries.data(), stored.entries.data(), rows.rows, threads);
}

template <typename T>
auto column_values(Buffer<T> ColumnFit::* field) {
  return [field](const ColumnFit& fit) { return copied((fit.*field).span()); };
}

}  // namespace

void bind_codec(nb::module_& m) {
  nb::class_<BoundCodec> codec(m, "RowCodec");
  codec
      .def("__init__", &init_codec, "stored"_a, "delivered"_a, "dim"_a, "scale"_a = nb::none(), "offset"_a = nb::none())
      .def_prop_ro("row_bytes", [](const BoundCodec& self) { return self.codec.stored_bytes(); })
      .def_prop_ro("out_bytes", [](const BoundCodec& self) { return self.codec.out_bytes(); });
  define(codec, "encode", &encode, "rows"_a, "out"_a, "threads"_a = 1);
  define(codec, "decode", &decode, "stored"_a, "out"_a, "threads"_a = 1);
  nb::class_<ColumnFit> fit(m, "ColumnFit");
  fit.def(nb::init<int64_t>(), "dim"_a)
      .def_prop_ro("low", column_values(&ColumnFit::low))
      .def_prop_ro("high", column_values(&ColumnFit::high))
      .def_prop_ro("least", column_values(&ColumnFit::least))
      .def_prop_ro("lowest_bit", column_values(&ColumnFit::lowest_bit))
      .def_ro("num_rows", &ColumnFit::num_rows)
      .def_ro("odd", &ColumnFit::odd);
  define(fit, "add", &add_to_fit, "rows"_a, "threads"_a = 1);
  nb::class_<ColumnErrors> errors(m, "ColumnErrors");
  errors.def(nb::init<int64_t>(), "dim"_a)
      .def_ro("num_rows", &ColumnErrors::num_rows)
      .def_prop_ro("sums", [](const ColumnErrors& self) {
        std::vector<Buffer<double>> sums;
        for (const auto& each : self.sums) sums.push_back(copied(each.span()));
        return sums;
      });
  define(errors, "add", &add_to_errors, "codec"_a, "rows"_a, "stored"_a, "threads"_a = 1);
}
