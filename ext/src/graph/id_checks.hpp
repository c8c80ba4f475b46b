// Checks of the ids of an edge list.
#pragma once

#include <cstdint>
#include <string>
#include <tiering/errors.hpp>

namespace tiering {

[[noreturn, gnu::cold, gnu::noinline]] inline void edge_out_of_range(int64_t edge, const char* side, int64_t id,
                                                                     int64_t count) {
  const std::string bounds = count ? "outside 0.." + std::to_string(count - 1) : "impossible: there are no nodes";
  throw InputError("edge " + std::to_string(edge) + ": " + side + " id " + std::to_string(id) + " is " + bounds);
}

inline bool in_range(int64_t id, int64_t count) { return static_cast<uint64_t>(id) < static_cast<uint64_t>(count); }

}  // namespace tiering
