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

/// An array that Python gave. Checked where it is viewed; `name` begins the message.
template <typename View>
struct Array {
  AnyArray array;

  View get(const char* name) const {
    View view{};
    bind::view(array, name, view);
    return view;
  }
};

/// How Python gives a view, a list of views, or perhaps a view; other types are given as they are.
template <typename T>
struct GivenAs {
  using Type = T;
};
template <typename View>
  requires requires(View& out) { view(AnyArray(), "", out); }
struct GivenAs<View> {
  using Type = Array<View>;
};
template <typename T>
struct GivenAs<std::vector<T>> {
  using Type = std::vector<typename GivenAs<T>::Type>;
};
template <typename T>
struct GivenAs<std::optional<T>> {
  using Type = std::optional<typename GivenAs<T>::Type>;
};
template <typename T>
inline constexpr bool kAsItIs = std::is_same_v<typename GivenAs<std::remove_cvref_t<T>>::Type, std::remove_cvref_t<T>>;
template <typename T>
using Given = std::conditional_t<kAsItIs<T>, T, const typename GivenAs<std::remove_cvref_t<T>>::Type&>;

/// The value of an argument called `name`.
template <typename T>
std::conditional_t<kAsItIs<T>, T, std::remove_cvref_t<T>> value_of(Given<T> given, const char* name) {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<T, int>)
    TIERING_EXPECT(given >= 1 || name != std::string_view("threads"), "threads: expected at least 1, found ", given);
  if constexpr (kAsItIs<T>) {
    return static_cast<T&&>(given);
  } else if constexpr (requires { given.array; }) {
    return given.get(name);
  } else if constexpr (requires { given.has_value(); }) {
    return given ? Value(value_of<typename Value::value_type>(*given, name)) : Value();
  } else {
    Value values;
    for (const auto& each : given) values.push_back(value_of<typename Value::value_type>(each, name));
    return values;
  }
}

template <typename Return, typename... T, typename Scope, typename Function, typename... Names>
void define_as(Scope& scope, const char* name, Function function, const Names&... names) {
  static_assert(sizeof...(T) - sizeof...(Names) <= 1, "each argument has a name, but for the object of a method");
  scope.def(
      name,
      [function, named = std::array{"self", names.name_...}](Given<T>... given) -> Return {
        const char* const* called = named.data() + (sizeof...(Names) + 1 - sizeof...(T));
        return [&]<size_t... i>(std::index_sequence<i...>) -> Return {
          return std::invoke(function, value_of<T>(static_cast<Given<T>&&>(given), called[i])...);
        }(std::index_sequence_for<T...>());
      },
      names..., Release());
}

/// Binds a function or method; its arrays are checked, under the names of its arguments, and it runs without the GIL.
template <typename Scope, typename Return, typename... T, typename... Names>
void define(Scope& scope, const char* name, Return (*function)(T...), const Names&... names) {
  define_as<Return, T...>(scope, name, function, names...);
}
template <typename Scope, typename Return, typename Self, typename... T, typename... Names>
void define(Scope& scope, const char* name, Return (Self::*method)(T...), const Names&... names) {
  define_as<Return, Self&, T...>(scope, name, method, names...);
}

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

template <typename View>
struct type_caster<tiering::bind::Array<View>> {
  NB_TYPE_CASTER(tiering::bind::Array<View>, tiering::bind::view_name<View>())

  bool from_python(handle source, auto flags, cleanup_list* cleanup) noexcept {
    using namespace tiering::bind;
    make_caster<std::conditional_t<kWritten<View>, AnyMutableArray, AnyArray>> caster;
    if (!caster.from_python(source, flags, cleanup)) return false;
    value.array = AnyArray(caster.value);
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
