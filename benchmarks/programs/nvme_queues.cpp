// Random reads of 4 KiB through NVMe queues, by one thread of the host from one controller made of software.
//
// nvme_queues WHAT MEDIUM IMAGE DEPTH SECONDS prints reads per second. WHAT: queues (DEPTH in flight), alone (one after
// the other) or plain (no queues: a loop of pread, or of copies). MEDIUM: direct or cached (the image, past or through the
// page cache) or memory (the image, copied into memory before).
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <tiering/nvme/soft_controller.hpp>
#include <utility>

using namespace tiering;
using namespace tiering::nvme;

namespace {

constexpr uint32_t kBytes = 4096;

/// An image in memory: what the queues cost where the medium costs next to nothing.
class Memory final : public ReadEngine {
 public:
  explicit Memory(const std::byte* data) : data_(data) {}
  const char* name() const noexcept override { return "memory"; }
  void start(std::span<const Read> reads, ReadSink& sink) override {
    reads_ = reads;
    sink_ = &sink;
  }
  void finish() override {
    auto reads = std::exchange(reads_, {});
    for (size_t base = 0;;) {
      for (size_t i = 0; i < reads.size(); ++i) {
        std::memcpy(reads[i].into, data_ + reads[i].offset, reads[i].need);
        sink_->ready(base + i, reads[i].into);
      }
      base += reads.size();
      reads = sink_->more(true);
      if (reads.empty()) return;
    }
  }
  void abandon() noexcept override { reads_ = {}; }

 private:
  const std::byte* data_;
  std::span<const Read> reads_;
  ReadSink* sink_ = nullptr;
};

double seconds_now() { return static_cast<double>(HostLink::nanoseconds()) * 1e-9; }

/// Calls one() with random pages for so long; the calls per second.
template <typename One>
double rate(double seconds, int64_t pages, One&& one) {
  std::mt19937_64 random(1);
  const double start = seconds_now();
  int64_t calls = 0;
  do {
    for (int i = 0; i < 64; ++i, ++calls) one(static_cast<int64_t>(random() % static_cast<uint64_t>(pages)));
  } while (seconds_now() < start + seconds);
  return static_cast<double>(calls) / (seconds_now() - start);
}

struct Agent {
  Agent(const ImageFile& image, uint32_t in_flight, const MediumMaker& medium)
      : layout{nullptr, QueueMemory::depth_for(in_flight), kBytes},
        memory(std::make_shared<SharedMemory>(layout.bytes())),
        free_ids(layout.depth),
        commands(layout.depth),
        most(in_flight) {
    layout.begin = memory->buffer.data();
    pair = layout.pair();
    books = {free_ids.data(), commands.data()};
    reset(pair, books);
    const std::span<std::byte> all{layout.begin, layout.bytes()};
    controller = std::make_unique<SoftController>(image, std::vector{pair}, std::vector{all},
                                                  std::vector<std::shared_ptr<void>>{memory}, medium);
  }

  void submit(int64_t page) {
    const uint32_t number = books.submitted + written++;
    write_command(pair, books, number, 0,
                  {.block = static_cast<uint64_t>(page) * kBytes / controller->block_bytes(),
                   .blocks = kBytes / controller->block_bytes(),
                   .into = layout.prps(place_of(pair, books, number), kBytes)});
  }
  void ring() {
    if (written > 0) ring_submitted<HostLink>(pair, books, std::exchange(written, 0));
  }
  /// Takes what has arrived, at least one.
  void reap() {
    uint32_t count = 0, word;
    for (uint32_t tries = 0; count == 0; wait(tries++))
      for (; count < books.flying() && arrived<HostLink>(pair, books.reaped + count, word); ++count)
        if (take(pair, books, books.reaped + count, word).status != kSuccess) {
          std::fprintf(stderr, "a read failed: %s\n", controller->trouble().c_str());
          std::exit(1);
        }
    ring_reaped<HostLink>(pair, books, count);
  }
  static void wait(uint32_t tries) {
    if (tries < 512)
      HostLink::pause(tries);
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  void drain() {
    ring();
    while (books.flying() > 0) reap();
  }
  /// As many in flight as may be; the doorbell rings when none fits any more, and a quarter is then waited for.
  double many(double seconds, int64_t pages) {
    const double reads = rate(seconds, pages, [&](int64_t page) {
      if (books.flying() + written == most) {
        ring();
        while (books.flying() > most * 3 / 4) reap();
      }
      submit(page);
    });
    drain();
    return reads;
  }
  double alone(double seconds, int64_t pages) {
    return rate(seconds, pages, [&](int64_t page) {
      submit(page);
      drain();
    });
  }

  QueueMemory layout;
  std::shared_ptr<SharedMemory> memory;
  std::vector<uint16_t> free_ids;
  std::vector<InFlight> commands;
  uint32_t most;
  uint32_t written = 0;
  QueuePair pair;
  QueueBooks books;
  std::unique_ptr<SoftController> controller;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string what = argv[1], medium = argv[2];
  const auto depth = static_cast<uint32_t>(std::stoi(argv[4]));
  const double seconds = std::stod(argv[5]);
  const ImageFile image(argv[3], medium == "direct" ? DirectMode::automatic : DirectMode::off);
  const int64_t pages = image.bytes() / kBytes;
  std::vector<std::byte> copy;
  if (medium == "memory") {
    copy.resize(static_cast<size_t>(image.bytes()));
    if (pread(image.fd(), copy.data(), copy.size(), 0) != image.bytes()) return 1;
  }
  double reads;
  if (what == "plain") {
    const AlignedBuffer into(kBytes);
    reads = rate(seconds, pages, [&](int64_t page) {
      if (!copy.empty())
        std::memcpy(into.data(), copy.data() + page * kBytes, kBytes);
      else if (pread(image.fd(), into.data(), kBytes, page * kBytes) != kBytes)
        std::exit(1);
    });
  } else {
    const MediumMaker from_memory = [&](const ImageSet&) { return std::make_unique<Memory>(copy.data()); };
    Agent agent(image, depth, copy.empty() ? usual_medium(static_cast<int>(depth), kBytes) : from_memory);
    reads = what == "alone" ? agent.alone(seconds, pages) : agent.many(seconds, pages);
  }
  std::printf("%.1f\n", reads);
}
