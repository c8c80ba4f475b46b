// Warps that read pages in the middle of what they do. How lanes work together is tested with warps of host threads,
// whose lanes are threads that meet; then the kernel that reads rows, on a device. Without one it is skipped (exit 77).
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/nvme_reads.hpp>
#include <tiering/cuda/nvme_warp.hpp>
#include <tiering/cuda/page_rows.hpp>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <tiering/nvme/softnvme_engine.hpp>
#include <vector>

#include "../cpp/check.hpp"
#include "device.hpp"
#include "nvme_images.hpp"

using namespace tiering;
using namespace tiering::test;
using nvme::Outcome;

namespace {

constexpr uint32_t kLanes = 8, kPage = 4096;
constexpr auto kLong = std::chrono::seconds(30);
constexpr auto kSoon = std::chrono::milliseconds(300);  // more than what arrives takes, on a busy machine

/// What lanes that are threads share.
struct Meeting {
  std::barrier<> barrier{kLanes};
  std::array<uint64_t, kLanes> values{};
};

/// A warp of host threads, as one of its lanes sees it.
class ThreadWarp {
 public:
  using Link = nvme::HostLink;
  ThreadWarp(Meeting& meeting, uint32_t lane, int64_t number) : meeting_(meeting), lane_(lane), number_(number) {}

  uint32_t lane() const { return lane_; }
  int64_t number() const { return number_; }
  uint32_t ballot(bool yes) const {
    return lanes_where(yes, [](uint64_t value) { return value != 0; });
  }
  uint32_t match(uint64_t own) const {
    return lanes_where(own, [&](uint64_t value) { return value == own; });
  }
  uint64_t shuffle(uint64_t value, uint32_t from) const {
    uint64_t found = 0;
    meet(value, [&] { found = meeting_.values[from]; });
    return found;
  }
  void sync() const { meeting_.barrier.arrive_and_wait(); }
  bool try_lock(uint32_t& word) const {
    uint32_t free = 0;
    return std::atomic_ref(word).compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock(uint32_t& word) const { std::atomic_ref(word).store(0, std::memory_order_release); }

 private:
  template <typename Look>
  void meet(uint64_t value, Look&& look) const {
    meeting_.values[lane_] = value;
    sync();
    look();
    sync();
  }
  template <typename Holds>
  uint32_t lanes_where(uint64_t value, Holds&& holds) const {
    uint32_t lanes = 0;
    meet(value, [&] {
      for (uint32_t lane = 0; lane < kLanes; ++lane) lanes |= holds(meeting_.values[lane]) ? 1U << lane : 0;
    });
    return lanes;
  }

  Meeting& meeting_;
  uint32_t lane_;
  int64_t number_;
};

/// Pairs of queues of one image with everything in memory of the host.
struct HostQueues {
  HostQueues(const Images& images, uint32_t pairs, uint32_t depth, const TestMedium::Harm& harm,
             std::chrono::nanoseconds patience = kLong)
      : free_ids(pairs * depth), in_flight(pairs * depth), addresses(pairs * depth), queues(pairs) {
    nvme::QueueMemory layout{nullptr, depth, kPage};
    memory = std::make_shared<nvme::SharedMemory>(pairs * layout.bytes());
    layout.begin = memory->buffer.data();
    std::vector<nvme::QueuePair> served;
    for (uint32_t q = 0; q < pairs; ++q, layout.begin += layout.bytes()) {
      queues[q].pair = layout.pair();
      queues[q].books = {&free_ids[q * depth], &in_flight[q * depth]};
      queues[q].places = layout.place(0);
      queues[q].place_bytes = kPage;
      queues[q].addresses = &addresses[q * depth];
      for (uint32_t place = 0; place < depth; ++place)
        addresses[q * depth + place] = {reinterpret_cast<uint64_t>(layout.place(place))};
      reset(queues[q].pair, queues[q].books);
      served.push_back(queues[q].pair);
    }
    const std::span<std::byte> all{memory->buffer.data(), memory->size};
    controller = std::make_unique<nvme::SoftController>(images.set.images[0], served, std::vector{all},
                                                        std::vector<std::shared_ptr<void>>{memory}, harmful(harm));
    for (auto& queue : queues) {
      queue.block_bytes = controller->block_bytes();
      queue.blocks = controller->blocks();
    }
    view = {.queues = queues.data(),
            .images = 1,
            .per_image = pairs,
            .place_bytes = kPage,
            .block_bytes = 512,
            .patience = static_cast<uint64_t>(patience.count()),
            .abort = &abort};
  }
  uint32_t commands() const {
    uint32_t all = 0;
    for (const auto& queue : queues) all += queue.books.submitted;
    return all;
  }

