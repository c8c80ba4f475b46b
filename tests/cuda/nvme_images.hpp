// Images that tests of NVMe reads read.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <tiering/io/read_engine.hpp>
#include <vector>

#include "../cpp/nvme_medium.hpp"

namespace tiering::test {

/// Images in memory, each a page longer than the one before; the last page is not whole.
struct Images {
  explicit Images(size_t count, int64_t bytes = (1 << 20) + 520) : bytes(bytes) {
    for (size_t i = 0; i < count; ++i) {
      files.push_back(std::make_unique<NumberedFile>(bytes + static_cast<int64_t>(i) * 4096));
      set.add(ImageFile("image " + std::to_string(i), files.back()->fd(), 1));
    }
  }
  /// A read of whole blocks somewhere.
  Read random(std::mt19937& random, uint32_t most_bytes) const {
    const auto image = static_cast<uint32_t>(random() % files.size());
    const int64_t offset = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes / 512)) * 512;
    const auto size = static_cast<uint32_t>(random() % (most_bytes / 512) + 1) * 512;
    const auto need = static_cast<uint32_t>(std::min<int64_t>(size, set.images[image].bytes() - offset));
    return {offset, size, need, image, nullptr};
  }
  bool same(const Read& read, const std::byte* data) const {
    return std::memcmp(data, files[read.image]->data() + read.offset, read.need) == 0;
  }

  int64_t bytes;
  std::vector<std::unique_ptr<NumberedFile>> files;
  ImageSet set;
};

}  // namespace tiering::test
