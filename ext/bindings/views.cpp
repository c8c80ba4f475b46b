// Checks of the dtype, shape and strides of arrays.
#include "ndarray_types.hpp"

namespace tiering::bind {
namespace {

std::string dtype_name(nb::dlpack::dtype dtype) {
  static constexpr const char* kNames[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string name = dtype.code < 7 ? kNames[dtype.code] : "unknown";
  return dtype.code == 6 ? name : name + std::to_string(dtype.bits);
}

void expect(bool fits, const AnyArray& a, const char* name, const std::string& expected) {
  if (fits) return;
  std::string shape;
  for (size_t i = 0; i < a.ndim(); ++i) shape += std::to_string(a.shape(i)) + (i + 1 < a.ndim() ? ", " : "");
  throw InputError(std::string(name) + ": expected " + expected + ", found " + dtype_name(a.dtype()) +
                   " array of shape (" + shape + (a.ndim() == 1 ? ",)" : ")"));
}

bool contiguous(const AnyArray& a) { return a.ndim() == 1 && (a.shape(0) <= 1 || a.stride(0) == 1); }

/// Whether the rows of a matrix follow each other without gaps, and so do the entries of a row.
bool gapless(const AnyArray& a) {
  return a.size() == 0 || ((a.shape(1) == 1 || a.stride(1) == 1) &&
                           (a.shape(0) == 1 || a.stride(0) == static_cast<int64_t>(a.shape(1))));
}

bool aligned(const AnyArray& a) { return reinterpret_cast<uintptr_t>(a.data()) % (a.dtype().bits / 8) == 0; }

template <typename T>
bool of(const AnyArray& a) {
  return a.dtype() == nb::dtype<T>();
}

int64_t size(const AnyArray& a, size_t dimension) { return static_cast<int64_t>(a.shape(dimension)); }

}  // namespace

void check_items(const AnyArray& a, const char* name, nb::dlpack::dtype dtype) {
  expect(contiguous(a) && a.dtype() == dtype, a, name, "contiguous 1-D " + dtype_name(dtype) + " array");
}

void view(const AnyArray& a, const char* name, IdView& out) {
  const bool wide = of<int64_t>(a);
  expect(a.ndim() == 1 && (wide || of<int32_t>(a)), a, name, "1-D int32 or int64 array");
  out = {a.data(), size(a, 0), a.stride(0) * (wide ? 8 : 4), wide};
}

void view(const AnyArray& a, const char* name, IdSpan& out) {
  const bool wide = of<int64_t>(a);
  expect(contiguous(a) && (wide || of<int32_t>(a)), a, name, "contiguous 1-D int32 or int64 array");
  out = {a.data(), size(a, 0), wide};
}

void view(const AnyArray& a, const char* name, WeightArray& out) {
  const bool wide = of<double>(a);
  expect(contiguous(a) && (wide || of<float>(a)), a, name, "contiguous 1-D float32 or float64 array");
  out = {a.data(), size(a, 0), wide};
}

void check_matrix(const AnyArray& a, const char* name, nb::dlpack::dtype dtype) {
  expect(a.ndim() == 2 && a.dtype() == dtype && gapless(a) && aligned(a), a, name,
         "C-contiguous 2-D " + dtype_name(dtype) + " array, aligned");
}

void view(const AnyArray& a, const char* name, NumberRows& out) {
  constexpr auto kFloat = static_cast<uint8_t>(nb::dlpack::dtype_code::Float);
  const bool half = a.dtype() == nb::dlpack::dtype{kFloat, 16, 1}, brain = of<uint16_t>(a);
  expect(a.ndim() == 2 && (half || brain || of<float>(a) || of<double>(a)) && gapless(a) && aligned(a), a, name,
         "C-contiguous 2-D array of float16, float32, float64, or bfloat16 as uint16, aligned");
  const NumberKind kind = half            ? NumberKind::kFloat16
                          : brain         ? NumberKind::kBFloat16
                          : of<double>(a) ? NumberKind::kFloat64
                                          : NumberKind::kFloat32;
  out = {a.data(), size(a, 0), size(a, 1), kind};
}

void view(const AnyArray& a, const char* name, RowsView& out) {
  expect(a.ndim() == 2 && of<uint8_t>(a) && gapless(a), a, name, "C-contiguous 2-D uint8 array (rows, row_bytes)");
  out = {static_cast<const std::byte*>(a.data()), size(a, 0), size(a, 1)};
}

void view(const AnyArray& a, const char* name, EdgeValues& out) {
  expect(a.ndim() == 2 && of<uint8_t>(a) && a.shape(1) > 0 && (a.shape(1) == 1 || a.stride(1) == 1), a, name,
         "uint8 array of shape (edges, bytes of a value)");
  out = {static_cast<const std::byte*>(a.data()), size(a, 1), a.stride(0), size(a, 0)};
}

void view(const AnyArray& a, const char* name, RowsTarget& out) {
  expect(a.ndim() == 2 && of<uint8_t>(a) && (a.size() == 0 || a.shape(1) == 1 || a.stride(1) == 1), a, name,
         "2-D uint8 array, contiguous within a row");
  out = {static_cast<std::byte*>(const_cast<void*>(a.data())), size(a, 0), a.stride(0), size(a, 1)};
}

}  // namespace tiering::bind
