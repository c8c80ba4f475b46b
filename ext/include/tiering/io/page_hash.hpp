// Checksums of pages: XXH3-64, seed 0. The format of stripe files keeps its low 32 bits for each page.
#pragma once

#include <tiering/io/read_engine.hpp>
#include <tiering/io/tiers.hpp>

namespace tiering {

/// Hash of one page: the low 32 bits of XXH3-64.
uint32_t page_hash(const std::byte* page, size_t page_bytes) noexcept;

/// out[i] = page_hash of page i; data holds out.size() whole pages.
void page_hashes(std::span<const std::byte> data, size_t page_bytes, std::span<uint32_t> out);

/// Per stripe file, the checksum of each of its pages; empty: pages are not compared.
using PageChecksums = std::vector<std::span<const uint32_t>>;

inline constexpr int64_t kNoPage = -1;

/// Throws InputError unless each page of the first `units` units has a checksum, or there are none.
void expect_checksums(const PageChecksums& checksums, const SsdGeometry& geometry, int64_t units);

/// The number (page of the image * images + image) of the first page of a read that differs from its checksum; kNoPage if there is none.
int64_t damaged_page(const PageChecksums& checksums, const SsdGeometry& geometry, const Read& read,
                     const std::byte* data) noexcept;

}  // namespace tiering
