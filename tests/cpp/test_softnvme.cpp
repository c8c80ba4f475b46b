// The engine softnvme: reads of images through NVMe queues and controllers made of software, and everything that may go
// wrong below it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <tiering/nvme/softnvme_engine.hpp>
#include <vector>

#include "check.hpp"
#include "nvme_medium.hpp"

using namespace tiering;
using namespace tiering::nvme;

namespace {

constexpr int64_t kBytes = 4 << 20;
// It neither sees what the kernel writes nor lets a forked child have threads.
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

/// Compares what arrives with the file, and counts it.
class Comparison final : public ReadSink {
 public:
  explicit Comparison(const NumberedFile& file, std::vector<Read> reads)
      : file_(file), reads_(std::move(reads)), times_(reads_.size()) {}

  std::span<const Read> reads() const { return reads_; }
  void ready(size_t index, const std::byte* data) noexcept override {
    const Read& read = reads_[index];
    CHECK(std::memcmp(data, file_.data() + read.offset, read.need) == 0);
    ++times_[index];
  }
  size_t arrived() const { return static_cast<size_t>(std::accumulate(times_.begin(), times_.end(), 0)); }
  bool once() const {
    return std::all_of(times_.begin(), times_.end(), [](int times) { return times == 1; });
  }

 private:
  const NumberedFile& file_;
  std::vector<Read> reads_;
  std::vector<int> times_;
};

std::vector<Read> some_reads(size_t count, uint32_t images, uint32_t most_bytes, int64_t bytes = kBytes) {
  std::mt19937 random(11);
  std::vector<Read> reads;
  for (size_t i = 0; i < count; ++i) {
    const auto length = static_cast<uint32_t>(512 * (1 + random() % (most_bytes / 512)));
    const int64_t offset = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes / 512)) * 512;
    const auto need = static_cast<uint32_t>(std::min<int64_t>(length, bytes - offset));
    reads.push_back({offset, length, need, static_cast<uint32_t>(i) % images, nullptr});
  }
  return reads;
}

ImageSet images_of(const NumberedFile& file, int images) {
  ImageSet set;
  for (int i = 0; i < images; ++i) set.add(file.image());
  return set;
}

/// The message of finish(); empty: no error.
std::string finish(ReadEngine& engine) {
  try {
    engine.finish();
  } catch (const IoError& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

void test_reads(const MediumMaker& medium, int64_t bytes) {
  const NumberedFile file(bytes);
  const ImageSet images = images_of(file, 2);
  const EngineOptions options{.depth = 24, .max_read = 64 << 10};
  const auto engine = make_softnvme_engine(images, options, medium);
  for (int batch = 0; batch < 3; ++batch) {
    Comparison sink(file, some_reads(700, 2, 64 << 10, bytes));
    engine->start(sink.reads(), sink);
    engine->poll();
    engine->finish();
    CHECK(sink.once());
  }
  check_refused("max_read: expected at most 2097152",
                [&] { make_softnvme_engine(images, {.depth = 2, .max_read = 4 << 20}, medium); });
}

/// Slow, out of order: all arrive.
void test_slow() {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 2);
  const auto medium =
      harmful({.before_each = [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); }, .shuffled = true});
  const auto engine = make_softnvme_engine(images, {.depth = 16, .max_read = 4096}, medium);
  Comparison sink(file, some_reads(100, 2, 4096));
  engine->start(sink.reads(), sink);
  engine->finish();
  CHECK(sink.once());
}

/// A lost completion, a stalled thread: an error that says so, soon, and the next batch works, with queues of its own.
void test_no_answer(bool stalled) {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 1);
  const auto gate = std::make_shared<Gate>();
  const auto harm = std::make_shared<std::atomic<bool>>(true);
  const auto medium =
      harmful({.fate = [=](const Read&) { return !stalled && harm->exchange(false) ? Fate::lost : Fate::arrives; },
               .before_each =
                   [=] {
                     if (stalled && harm->exchange(false)) gate->wait();
                   }});
  const auto engine =
      make_softnvme_engine(images, {.depth = 8, .max_read = 4096}, medium, std::chrono::milliseconds(50));
  Comparison sink(file, some_reads(40, 1, 4096));
  engine->start(sink.reads(), sink);
  const std::string message = finish(*engine);
  CHECK(contains(message, "image: ") && contains(message, "have not come back in 50 ms"));
  CHECK(sink.arrived() < 40);
  Comparison again(file, some_reads(40, 1, 4096));
  engine->start(again.reads(), again);
  CHECK(finish(*engine).empty() && again.once());
  gate->open();
}

