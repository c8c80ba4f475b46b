// Engines and gather against a verifier by another method: rows are placed one at a time by the format's
// rule, and expected rows are copied one at a time. Run under ASan/UBSan and TSan.
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <thread>
#include <tiering/io/gather.hpp>

#include "temp_dir.hpp"

namespace fs = std::filesystem;
using namespace tiering;
using tiering::test::TempDir;

namespace {

using Bytes = std::vector<std::byte>;

struct Shape {
  int64_t rows = 200;
  int64_t row_bytes = 512;
  int64_t page_bytes = 4096;
  int64_t images = 1;
  int64_t first_unit = 0;
  int64_t unit_pages = 1;  ///< more where a row needs more
  TierRanges ranges{10, 31, 60, 200};
};

/// A table on disk and in memory, and its rows as they are.
class Fixture {
 public:
  Fixture(const Shape& shape, const std::string& engine, int depth, DirectMode mode, bool map = false) : shape_(shape) {
    std::mt19937_64 random(7);
    truth_.resize(static_cast<size_t>(shape.rows * shape.row_bytes));
    for (auto& byte : truth_) byte = static_cast<std::byte>(random());
    table.rows = RowWriter(shape.row_bytes);
    table.ranges = shape.ranges;
    place_memory();
    place_images();
    reader.emplace(ImageSet::open(paths_, mode), EngineOptions{depth, 64 << 10}, engine, map);
    table.reader = &*reader;
  }

  const std::byte* truth(int64_t rank) const { return truth_.data() + rank * shape_.row_bytes; }
  const std::vector<std::string>& paths() const { return paths_; }

  void expect_rows(const std::vector<int64_t>& ids, const std::byte* out) const {
    for (size_t i = 0; i < ids.size(); ++i)
      CHECK(std::memcmp(out + i * static_cast<size_t>(shape_.row_bytes), truth(ids[i]),
                        static_cast<size_t>(shape_.row_bytes)) == 0);
  }

  TieredTable table;
  std::optional<SsdReader> reader;

 private:
  void place_memory() {
    table.memory.gpu = truth(0);
    table.memory.cpu = truth(shape_.ranges.peer_end);
    peers_.resize(2);
    for (int64_t rank = shape_.ranges.gpu_end; rank < shape_.ranges.peer_end; ++rank) {
      Bytes& peer = peers_[static_cast<size_t>((rank - shape_.ranges.gpu_end) % 2)];
      peer.insert(peer.end(), truth(rank), truth(rank) + shape_.row_bytes);
    }
    for (const auto& peer : peers_) table.memory.peers.push_back(peer.data());
  }

  void place_images() {
    const int64_t page = shape_.page_bytes, stride = (shape_.row_bytes + 3) / 4 * 4;
    const int64_t unit = std::max(shape_.unit_pages, (stride + page - 1) / page) * page, per_unit = unit / stride;
    table.ssd = {shape_.first_unit, stride, per_unit, unit, page, shape_.images};
    const int64_t rows = shape_.rows - shape_.ranges.cpu_end;
    const int64_t units = shape_.first_unit + (rows + per_unit - 1) / per_unit;
    Bytes logical(static_cast<size_t>(units * unit));
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(logical.data() + (shape_.first_unit + i / per_unit) * unit + i % per_unit * stride,
                  truth(shape_.ranges.cpu_end + i), static_cast<size_t>(shape_.row_bytes));
    for (int64_t k = 0; k < shape_.images; ++k) {
      paths_.push_back((dir_.path() / ("ssd-" + std::to_string(k))).string());
      std::ofstream file(paths_.back(), std::ios::binary);
      for (int64_t u = k; u < units; u += shape_.images)
        file.write(reinterpret_cast<const char*>(logical.data() + u * unit), unit);
    }
  }

