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

void expect_checksums(const PageChecksums& checksums, const SsdGeometry& geometry, int64_t units) {
  if (checksums.empty() || units == 0) return;
  const int64_t images = geometry.num_images;
  TIERING_EXPECT(static_cast<int64_t>(checksums.size()) == images, "checksums: expected an array for each of ", images,
                 " images, found ", checksums.size());
  for (int64_t image = 0; image < images; ++image) {
    const int64_t wanted = geometry.units_of(image, units) * (geometry.unit_bytes / geometry.page_bytes);
    const auto found = static_cast<int64_t>(checksums[image].size());
    TIERING_EXPECT(found >= wanted, "checksums: expected ", wanted, " for image ", image, ", found ", found);
  }
}

int64_t damaged_page(const PageChecksums& checksums, const SsdGeometry& geometry, const Read& read,
                     const std::byte* data) noexcept {
  if (checksums.empty()) return kNoPage;
  const auto& known = checksums[read.image];
  for (int64_t at = 0; at < read.need; at += geometry.page_bytes) {
    const int64_t page = (read.offset + at) / geometry.page_bytes;
    if (page_hash(data + at, static_cast<size_t>(geometry.page_bytes)) != known[page])
      return page * geometry.num_images + read.image;
  }
  return kNoPage;
}

}  // namespace tiering
