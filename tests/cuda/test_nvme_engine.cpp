// The engine whose commands the GPU submits: reads of images as every other engine reads them, and what may go wrong
// below it. Without a device it is skipped (exit 77).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <random>
#include <stdexcept>
#include <tiering/cuda/nvme_engine.hpp>
#include <tiering/nvme/softnvme_engine.hpp>
#include <vector>

#include "../cpp/check.hpp"
#include "device.hpp"
#include "nvme_images.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

/// Gives reads a few at a time, and compares what arrives with the files.
class Comparison final : public ReadSink {
 public:
  Comparison(const Images& images, std::vector<Read> reads, size_t at_once = 1000)
      : images_(images), reads_(std::move(reads)), times_(reads_.size()), at_once_(at_once) {}

  std::span<const Read> more(bool) noexcept override {
    const size_t count = std::min(at_once_, reads_.size() - given_);
    given_ += count;
    return {reads_.data() + given_ - count, count};
  }
  void ready(size_t index, const std::byte* data) noexcept override {
    CHECK(index < given_ && images_.same(reads_[index], data));
    ++times_[index];
  }
  bool once() const {
    return std::all_of(times_.begin(), times_.end(), [](int times) { return times == 1; });
  }
  size_t arrived() const { return static_cast<size_t>(std::count(times_.begin(), times_.end(), 1)); }

 private:
  const Images& images_;
  std::vector<Read> reads_;
  std::vector<int> times_;
  size_t at_once_, given_ = 0;
};

std::vector<Read> some_reads(const Images& images, size_t count, uint32_t most_bytes) {
  std::mt19937 random(most_bytes);
  std::vector<Read> reads;
  for (size_t i = 0; i < count; ++i) reads.push_back(images.random(random, most_bytes));
  return reads;
}

Read read_at(int64_t offset) { return {offset, 4096, 4096, 0, nullptr}; }

std::unique_ptr<ReadEngine> make_engine(const Images& images, const EngineOptions& options,
                                        const nvme::MediumMaker& medium,
                                        std::chrono::nanoseconds patience = nvme::kPatience) {
  return cuda::make_gpu_nvme_engine(nvme::soft_server(medium), images.set, options, patience);
}

/// The error of finish(), or none.
IoError finish(ReadEngine& engine) {
  try {
    engine.finish();
  } catch (const IoError& error) {
    return error;
  }
  return IoError(0, "");
}

bool says(const IoError& error, int code, const std::string& words) {
  return error.code() == code && std::string(error.what()).find(words) != std::string::npos;
}

/// Several batches, of any depth; reads come at once, or one by one, with looks in between.
void test_reads(int depth, size_t num_images, uint32_t most_bytes, size_t at_once, const nvme::MediumMaker& medium) {
  const Images images(num_images);
  const auto engine = make_engine(images, {.depth = depth, .max_read = most_bytes}, medium);
  for (const size_t count : {size_t{150}, size_t{1}, size_t{0}, size_t{90}}) {
    Comparison sink(images, some_reads(images, count, most_bytes), at_once);
    engine->start({}, sink);
    for (int look = 0; look < 50; ++look) engine->poll();
    engine->finish();
    CHECK(sink.once());
  }
}

/// A read that fails: the error says which and why, after the others have ended; the next batch works.
void test_failing() {
  const Images images(2);
  const auto engine = make_engine(
      images, {.depth = 16, .max_read = 4096},
      harmful({.fate = [](const Read& read) { return read.offset == 8192 ? Fate::fails : Fate::arrives; }}));
  Comparison failing(images, {read_at(0), read_at(4096), read_at(8192), read_at(12288)});
  engine->start({}, failing);
  CHECK(says(finish(*engine), EIO, "image 0: reading 4096 bytes at byte 8192: NVMe status 0x281") &&
        failing.arrived() == 3);
  Read past = read_at(images.bytes / 512 * 512);
  Comparison short_of(images, {past});
  engine->start({}, short_of);
  CHECK(finish(*engine).code() != 0 && short_of.arrived() == 0);
  Comparison sound(images, {read_at(0), read_at(4096)});
  engine->start({}, sound);
  CHECK(finish(*engine).code() == 0 && sound.once());
}

