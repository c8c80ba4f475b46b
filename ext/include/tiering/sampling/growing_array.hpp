// A growable array whose elements start uninitialized: output of the samplers, handed to the caller without a copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace tiering {

template <typename T>
class GrowingArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  GrowingArray() = default;
  GrowingArray(GrowingArray&& other) noexcept { swap(other); }
  GrowingArray& operator=(GrowingArray&& other) noexcept {
    swap(other);
    return *this;
  }
  GrowingArray(const GrowingArray&) = delete;
  GrowingArray& operator=(const GrowingArray&) = delete;
  ~GrowingArray() { std::free(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return capacity_ * static_cast<int64_t>(sizeof(T)); }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

  /// Room for `extra` more elements after the present ones; pointers into the buffer may move.
  void make_room(int64_t extra) {
    if (size_ + extra > capacity_) grow(std::max(size_ + extra, capacity_ + capacity_ / 2));
  }
  /// Sets the size; the room must be there already.
  void set_size(int64_t size) { size_ = size; }
  /// Sets the size, making room; new elements are uninitialized.
  void resize(int64_t size) {
    if (size > capacity_) grow(size);
    size_ = size;
  }
  /// Sets a smaller size, and gives back memory beyond it.
  void shrink(int64_t size) {
    size_ = size;
    if (capacity_ > std::max<int64_t>(size, 64)) grow(size);
  }

 private:
  void swap(GrowingArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void grow(int64_t capacity) {
    capacity = std::max<int64_t>(capacity, 64);
    void* data = std::realloc(data_, static_cast<size_t>(capacity) * sizeof(T));
    if (data == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace tiering
