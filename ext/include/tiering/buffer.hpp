// Memory that kernels allocate and callers own: uninitialized, aligned, in huge pages where the system offers them.
#pragma once

#include <sys/mman.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <variant>

namespace tiering {

inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// `size` values of T, not initialized. Large ones ask for huge pages: the kernels write to hundreds of places at once.
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(int64_t size) : size_(size) {
    if (size < 0 || size > kMostBytes / static_cast<int64_t>(sizeof(T))) throw std::bad_alloc();
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    const size_t align = bytes >= 2 * kHugePageBytes ? kHugePageBytes : kLineBytes;
    const size_t rounded = (bytes + align - 1) / align * align;
    data_.reset(static_cast<T*>(std::aligned_alloc(align, rounded ? rounded : align)));
    if (!data_) throw std::bad_alloc();
    if (align == kHugePageBytes) madvise(data_.get(), rounded, MADV_HUGEPAGE);  // advice: failure is harmless
  }

  Buffer(int64_t size, T value) : Buffer(size) { std::fill_n(data(), size, value); }

  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  int64_t size() const noexcept { return size_; }
  T& operator[](int64_t i) noexcept { return data_.get()[i]; }
  const T& operator[](int64_t i) const noexcept { return data_.get()[i]; }
  std::span<T> span() noexcept { return {data(), static_cast<size_t>(size_)}; }
  std::span<const T> span() const noexcept { return {data(), static_cast<size_t>(size_)}; }

 private:
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  static constexpr int64_t kMostBytes = int64_t{1} << 62;  ///< rounded up they are still a number
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

/// A value that another thread may change meanwhile: the compiler reads it once, so what is checked is what is used.
template <typename T>
T read_once(const T& value) {
  return *static_cast<const volatile T*>(&value);
}

/// A copy of values that another thread may change meanwhile, to be checked and used.
template <typename T>
Buffer<std::remove_const_t<T>> copied(std::span<T> values) {
  Buffer<std::remove_const_t<T>> copy(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), copy.data());
  return copy;
}

/// Hands what malloc keeps after it was freed (pieces of up to 32 MiB, with glibc) to the system: a budget counts it.
inline void give_free_memory_back() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

/// Ids a kernel returns: 32-bit while every id fits, else 64-bit.
using IdBuffer = std::variant<Buffer<int32_t>, Buffer<int64_t>>;

/// Whether ids below `count` need 64 bits.
inline bool needs_wide_ids(int64_t count) { return count >= (int64_t{1} << 31); }

}  // namespace tiering
