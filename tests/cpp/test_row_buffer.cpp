// The buffer in front of the ssd tier, whose feeder, gatherer and readers run at once. Run under ASan/UBSan and TSan.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <tiering/lookahead/row_buffer.hpp>

#include "ssd_tables.hpp"
#include "temp_dir.hpp"

namespace fs = std::filesystem;
using namespace tiering;
using namespace tiering::test;

namespace {

/// A buffer over images in files.
class Fixture {
 public:
  Fixture(const SsdRows& rows, const std::vector<SlotPool>& pools, const BufferOptions& options, bool checked)
      : disk_(rows, 7), arena_(arena_bytes(pools)) {
    const auto page_bytes = static_cast<size_t>(rows.tables().front().geometry.page_bytes);
    for (size_t k = 0; k < disk_.image.size(); ++k) {
      paths.push_back((dir_.path() / ("image-" + std::to_string(k))).string());
      restore(k);
      sums_.emplace_back(disk_.image[k].size() / page_bytes);
      page_hashes(disk_.image[k], page_bytes, sums_.back());
    }
    const PageChecksums sums = checked ? PageChecksums(sums_.begin(), sums_.end()) : PageChecksums();
    buffer.emplace(rows, pools, paths, DirectMode::automatic, options, sums, arena_.data());
  }

  /// Writes an image as it was, into the same file.
  void restore(size_t image) const {
    std::fstream file(paths[image], std::ios::binary | std::ios::in | std::ios::out);
    if (!file) file.open(paths[image], std::ios::binary | std::ios::out);
    file.write(reinterpret_cast<const char*>(disk_.image[image].data()),
               static_cast<std::streamsize>(disk_.image[image].size()));
    CHECK(file.good());
  }

  /// An epoch with a thread that feeds; `takers` threads gather the batches in turn up to batch `upto`, or until an
  /// error, which it returns.
  std::string run(const std::vector<Batch>& batches, size_t upto, int64_t window, int64_t horizon, int64_t gap,
                  size_t takers = 1) {
    buffer->begin(window, horizon, gap, takers > 1);
    std::thread feeder([&] {
      for (const Batch& batch : batches)
        if (!buffer->add(batch)) return;
      buffer->end();
    });
    std::thread filler([&] {
      if (buffer->filled_by_caller()) fill();
    });
    std::vector<std::string> errors(takers);
    std::vector<std::thread> others;
    auto take = [&](size_t taker) {
      try {
        for (size_t b = taker; b < std::min(upto, batches.size()); b += takers) check_batch(batches[b], b);
      } catch (const IoError& found) {
        errors[taker] = found.what();
      }
    };
    for (size_t taker = 1; taker < takers; ++taker) others.emplace_back(take, taker);
    take(0);
    for (std::thread& taker : others) taker.join();
    std::thread other([&] { buffer->stop(); });  // anybody may
    buffer->stop();
    feeder.join();
    filler.join();
    buffer->cancel();
    other.join();
    return errors[0];
  }

  std::optional<RowBuffer> buffer;
  std::vector<std::string> paths;

 private:
  static size_t arena_bytes(const std::vector<SlotPool>& pools) {
    int64_t bytes = 1;
    for (const SlotPool& pool : pools) bytes += pool.row_bytes * pool.slots;
    return static_cast<size_t>(bytes);
  }

  /// What a caller does who reads rows by himself.
  void fill() {
    for (auto next = buffer->next_fill(); !next.rows.empty(); next = buffer->next_fill())
      for (size_t i = 0; i < next.rows.size(); ++i) {
        const auto row = buffer->rows().first(next.table) + static_cast<size_t>(next.rows[i]);
        std::copy(disk_.truth[row].begin(), disk_.truth[row].end(),
                  arena_.data() + buffer->slots().offset(next.slots[i]));
      }
  }

