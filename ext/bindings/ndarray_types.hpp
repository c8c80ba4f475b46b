// Between numpy and the core: arrays in as views (nothing is copied or cast silently), buffers out as numpy
// arrays. Every check here names the argument, what was expected and what was found.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <tiering/buffer.hpp>
#include <tiering/errors.hpp>
#include <tiering/views.hpp>
#include <utility>
#include <variant>

namespace tiering::bind {

namespace nb = nanobind;

/// Any array in host memory that may be read.
using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;
/// Any array in host memory that may be written.
using AnyMutableArray = nb::ndarray<nb::device::cpu>;

template <typename Array>
std::string describe(const Array& a) {
  static constexpr const char* kNames[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const auto dtype = a.dtype();
  std::string text = dtype.code < 7 ? kNames[dtype.code] : "unknown";
  if (dtype.code != 6) text += std::to_string(dtype.bits);
  text += " array of shape (";
  for (size_t i = 0; i < a.ndim(); ++i) text += std::to_string(a.shape(i)) + (i + 1 < a.ndim() ? ", " : "");
  return text + (a.ndim() == 1 ? ",)" : ")");
}

template <typename Array>
[[noreturn]] void mismatch(const char* name, const char* expected, const Array& a) {
  throw InputError(std::string(name) + ": expected " + expected + ", found " + describe(a));
}

template <typename Array>
bool contiguous_1d(const Array& a) {
  return a.ndim() == 1 && (a.shape(0) <= 1 || a.stride(0) == 1);
}

template <typename Array>
bool is_ids(const Array& a) {
  return a.dtype() == nb::dtype<int32_t>() || a.dtype() == nb::dtype<int64_t>();
}

/// 1-D ids with any stride.
inline IdView id_view(const AnyArray& a, const char* name) {
  if (a.ndim() != 1 || !is_ids(a)) mismatch(name, "1-D int32 or int64 array", a);
  const bool wide = a.dtype() == nb::dtype<int64_t>();
  return {a.data(), static_cast<int64_t>(a.shape(0)), a.stride(0) * (wide ? 8 : 4), wide};
}

/// 1-D contiguous ids.
inline IdSpan id_span(const AnyArray& a, const char* name) {
  if (!contiguous_1d(a) || !is_ids(a)) mismatch(name, "contiguous 1-D int32 or int64 array", a);
  return {a.data(), static_cast<int64_t>(a.shape(0)), a.dtype() == nb::dtype<int64_t>()};
}

/// 1-D contiguous values of exactly type T.
template <typename T>
std::span<const T> value_span(const AnyArray& a, const char* name, const char* expected) {
  if (!contiguous_1d(a) || a.dtype() != nb::dtype<T>()) mismatch(name, expected, a);
  return {static_cast<const T*>(a.data()), a.shape(0)};
}

inline std::span<const double> score_span(const AnyArray& a, const char* name) {
  return value_span<double>(a, name, "contiguous 1-D float64 array");
}

inline CscView csc_view(const AnyArray& indptr, const AnyArray& indices) {
  const auto offsets = value_span<int64_t>(indptr, "indptr", "contiguous 1-D int64 array");
  if (offsets.empty()) throw InputError("indptr: expected one entry more than there are columns, found none");
  return {offsets, id_span(indices, "indices")};
}

inline void check_threads(int threads) {
  if (threads < 1) throw InputError("threads: expected at least 1, found " + std::to_string(threads));
}

/// Hands a buffer to numpy, which frees it with its last reference.
template <typename T>
nb::object to_numpy(Buffer<T>&& buffer) {
  auto* owned = new Buffer<T>(std::move(buffer));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<Buffer<T>*>(p); });
  const size_t shape[1] = {static_cast<size_t>(owned->size())};
  return nb::cast(nb::ndarray<nb::numpy, T>(owned->data(), 1, shape, owner));
}

inline nb::object to_numpy(IdBuffer&& ids) {
  return std::visit([](auto&& buffer) { return to_numpy(std::move(buffer)); }, std::move(ids));
}

/// Runs f without the GIL.
template <typename F>
auto without_gil(F&& f) {
  nb::gil_scoped_release release;
  return f();
}

}  // namespace tiering::bind