  std::shared_ptr<nvme::SharedMemory> memory;
  std::vector<uint16_t> free_ids;
  std::vector<nvme::InFlight> in_flight;
  std::vector<cuda::PlaceAddress> addresses;
  std::vector<cuda::NvmeQueue> queues;
  uint32_t abort = 0;
  cuda::NvmeQueues view;
  std::unique_ptr<nvme::SoftController> controller;
};

using Wishes = std::array<int64_t, kLanes>;  // pages; below 0: none
using Results = std::array<cuda::PageResult, kLanes>;

/// One warp reads; every lane checks what it is given.
Results read(const Images& images, const HostQueues& queues, const Wishes& wishes, int64_t number = 0) {
  Meeting meeting;
  Results results;
  std::vector<std::thread> lanes;
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    lanes.emplace_back([&, lane] {
      const int64_t page = wishes[lane];
      int given = 0;
      const cuda::PageWish wish{0, kPage, page >= 0, static_cast<uint64_t>(page < 0 ? 0 : page)};
      results[lane] =
          cuda::read_pages(ThreadWarp(meeting, lane, number), queues.view, wish, [&](const std::byte* data) {
            if (data == nullptr) return;
            const auto bytes = std::min<int64_t>(kPage, images.bytes - page * kPage);
            CHECK(std::memcmp(data, images.files[0]->data() + page * kPage, static_cast<size_t>(bytes)) == 0);
            ++given;
          });
      CHECK(given == (page >= 0 && results[lane].fine() ? 1 : 0));
    });
  for (std::thread& lane : lanes) lane.join();
  return results;
}

bool fine(const Results& results) {
  return std::all_of(results.begin(), results.end(), [](const auto& result) { return result.fine(); });
}

/// Lanes that want the same page share a command; lanes that want none take part; the last page is not whole.
void test_coalescing() {
  const Images images(1);
  HostQueues queues(images, 1, 16, {.shuffled = true});
  CHECK(fine(read(images, queues, {5, 5, 5, 5, 5, 5, 5, 5})) && queues.commands() == 1);
  CHECK(fine(read(images, queues, {1, 2, 1, 2, -1, 3, 0, 0})) && queues.commands() == 1 + 4);
  CHECK(fine(read(images, queues, {-1, -1, -1, -1, -1, -1, -1, -1})) && queues.commands() == 5);
  CHECK(fine(read(images, queues, {-1, -1, 256, 7, 6, 256, 4, 3})) && queues.commands() == 5 + 5);
}

/// More pages than a queue has room for; several warps that want the same pairs.
void test_crowded() {
  const Images images(1);
  HostQueues few(images, 1, 4, {.shuffled = true});
  for (int64_t round = 0; round < 4; ++round) CHECK(fine(read(images, few, {0, 1, 2, 3, 4, 5, 6 + round, 7})));
  HostQueues queues(images, 2, 8, {.shuffled = true});
  std::vector<std::thread> warps;
  std::atomic<uint32_t> different = 0;
  for (uint32_t warp = 0; warp < 3; ++warp)
    warps.emplace_back([&, warp] {
      std::mt19937 random(warp);
      for (int round = 0; round < 6; ++round) {
        Wishes wishes;
        for (auto& page : wishes) page = static_cast<int64_t>(random() % 12);
        CHECK(fine(read(images, queues, wishes, warp)));
        std::sort(wishes.begin(), wishes.end());
        different += static_cast<uint32_t>(std::unique(wishes.begin(), wishes.end()) - wishes.begin());
      }
    });
  for (std::thread& warp : warps) warp.join();
  CHECK(queues.commands() == different);
}

/// A page that cannot be read is told to those who want it; one that does not come back spoils the pair for all.
void test_faults() {
  const Images images(1);
  HostQueues queues(images, 2, 8,
                    {.fate =
                         [](const Read& r) {
                           return r.offset == kPage ? Fate::fails : r.offset == 9 * kPage ? Fate::lost : Fate::arrives;
                         }},
                    kSoon);
  Results results = read(images, queues, {1, 2, 1, 3, 3, 500, 4, -1});
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const bool bad = lane == 0 || lane == 2;
    CHECK(results[lane].outcome == Outcome::done);
    CHECK(results[lane].status == (bad         ? nvme::kUnrecoveredReadError
                                   : lane == 5 ? nvme::kLbaOutOfRange
                                               : nvme::kSuccess));
  }
  results = read(images, queues, {9, 2, 9, 2, 2, 2, 2, -1});
  CHECK(results[0].outcome == Outcome::late && results[2].outcome == Outcome::late);
  CHECK(results[1].fine() && results[7].fine() && queues.queues[0].spent == 1);
  CHECK(fine(read(images, queues, {1 + 1, 2, 3, 4, 5, 6, 7, 8})) && queues.queues[1].books.submitted == 7);
  queues.queues[1].spent = 1;
  CHECK(read(images, queues, {2, 2, 2, 2, 2, 2, 2, 2})[3].outcome == Outcome::late);
  HostQueues held(images, 1, 8, {}, kSoon);
  held.queues[0].held = 1;
  CHECK(read(images, held, {2, 2, 2, 2, 2, 2, 2, 2})[0].outcome == Outcome::late);
  held.queues[0].held = 0;
  CHECK(fine(read(images, held, {2, 2, 2, 2, 2, 2, 2, 2})));
}

/// The kernel on a device: rows of any length at any place of their pages, pages interleaved over images.
void test_rows(size_t num_images, uint32_t row_bytes, uint32_t page_bytes) {
  const Images images(num_images);
  cuda::NvmeReads reads(nvme::soft_server(harmful({.shuffled = true})), images.set,
                        {.per_image = 2, .in_flight = 15, .max_read = 8192});
  constexpr size_t kRows = 150;
  std::mt19937 random(row_bytes);
  const auto of_image = static_cast<uint64_t>(images.bytes / page_bytes);
  const cuda::PinnedMemory pages(kRows * 8), offsets(kRows * 4), failures(kRows * 4);
  const cuda::DeviceMemory out(static_cast<int64_t>(kRows * row_bytes));
  cuda::check(cudaMemsetAsync(out.data(), 0xee, kRows * row_bytes, reads.stream()), "clearing rows");
  std::vector<std::byte> expected(kRows * row_bytes, std::byte{0xee});
  for (size_t i = 0; i < kRows; ++i) {
    const uint64_t page = random() % (of_image * num_images);
    uint32_t offset = random() % (page_bytes - row_bytes + 1);
    if (i % 2 == 0) offset = offset / 16 * 16;
    pages.as<uint64_t>()[i] = i == 7 ? 1 << 30 : page;
    offsets.as<uint32_t>()[i] = i == 8 ? page_bytes - row_bytes + 1 : offset;
    if (i == 7 || i == 8) continue;
    const auto from = static_cast<int64_t>(page / num_images * page_bytes + offset);
    std::memcpy(expected.data() + i * row_bytes, images.files[page % num_images]->data() + from, row_bytes);
  }
  const cuda::PageRows rows{pages.as<uint64_t>(), offsets.as<uint32_t>(), kRows, row_bytes, page_bytes,
                            out.data(),           failures.as<uint32_t>()};
  cuda::read_rows_in_kernel(reads.queues(), rows, reads.stream());
  cuda::check(cudaStreamSynchronize(reads.stream()), "reading rows");
  std::vector<std::byte> found(expected.size());
  cuda::check(cudaMemcpy(found.data(), out.data(), found.size(), cudaMemcpyDefault), "looking at rows");
  CHECK(found == expected);
  for (size_t i = 0; i < kRows; ++i) {
    const uint32_t code = i == 7 ? nvme::kLbaOutOfRange : i == 8 ? nvme::kInvalidField : 0U;
    CHECK(failures.as<uint32_t>()[i] == code);
  }
  CHECK(reads.stop(kLong));
}

/// A page that does not come back: its row is left as it is and says so, and its pair of queues is not used any more.
void test_lost_row() {
  const Images images(1);
  const auto medium =
      harmful({.fate = [](const Read& read) { return read.offset == 9 * kPage ? Fate::lost : Fate::arrives; }});
  cuda::NvmeReads reads(nvme::soft_server(medium), images.set,
                        {.per_image = 2, .in_flight = 15, .max_read = kPage, .patience = kSoon});
  constexpr size_t kRows = 12;
  const cuda::PinnedMemory pages(kRows * 8), offsets(kRows * 4), failures(kRows * 4), out(kRows * 8);
  for (size_t i = 0; i < kRows; ++i) {
    pages.as<uint64_t>()[i] = i;
    offsets.as<uint32_t>()[i] = 8;
    out.as<uint64_t>()[i] = 77;
  }
  const cuda::PageRows rows{pages.as<uint64_t>(), offsets.as<uint32_t>(), kRows, 8, kPage,
                            out.data(),           failures.as<uint32_t>()};
  cuda::read_rows_in_kernel(reads.queues(), rows, reads.stream());
  cuda::check(cudaStreamSynchronize(reads.stream()), "reading rows");
  for (size_t i = 0; i < kRows; ++i) {
    const uint32_t lost = cuda::PageResult{Outcome::late, 0}.code();
    CHECK(failures.as<uint32_t>()[i] == (i == 9 ? lost : 0) && lost != 0);
    CHECK(out.as<uint64_t>()[i] == (i == 9 ? 77 : i * kPage / 8 + 1));
  }
  // A wave that is given to both pairs says so of the one that is spent.
  for (uint32_t i = 0; i < 2; ++i) CHECK(reads.add({0, kPage, kPage, 0, nullptr}, i));
  reads.submit();
  reads.wait();
  int done = 0;
  for (const cuda::NvmeResult& result : reads.take()) done += result.outcome == Outcome::done ? 1 : 0;
  CHECK(done == 1);
}

void test_refused() {
  const Images images(1);
  cuda::NvmeReads reads(nvme::soft_server(harmful({})), images.set, {.per_image = 1, .in_flight = 3, .max_read = 8192});
  auto read = [&](uint32_t row_bytes, uint32_t page_bytes) {
    cuda::read_rows_in_kernel(reads.queues(), {.row_bytes = row_bytes, .page_bytes = page_bytes}, reads.stream());
  };
  check_refused("found 12288", [&] { read(8, 12288); });
  check_refused("found 100", [&] { read(8, 100); });
  check_refused("row_bytes: expected 1 to the 4096", [&] { read(4097, 4096); });
}

}  // namespace

int main() {
  test_coalescing();
  test_crowded();
  test_faults();
  if (no_device("test_nvme_warp")) return kSkipped;
  test_rows(1, 512, 4096);
  test_rows(3, 100, 4096);
  test_rows(2, 1001, 8192);
  test_lost_row();
  test_refused();
  std::cout << "test_nvme_warp: ok\n";
  return 0;
}