  Shape shape_;
  TempDir dir_;
  Bytes truth_;
  std::vector<Bytes> peers_;
  std::vector<std::string> paths_;
};

std::vector<std::string> engines() {
  std::vector<std::string> found{"threads"};
  const std::string reason = uring_unavailable();
  if (reason.empty())
    found.insert(found.begin(), "io_uring");
  else
    std::cerr << "io_uring is skipped: " << reason << "\n";
  return found;
}

std::vector<int64_t> random_ids(int64_t rows, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> ids(count);
  for (auto& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
  return ids;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

constexpr SsdGeometry kPacked{3, 1536, 5, 8192, 4096, 2}, kSpanning{1, 6144, 0, 4096, 4096, 1};
static_assert(kPacked.place(8).image == 0 && kPacked.place(8).offset == 2 * 8192 + 3 * 1536);
static_assert(kPacked.image_of(5) == 1 && kPacked.image_offset(5) == 2 * 4096);
static_assert(kPacked.sound(1536) && !kPacked.sound(1537) && kPacked.end_unit(11) == 6);
static_assert(kSpanning.place(2).offset == 4096 + 2 * 6144 && kSpanning.end_unit(2) == 4);
static_assert(!SsdGeometry{1, 6144, 0, 4096, 4096, 2}.sound(6144));

void test_rows(const std::string& engine) {
  for (const int64_t row_bytes : {1, 40, 512, 2408, 4096, 5732})
    for (const int64_t images : {1, 3})
      for (const auto& [page_bytes, unit_pages] : {std::pair{512, 1}, {512, 16}, {4096, 1}, {4096, 4}})
        for (const auto mode : {DirectMode::automatic, DirectMode::off}) {
          const Shape shape{.row_bytes = row_bytes,
                            .page_bytes = page_bytes,
                            .images = images,
                            .first_unit = 2,
                            .unit_pages = unit_pages};
          Fixture fixture(shape, engine, 5, mode);
          const auto ids = random_ids(200, 350, 1);
          const AlignedBuffer out(ids.size() * static_cast<size_t>(row_bytes));
          const GatherStats stats = gather(fixture.table, ids, out.data(), 2);
          fixture.expect_rows(ids, out.data());
          CHECK(stats.rows[0] + stats.rows[1] + stats.rows[2] + stats.rows[3] == 350);
          CHECK(stats.reads > 0 && stats.read_bytes >= stats.reads);
        }
}

/// Rows that the page cache has, because the images were just written, by a team; an image that was cut is read.
void test_mapped(const std::string& engine) {
  for (const int64_t row_bytes : {1, 512, 2408, 5732})
    for (const int64_t images : {1, 3}) {
      const Shape shape{.row_bytes = row_bytes, .images = images, .first_unit = 2};
      Fixture fixture(shape, engine, 5, DirectMode::automatic, true);
      const auto ids = random_ids(200, 3000, 4);
      const AlignedBuffer out(ids.size() * static_cast<size_t>(row_bytes));
      CHECK(gather(fixture.table, ids, out.data(), 4).reads == 0);
      fixture.expect_rows(ids, out.data());
      fs::resize_file(fixture.paths().back(), 512);
      CHECK(message_of([&] { gather(fixture.table, ids, out.data(), 4); }).find("ends at byte 512") !=
            std::string::npos);
    }
}

/// Memory copies by a team while reads are in flight: enough bytes that the team really forms.
void test_team(const std::string& engine) {
  Fixture fixture({.row_bytes = 4096}, engine, 8, DirectMode::automatic);
  const auto ids = random_ids(200, 3000, 2);
  const AlignedBuffer out(ids.size() * 4096);
  gather(fixture.table, ids, out.data(), 4);
  fixture.expect_rows(ids, out.data());
}

/// Rows that are decoded where they land, and from memory by a team meanwhile.
void test_decoded(const std::string& engine) {
  const RowCodec codec{Encoding::float16, Encoding::float32, 1024};
  Fixture fixture({.row_bytes = codec.stored_bytes(), .images = 3, .unit_pages = 3}, engine, 8, DirectMode::automatic);
  fixture.table.rows = RowWriter(codec);
  const auto ids = random_ids(200, 3000, 3);
  const auto bytes = static_cast<size_t>(codec.out_bytes());
  const AlignedBuffer out(ids.size() * bytes);
  CHECK(gather(fixture.table, ids, out.data(), 4).direct_reads == 0);
  Bytes expected(bytes);
  for (size_t i = 0; i < ids.size(); ++i) {
    row_loop(codec.stored, codec.delivered, true)(codec, fixture.truth(ids[i]), expected.data());
    CHECK(std::memcmp(out.data() + i * bytes, expected.data(), bytes) == 0);
  }
}

void test_callers_take_turns(const std::string& engine) {
  Fixture fixture({.row_bytes = 1024, .images = 2}, engine, 3, DirectMode::automatic);
  std::vector<std::thread> callers;
  for (uint64_t c = 0; c < 4; ++c)
    callers.emplace_back([&fixture, c] {
      for (uint64_t round = 0; round < 5; ++round) {
        const auto ids = random_ids(200, 60, 10 * c + round);
        Bytes out(ids.size() * 1024);
        gather(fixture.table, ids, out.data(), 1);
        fixture.expect_rows(ids, out.data());
      }
    });
  for (auto& caller : callers) caller.join();
}

/// A read past the end is an error with path and place, and the engine works afterwards.
void test_truncated(const std::string& engine) {
  Fixture fixture({.row_bytes = 4096}, engine, 2, DirectMode::automatic);
  fs::resize_file(fixture.paths()[0], 100 * 4096);
  std::vector<int64_t> ids(140);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 199 - static_cast<int64_t>(i);
  const AlignedBuffer out(ids.size() * 4096);
  const auto text = message_of([&] { gather(fixture.table, ids, out.data(), 1); });
  CHECK(text.find(fixture.paths()[0] + ": ends at byte 409600") == 0);
  const std::vector<int64_t> good{0, 60, 61, 159, 30};
  gather(fixture.table, good, out.data(), 1);
  fixture.expect_rows(good, out.data());
}

class CountingSink final : public ReadSink {
 public:
  void ready(size_t, const std::byte*) noexcept override { ++count; }
  std::atomic<int> count{0};
};

void test_abandon(const std::string& engine) {
  Fixture fixture({.row_bytes = 4096}, engine, 2, DirectMode::automatic);
  std::vector<Read> reads;
  for (int64_t page = 0; page < 100; ++page) reads.push_back({page * 4096, 4096, 4096, 0, nullptr});
  for (int round = 0; round < 20; ++round) {
    CountingSink sink;
    fixture.reader->engine().start(reads, sink);
    fixture.reader->engine().abandon();
    const int seen = sink.count;
    CHECK(seen <= 100);
    fixture.reader->engine().start(reads, sink);
    fixture.reader->engine().finish();
    CHECK(sink.count == seen + 100);
  }
}

}  // namespace

int main() {
  for (const auto& engine : engines()) {
    test_rows(engine);
    test_mapped(engine);
    test_team(engine);
    test_decoded(engine);
    test_callers_take_turns(engine);
    test_truncated(engine);
    test_abandon(engine);
  }
  std::cout << "test_io: ok\n";
  return 0;
}
