#include <algorithm>
#include <tiering/io/page_hash.hpp>
#include <tiering/parallel.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tiering {

uint32_t page_hash(const std::byte* page, size_t page_bytes) noexcept {
  return static_cast<uint32_t>(XXH3_64bits(page, page_bytes));
}

void page_hashes(std::span<const std::byte> data, size_t page_bytes, std::span<uint32_t> out) {
  for (size_t page = 0; page < out.size(); ++page)
    out[page] = page_hash(data.data() + page * page_bytes, page_bytes);
}

void block_hashes(std::span<const std::byte> data, size_t block_bytes, std::span<uint64_t> out, int threads) {
  for_blocks(threads, static_cast<int64_t>(out.size()), [&](int64_t block) {
    const size_t begin = static_cast<size_t>(block) * block_bytes;
    out[static_cast<size_t>(block)] =
        XXH3_64bits(data.data() + begin, std::min(block_bytes, data.size() - begin));
  });
}

}  // namespace tiering
