// Checksums of pages: XXH3-64, seed 0. The format of images keeps its low 32 bits for each page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tiering {

/// Hash of one page: the low 32 bits of XXH3-64.
uint32_t page_hash(const std::byte* page, size_t page_bytes) noexcept;

/// out[i] = page_hash of page i; data holds out.size() whole pages.
void page_hashes(std::span<const std::byte> data, size_t page_bytes, std::span<uint32_t> out);

}  // namespace tiering
