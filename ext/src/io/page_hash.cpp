#include <tiering/io/page_hash.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tiering {

uint32_t page_hash(const std::byte* page, size_t page_bytes) noexcept {
  return static_cast<uint32_t>(XXH3_64bits(page, page_bytes));
}

void page_hashes(std::span<const std::byte> data, size_t page_bytes, std::span<uint32_t> out) {
  for (size_t page = 0; page < out.size(); ++page) out[page] = page_hash(data.data() + page * page_bytes, page_bytes);
}

}  // namespace tiering