/// The controller's thread ends by an error that no reading causes.
void test_dead() {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 1);
  const auto medium = harmful({.before_each = [] { throw std::runtime_error("out of everything"); }});
  const auto engine = make_softnvme_engine(images, {.depth = 8, .max_read = 4096}, medium);
  Comparison sink(file, some_reads(40, 1, 4096));
  engine->start(sink.reads(), sink);
  CHECK(contains(finish(*engine), "its controller has ended: out of everything"));
}

/// A read that fails: its place, status and cause; what was in flight has ended, nothing new was begun.
void test_failing() {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 1);
  std::vector<Read> reads = some_reads(4000, 1, 4096);
  reads[5] = {512, 512, 512, 0, nullptr};
  const auto medium =
      harmful({.fate = [](const Read& read) { return read.offset == 512 ? Fate::fails : Fate::arrives; }});
  const auto engine = make_softnvme_engine(images, {.depth = 8, .max_read = 4096}, medium);
  Comparison sink(file, reads);
  engine->start(sink.reads(), sink);
  const std::string message = finish(*engine);
  CHECK(contains(
      message, "image: reading 512 bytes at byte 512: NVMe status 0x281 (unrecovered read error): the medium failed"));
  CHECK(sink.arrived() < 4000);
  engine->start(sink.reads(), sink);
  engine->abandon();
}

/// The device goes away, or the file gets shorter, while it is read.
void test_removed() {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 1);
  const auto engine = make_softnvme_engine(images, {.depth = 8, .max_read = 4096}, usual_medium(8, 4096));
  Comparison sink(file, some_reads(40, 1, 4096));
  engine->start(sink.reads(), sink);
  engine->finish();
  CHECK(ftruncate(file.fd(), 4096) == 0);
  engine->start(sink.reads(), sink);
  const std::string message = finish(*engine);
  CHECK(contains(message, "NVMe status 0x281") && contains(message, "the file was truncated"));
}

/// Unwinding in the middle of a batch waits for what lands, and for no more.
void test_abandoned() {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 1);
  const auto engine = make_softnvme_engine(images, {.depth = 8, .max_read = 4096}, harmful({.shuffled = true}));
  Comparison sink(file, some_reads(4000, 1, 4096));
  engine->start(sink.reads(), sink);
  engine->abandon();
  CHECK(sink.arrived() <= 16);
  Comparison again(file, some_reads(100, 1, 4096));
  engine->start(again.reads(), again);
  engine->finish();
  CHECK(again.once());
}

/// A forked child forgets its parent's batch and reads by itself.
void test_fork() {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 1);
  const auto engine = make_softnvme_engine(images, {.depth = 8, .max_read = 4096}, usual_medium(8, 4096));
  Comparison sink(file, some_reads(100, 1, 4096));
  engine->start(sink.reads(), sink);
  const pid_t child = fork();
  if (child == 0) {
    if (!contains(finish(*engine), "begun by another process")) _exit(1);
    Comparison own(file, some_reads(100, 1, 4096));
    engine->start(own.reads(), own);
    _exit(finish(*engine).empty() && own.once() ? 0 : 2);
  }
  engine->finish();
  CHECK(sink.once());
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/// A process that is killed in the middle of its reads leaves nothing that others could stumble over.
void test_killed() {
  const NumberedFile file(kBytes);
  const ImageSet images = images_of(file, 2);
  for (int trial = 0; trial < 5; ++trial) {
    int begun[2];
    CHECK(pipe(begun) == 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto engine = make_softnvme_engine(images, {.depth = 64, .max_read = 4096}, usual_medium(64, 4096));
      for (bool told = false;; told = true) {
        Comparison sink(file, some_reads(500, 2, 4096));
        engine->start(sink.reads(), sink);
        if (!told && write(begun[1], "x", 1) != 1) _exit(1);
        engine->finish();
      }
    }
    char byte;
    CHECK(read(begun[0], &byte, 1) == 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(trial * 3));
    kill(child, SIGKILL);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(begun[0]);
    close(begun[1]);
    const auto engine = make_softnvme_engine(images, {.depth = 64, .max_read = 4096}, usual_medium(64, 4096));
    Comparison sink(file, some_reads(500, 2, 4096));
    engine->start(sink.reads(), sink);
    engine->finish();
    CHECK(sink.once());
  }
}

}  // namespace

int main() {
  test_reads(harmful({}), kBytes);
  test_reads(harmful({.shuffled = true}), kBytes + 1000);
  test_slow();
  test_no_answer(false);
  test_no_answer(true);
  test_dead();
  test_failing();
  test_abandoned();
  if (kThreadSanitizer) return 0;
  test_reads(usual_medium(24, 64 << 10), kBytes + 1000);
  test_removed();
  test_fork();
  test_killed();
}
