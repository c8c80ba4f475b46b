// Vectors of scores, filled by all threads: most of the time goes into the first touch of their pages.
#pragma once

#include <algorithm>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/parallel.hpp>
#include <tiering/scores.hpp>

namespace tiering {

inline Buffer<double> zeros(int64_t size, int threads) {
  Buffer<double> values(size);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(size, threads, t);
    std::fill_n(values.data() + begin, end - begin, 0.0);
  });
  return values;
}

/// The values of `size` nodes.
inline Buffer<double> written(const NodeValues& original, int64_t size, int threads) {
  Buffer<double> values(size);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(size, threads, t);
    original.write(begin,
                   values.span().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  });
  return values;
}

}  // namespace tiering
