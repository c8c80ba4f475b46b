// Approach:   a lane per row asks for the row's page; when the pages of a warp are there, its lanes copy one row after
//             the other together, so that an access across the link is as long as it can be.
// Launch:     a warp for each pair of queues, since more would wait for these.
#include <algorithm>
#include <string>
#include <tiering/cuda/launch.hpp>
#include <tiering/cuda/nvme_warp.cuh>
#include <tiering/cuda/page_rows.hpp>
#include <tiering/errors.hpp>

namespace tiering::cuda {
namespace {

constexpr int kThreads = 32;

template <typename Word>
TIERING_DEVICE void copy_words(std::byte* into, const std::byte* from, uint32_t bytes, uint32_t lane) {
  for (uint32_t at = lane * sizeof(Word); at < bytes; at += WholeWarp::kLanes * sizeof(Word))
    *reinterpret_cast<Word*>(into + at) = *reinterpret_cast<const Word*>(from + at);
}

/// By all lanes of a warp, in words as wide as addresses allow.
TIERING_DEVICE void copy_row(std::byte* into, const std::byte* from, uint32_t bytes, uint32_t lane) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(into) | reinterpret_cast<uintptr_t>(from) | bytes;
  if (bits % sizeof(uint4) == 0)
    copy_words<uint4>(into, from, bytes, lane);
  else if (bits % sizeof(unsigned) == 0)
    copy_words<unsigned>(into, from, bytes, lane);
  else
    copy_words<unsigned char>(into, from, bytes, lane);
}

/// Reads the rows from `base` on, one for each lane.
TIERING_DEVICE void read_some(const WholeWarp& warp, const NvmeQueues& queues, const PageRows& rows, int64_t base) {
  const int64_t row = base + warp.lane();
  const bool inside = row < rows.count;
  const uint64_t page = inside ? rows.pages[row] : 0;
  const uint32_t offset = inside ? rows.offsets[row] : 0;
  const bool fits = offset <= rows.page_bytes - rows.row_bytes;
  PageResult result;
  if (!fits) result.status = nvme::kInvalidField;
  for (uint32_t image = 0; image < queues.images; ++image) {
    PageWish wish;
    wish.image = image;
    wish.page_bytes = rows.page_bytes;
    wish.wanted = inside && fits && page % queues.images == image;
    wish.page = page / queues.images;
    const PageResult found = read_pages(warp, queues, wish, [&](const std::byte* data) {
      const uint64_t own = data == nullptr ? 0 : reinterpret_cast<uint64_t>(data + offset);
      for (uint32_t lane = 0; lane < WholeWarp::kLanes; ++lane)
        if (const uint64_t from = warp.shuffle(own, lane); from != 0)
          copy_row(rows.out + (base + lane) * rows.row_bytes, reinterpret_cast<const std::byte*>(from), rows.row_bytes,
                   warp.lane());
    });
    if (wish.wanted) result = found;
  }
  if (inside) rows.failures[row] = result.code();
}

__global__ void __launch_bounds__(kThreads) read_rows(const NvmeQueues queues, const PageRows rows) {
  const WholeWarp warp;
  for (int64_t base = first_item() - warp.lane(); base < rows.count; base += item_stride())
    read_some(warp, queues, rows, base);
}

}  // namespace

void read_rows_in_kernel(const NvmeQueues& queues, const PageRows& rows, cudaStream_t stream) {
  TIERING_EXPECT(
      rows.page_bytes > 0 && rows.page_bytes <= queues.place_bytes && rows.page_bytes % queues.block_bytes == 0,
      "page_bytes: expected whole blocks of " + std::to_string(queues.block_bytes) + " bytes, up to " +
          std::to_string(queues.place_bytes) + ", found " + std::to_string(rows.page_bytes));
  TIERING_EXPECT(rows.row_bytes > 0 && rows.row_bytes <= rows.page_bytes,
                 "row_bytes: expected 1 to the " + std::to_string(rows.page_bytes) + " of a page, found " +
                     std::to_string(rows.row_bytes));
  const int64_t blocks = std::min((rows.count + kThreads - 1) / kThreads, int64_t{queues.count()});
  if (blocks > 0) launch("reading rows from SSD in a kernel", read_rows, blocks, kThreads, stream, queues, rows);
}

}  // namespace tiering::cuda