  void check_batch(const Batch& batch, size_t number) {
    std::vector<bool> arrived(batch.size(), false);
    for (int64_t k = 0, last = 0; !last; ++k) {
      const auto part = buffer->wait(static_cast<int64_t>(number), k);
      last = part.last;
      for (size_t i = 0; i < part.slots.size(); ++i) {
        const size_t place = part.places.empty() ? i : part.places[i];
        const Bytes& row = disk_.truth[batch[place]];
        CHECK(!arrived[place]);
        arrived[place] = true;
        CHECK(std::memcmp(buffer->slots().slot(part.slots[i]), row.data(), row.size()) == 0);
      }
      buffer->release(static_cast<int64_t>(number), k);
    }
    CHECK(std::find(arrived.begin(), arrived.end(), false) == arrived.end());
  }

  TempDir dir_;
  Disk disk_;

  AlignedBuffer arena_;
  std::vector<std::vector<uint32_t>> sums_;
};

void test_buffers(const std::string& engine) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    Random random(seed);
    const SsdRows rows = random_rows(random);
    std::vector<Batch> batches(static_cast<size_t>(1 + below(random, 20)));
    for (Batch& batch : batches) batch = random_batch(random, rows, 40);
    const auto pools = fitting_pools(random, rows, batches, 20);
    const BufferOptions options{
        .engine = engine, .depth = static_cast<int>(1 + below(random, 8)), .max_read = random() % 2 ? 1 : 65536};
    Fixture fixture(rows, pools, options, random() % 2 == 0);
    int64_t taken = 0;
    for (int epoch = 0; epoch < 5; ++epoch) {
      const size_t upto = epoch % 2 == 0 ? batches.size() : static_cast<size_t>(below(random, 21));
      CHECK(fixture.run(batches, upto, 1 + below(random, 4), below(random, 5), below(random, 3) * 5000, 1 + seed % 3)
                .empty());
      taken += static_cast<int64_t>(std::min(upto, batches.size()));
    }
    const BufferCounters counters = fixture.buffer->counters();
    CHECK(counters.batches == taken && counters.missed <= counters.needed);
    CHECK(fixture.buffer->engine_name() == engine);
    CHECK(engine != "bam" || (counters.reads > 0) == (counters.missed > 0));
  }
}

/// An image that ends too early, a page that is damaged: an error in the loop, and the next epoch is right.
void test_faults(const std::string& engine) {
  const SsdRows rows = make_rows({{200, 512}, {40, 5732}}, 4096, 2, 1);
  Random random(3);
  std::vector<Batch> batches(10);
  for (Batch& batch : batches) batch = random_batch(random, rows, 60);
  const auto pools = fitting_pools(random, rows, batches, 5);
  Fixture fixture(rows, pools, {.engine = engine, .depth = 3}, true);
  for (int round = 0; round < 5; ++round) {
    fs::resize_file(fixture.paths[1], 5000);
    CHECK(fixture.run(batches, 10, 2, 2, 0).find("ends at byte 5000") != std::string::npos);
    fixture.restore(1);
    {
      std::fstream file(fixture.paths[0], std::ios::binary | std::ios::in | std::ios::out);
      for (int64_t page = 1; page < 20; ++page) file.seekp(page * 4096 + 7).put('!').put('?');
    }
    CHECK(fixture.run(batches, 10, 2, 2, 0).find("is damaged") != std::string::npos);
    CHECK(fixture.buffer->bad_page() > 0 && fixture.buffer->bad_page() % 2 == 0);
    fixture.restore(0);
    CHECK(fixture.run(batches, 10, 2, 2, 0).empty());
    CHECK(fixture.buffer->bad_page() == kNoPage);
  }
}

}  // namespace

int main() {
  test_buffers("bam");
  std::vector<std::string> engines{"threads"};
  if (uring_unavailable().empty()) engines.push_back("io_uring");
  for (const auto& engine : engines) {
    test_buffers(engine);
    test_faults(engine);
  }
  std::cout << "test_row_buffer: ok\n";
  return 0;
}
