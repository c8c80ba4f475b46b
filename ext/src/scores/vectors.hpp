// Vectors of scores, filled by all threads: most of the time goes into the first touch of their pages.
#pragma once

#include <algorithm>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/parallel.hpp>

namespace tiering {

inline Buffer<double> zeros(int64_t size, int threads) {
  Buffer<double> values(size);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(size, threads, t);
    std::fill_n(values.data() + begin, end - begin, 0.0);
  });
  return values;
}

inline Buffer<double> copy_of(std::span<const double> original, int threads) {
  Buffer<double> values(static_cast<int64_t>(original.size()));
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(values.size(), threads, t);
    std::copy_n(original.data() + begin, end - begin, values.data() + begin);
  });
  return values;
}

}  // namespace tiering
