// A file that is read past the page cache instead of a mapping of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace tiering {

/// Holds an array from its begin on; no path: there is none.
struct DirectFile {
  std::string path = {};
  /// Sees what is read, from an offset on: each thread's reads in order. Called by several threads at once.
  std::function<void(int64_t offset, std::span<const std::byte> bytes)> passed = {};
};

}  // namespace tiering
