// Loops over streams of entries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tiering/errors.hpp>

namespace tiering {

/// Streams are prefetched by hand: in virtual machines the hardware often does it too late. Counting the entries of an
/// array by key takes half the time with it.
inline constexpr int kStreamAheadBytes = 2048;

/// For a loop that reads memory upwards and stands at `at`: asks for what it will need in a while. The address
/// may lie behind the end.
inline void prefetch_stream(const void* at) { __builtin_prefetch(static_cast<const char*>(at) + kStreamAheadBytes); }

/// Asks for the first bytes of a row, at most `most`; the hardware follows on its own from there.
inline void prefetch_row(const void* row, int64_t bytes, int64_t most = 512) {
  for (int64_t at = 0; at < std::min(bytes, most); at += 64)
    __builtin_prefetch(static_cast<const std::byte*>(row) + at);
}

/// Calls f with the size of items: a constant where they are of 4 or 8 bytes, so that a copy of one is a move.
template <typename F>
void with_item_bytes(int64_t bytes, F&& f) {
  if (bytes == 4) return f(std::integral_constant<size_t, 4>());
  if (bytes == 8) return f(std::integral_constant<size_t, 8>());
  f(static_cast<size_t>(bytes));
}

/// Calls body(k) for k in [first, last), and ahead(k) before every eighth: there the prefetches go.
template <typename Ahead, typename Body>
void for_stream(int64_t first, int64_t last, Ahead&& ahead, Body&& body) {
  constexpr int64_t kStep = 8;
  int64_t k = first;
  for (; k + kStep <= last; k += kStep) {
    ahead(k);
    for (int64_t j = k; j < k + kStep; ++j) body(j);
  }
  for (; k < last; ++k) body(k);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void index_out_of_range(int64_t position, int64_t id, int64_t count) {
  refuse_input("indices[", position, "] is ", id, ", outside 0..", count - 1, " (", count, " nodes)");
}

/// Calls f(id) for indices[begin, end) in order; throws for the first that is not in [0, count).
template <typename T, typename F>
void scan_indices(const T* indices, int64_t count, int64_t begin, int64_t end, F&& f) {
  auto ahead = [&](int64_t k) { prefetch_stream(indices + k); };
  for_stream(begin, end, ahead, [&](int64_t k) {
    const int64_t id = indices[k];
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(count)) index_out_of_range(k, id, count);
    f(id);
  });
}

}  // namespace tiering
