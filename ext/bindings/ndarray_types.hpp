// Between numpy and the core: arrays in as views (nothing is copied or cast silently), memory out as numpy arrays. The
// types below carry what Python's stubs say (build/.../_native.pyi); views.cpp holds the checks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <tiering/errors.hpp>
#include <tiering/reorder.hpp>
#include <tiering/sampling/sampler.hpp>

namespace tiering::bind {

namespace nb = nanobind;
using Release = nb::call_guard<nb::gil_scoped_release>;

/// Any array in host memory that may be read, or written.
using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;
using AnyMutableArray = nb::ndarray<nb::device::cpu>;

/// A matrix without gaps.
template <typename T>
struct Matrix {
  using element_type = T;
  std::span<T> entries;
  int64_t rows, columns;
};

/// Dtypes of Python's stubs.
template <typename... T>
constexpr auto array_name() {
  using nb::detail::const_name;
  if constexpr (sizeof...(T) > 1) {
    return nb::detail::union_name(array_name<T>()...);
  } else {
    using Item = std::remove_const_t<std::tuple_element_t<0, std::tuple<T...>>>;
    constexpr auto kWhole = [] {
      if constexpr (std::is_same_v<Item, float>) return const_name("numpy.float32");
      if constexpr (std::is_same_v<Item, double>) return const_name("numpy.float64");
      if constexpr (sizeof(Item) == 1) return const_name("numpy.uint8");
      if constexpr (std::is_same_v<Item, int32_t>) return const_name("numpy.int32");
      if constexpr (std::is_same_v<Item, int64_t>) return const_name("numpy.int64");
      if constexpr (std::is_same_v<Item, uint32_t>) return const_name("numpy.uint32");
      if constexpr (std::is_same_v<Item, uint64_t>) return const_name("numpy.uint64");
    };
    return const_name("numpy.typing.NDArray[") + kWhole() + const_name("]");
  }
}

/// Views an array as `out`; throws InputError, beginning with `name`, if its dtype, shape or strides do not fit.
void view(const AnyArray& a, const char* name, IdView& out);
void view(const AnyArray& a, const char* name, IdSpan& out);
void view(const AnyArray& a, const char* name, WeightArray& out);
void view(const AnyArray& a, const char* name, NumberRows& out);
void view(const AnyArray& a, const char* name, RowsView& out);
void view(const AnyArray& a, const char* name, EdgeValues& out);
void view(const AnyArray& a, const char* name, RowsTarget& out);
void check_items(const AnyArray& a, const char* name, nb::dlpack::dtype dtype);
void check_matrix(const AnyArray& a, const char* name, nb::dlpack::dtype dtype);

template <typename T>
void view(const AnyArray& a, const char* name, std::span<T>& out) {
  using Item = std::conditional_t<sizeof(T) == 1, uint8_t, std::remove_const_t<T>>;
  check_items(a, name, nb::dtype<Item>());
  out = {static_cast<T*>(const_cast<void*>(a.data())), a.shape(0)};
}

template <typename T>
void view(const AnyArray& a, const char* name, Matrix<T>& out) {
  check_matrix(a, name, nb::dtype<std::conditional_t<sizeof(T) == 1, uint8_t, std::remove_const_t<T>>>());
  const auto rows = static_cast<int64_t>(a.shape(0)), columns = static_cast<int64_t>(a.shape(1));
  out = {{static_cast<T*>(const_cast<void*>(a.data())), a.size()}, rows, columns};
}

/// The name of a view's array in Python's stubs.
template <typename View>
constexpr auto view_name() {
  if constexpr (std::is_same_v<View, IdView> || std::is_same_v<View, IdSpan>)
    return array_name<int32_t, int64_t>();
  else if constexpr (std::is_same_v<View, WeightArray>)
    return array_name<float, double>();
  else if constexpr (std::is_same_v<View, NumberRows>)
    return nb::detail::const_name("numpy.typing.NDArray[numpy.float16 | numpy.uint16 | numpy.float32 | numpy.float64]");
  else if constexpr (requires { typename View::element_type; })
    return array_name<typename View::element_type>();
  else
    return array_name<std::byte>();
}

template <typename View>
inline constexpr bool kWritten = std::is_same_v<View, RowsTarget>;
template <typename View>
  requires requires { typename View::element_type; }
inline constexpr bool kWritten<View> = !std::is_const_v<typename View::element_type>;

/// The name of an argument, as messages say it.
template <size_t kSize>
struct Name {
  char text[kSize];
  constexpr Name(const char (&given)[kSize]) { std::copy_n(given, kSize, text); }  // NOLINT: written as text
};

/// An array that an argument called kName gave. Checked where it is viewed.
template <typename View, Name kName>
struct Argument {
  AnyArray array;

