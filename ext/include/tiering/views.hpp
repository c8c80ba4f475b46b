// Non-owning views of ids and adjacency. Nothing here allocates or checks.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace tiering {

/// a - b without overflow: around the end where the difference is no int64, as it may be of numbers that nobody
/// checked.
constexpr int64_t wrapped_difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

/// Ids in memory with a fixed distance between neighbors, as in one column of an (E, 2) array.
template <typename T>
class StridedIds {
 public:
  StridedIds(const void* base, int64_t stride_bytes) : base_(static_cast<const char*>(base)), stride_(stride_bytes) {}
  int64_t operator[](int64_t i) const {
    T value;
    std::memcpy(&value, base_ + i * stride_, sizeof(T));
    return value;
  }

 private:
  const char* base_;
  int64_t stride_;
};

/// A 1-D array of int32 or int64 ids with any stride.
struct IdView {
  const void* data = nullptr;
  int64_t size = 0;
  int64_t stride_bytes = 4;
  bool wide = false;  ///< int64 instead of int32

  template <typename F>
  decltype(auto) visit(F&& f) const {
    if (wide) return f(StridedIds<int64_t>(data, stride_bytes));
    return f(StridedIds<int32_t>(data, stride_bytes));
  }
};

/// A contiguous 1-D array of int32 or int64 ids.
struct IdSpan {
  const void* data = nullptr;  ///< null: there are none
  int64_t size = 0;
  bool wide = false;  ///< int64 instead of int32

  /// Address of entry i.
  const char* at(int64_t i) const { return static_cast<const char*>(data) + (i << (wide ? 3 : 2)); }
  /// Entry i as a random key; i itself where there are none.
  uint64_t key_of(int64_t i) const {
    if (data == nullptr) return static_cast<uint64_t>(i);
    return static_cast<uint64_t>(wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i]);
  }
  void prefetch(int64_t i) const {
    if (data != nullptr) __builtin_prefetch(at(i));
  }

  template <typename F>
  decltype(auto) visit(F&& f) const {
    const auto n = static_cast<size_t>(size);
    if (wide) return f(std::span<const int64_t>(static_cast<const int64_t*>(data), n));
    return f(std::span<const int32_t>(static_cast<const int32_t*>(data), n));
  }
};

/// Compressed adjacency: list v is indices[indptr[v] : indptr[v + 1]].
struct CscView {
  std::span<const int64_t> indptr;  ///< num_columns + 1 offsets
  IdSpan indices;

  int64_t num_columns() const { return static_cast<int64_t>(indptr.size()) - 1; }
  int64_t num_edges() const { return indices.size; }
};

}  // namespace tiering