/// A lost completion, a stalled thread: an error that says so, soon, and the next batch works.
void test_no_answer(bool stalled) {
  const Images images(1);
  const auto gate = std::make_shared<Gate>();
  const auto harm = std::make_shared<std::atomic<bool>>(true);
  const auto medium = harmful({.fate = [=](const Read&) { return *harm && !stalled ? Fate::lost : Fate::arrives; },
                               .before_each =
                                   [=] {
                                     if (*harm && stalled) gate->wait();
                                   }});
  const auto engine = make_engine(images, {.depth = 16, .max_read = 4096}, medium, std::chrono::milliseconds(300));
  const auto begin = std::chrono::steady_clock::now();
  Comparison lost(images, {read_at(0), read_at(4096)});
  engine->start({}, lost);
  CHECK(says(finish(*engine), ETIMEDOUT, "image 0: reads have not come back in 300 ms") && lost.arrived() == 0);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  *harm = false;
  Comparison again(images, some_reads(images, 40, 4096));
  engine->start({}, again);
  CHECK(finish(*engine).code() == 0 && again.once());
  gate->open();
}

/// A controller whose thread has come to its end: an error that says why, before the patience ends.
void test_ended() {
  const Images images(2);
  const auto harm = std::make_shared<std::atomic<bool>>(true);
  const auto medium = harmful({.before_each = [=] {
    if (*harm) throw std::runtime_error("the medium is gone");
  }});
  const auto engine = make_engine(images, {.depth = 16, .max_read = 4096}, medium);
  Comparison lost(images, {read_at(0)});
  engine->start({}, lost);
  CHECK(says(finish(*engine), EIO, "image 0: its controller has ended: the medium is gone") && lost.arrived() == 0);
  *harm = false;
  Comparison again(images, some_reads(images, 40, 4096));
  engine->start({}, again);
  CHECK(finish(*engine).code() == 0 && again.once());
}

/// A batch that is not awaited: nothing of it arrives later, and the next one works.
void test_abandoned() {
  const Images images(1);
  const auto engine = make_engine(images, {.depth = 16, .max_read = 4096}, harmful({}));
  {
    Comparison left(images, some_reads(images, 100, 4096));
    engine->start({}, left);
    engine->abandon();
  }
  Comparison next(images, some_reads(images, 100, 4096));
  engine->start({}, next);
  CHECK(finish(*engine).code() == 0 && next.once());
}

/// A forked child says that it cannot read; the parent's batch is none of its business.
void test_forked() {
  const Images images(1);
  const auto engine = make_engine(images, {.depth = 16, .max_read = 4096}, harmful({}));
  Comparison sink(images, some_reads(images, 100, 4096));
  engine->start({}, sink);
  const pid_t child = fork();
  if (child == 0) {
    const bool lost = finish(*engine).code() != 0;
    Comparison own(images, {read_at(0)});
    engine->start({}, own);
    engine->poll();
    _exit(lost && says(finish(*engine), EPERM, "start workers by spawn") ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(finish(*engine).code() == 0 && sink.once());
}

}  // namespace

int main() {
  if (no_device("test_nvme_engine")) return kSkipped;
  const auto any_order = harmful({.shuffled = true});
  test_reads(1, 1, 4096, 1000, any_order);
  test_reads(24, 3, 65536, 1000, any_order);
  test_reads(16, 2, 4096, 1, any_order);
  test_reads(128, 2, 16384, 7, nvme::usual_medium(64, 16384));
  test_failing();
  test_no_answer(false);
  test_no_answer(true);
  test_ended();
  test_abandoned();
  test_forked();
  std::cout << "test_nvme_engine: ok\n";
  return 0;
}