  View get() const {
    View view{};
    bind::view(array, kName.text, view);
    return view;
  }
  operator View() const { return get(); }  // NOLINT: callers hand it on as the view
};

template <Name kName>
using Ids = Argument<IdSpan, kName>;
template <typename T, Name kName>
using Values = Argument<std::span<T>, kName>;

/// The views of arguments that were given as a list.
template <typename View, Name kName>
std::vector<View> all(const std::vector<Argument<View, kName>>& arguments) {
  return {arguments.begin(), arguments.end()};
}

struct Threads {
  int count = 1;
  operator int() const {  // NOLINT: callers hand it on as the number
    TIERING_EXPECT(count >= 1, "threads: expected at least 1, found ", count);
    return count;
  }
};

/// Memory that Python gets as an array of several dimensions.
template <typename Memory, size_t kDimensions>
struct Shaped {
  Memory items;
  std::array<size_t, kDimensions> shape;
};

template <typename T>
inline constexpr bool kIsMemory = false;
template <typename T>
inline constexpr bool kIsMemory<Buffer<T>> = true;
template <typename T>
inline constexpr bool kIsMemory<GrowingArray<T>> = true;

inline CscView csc_view(std::span<const int64_t> indptr, const IdSpan& indices) {
  TIERING_EXPECT(!indptr.empty(), "indptr: expected one entry more than there are columns, found none");
  return {indptr, indices};
}

template <typename Memory>
using ItemOf = std::remove_reference_t<decltype(*std::declval<Memory&>().data())>;

/// Hands memory to numpy, which frees it with its last reference.
template <typename Memory, size_t kDimensions>
nb::handle to_numpy(Shaped<Memory, kDimensions>&& given) {
  auto* const memory = new Memory(std::move(given.items));
  nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<Memory*>(p); });
  return nb::ndarray<nb::numpy, ItemOf<Memory>>(memory->data(), kDimensions, given.shape.data(), owner)
      .cast()
      .release();
}

}  // namespace tiering::bind

namespace nanobind::detail {

template <typename View, tiering::bind::Name kName>
struct type_caster<tiering::bind::Argument<View, kName>> {
  using Given = tiering::bind::Argument<View, kName>;
  NB_TYPE_CASTER(Given, tiering::bind::view_name<View>())

  bool from_python(handle source, auto flags, cleanup_list* cleanup) noexcept {
    using namespace tiering::bind;
    make_caster<std::conditional_t<kWritten<View>, AnyMutableArray, AnyArray>> caster;
    if (!caster.from_python(source, flags, cleanup)) return false;
    value.array = AnyArray(caster.value);
    return true;
  }
};

template <>
struct type_caster<tiering::bind::Threads> {
  NB_TYPE_CASTER(tiering::bind::Threads, const_name("int"))

  bool from_python(handle source, auto flags, cleanup_list* cleanup) noexcept {
    make_caster<int> caster;
    if (!caster.from_python(source, flags, cleanup)) return false;
    value.count = caster.value;
    return true;
  }
};

template <typename Memory>
  requires tiering::bind::kIsMemory<Memory>
struct type_caster<Memory, int> {
  NB_TYPE_CASTER(Memory, tiering::bind::array_name<tiering::bind::ItemOf<Memory>>())

  static handle from_cpp(Memory&& memory, rv_policy, cleanup_list*) {
    const auto size = static_cast<size_t>(memory.size());
    return tiering::bind::to_numpy(tiering::bind::Shaped<Memory, 1>{std::move(memory), {size}});
  }
};

template <typename Memory, size_t kDimensions>
struct type_caster<tiering::bind::Shaped<Memory, kDimensions>> {
  using Given = tiering::bind::Shaped<Memory, kDimensions>;
  NB_TYPE_CASTER(Given, tiering::bind::array_name<tiering::bind::ItemOf<Memory>>())

  static handle from_cpp(Given&& given, rv_policy, cleanup_list*) { return tiering::bind::to_numpy(std::move(given)); }
};

}  // namespace nanobind::detail
