// Engines on files that are slow or refuse reads for a while: a pread of this program's own stands before the system's.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <tiering/io/read_engine.hpp>

#include "check.hpp"
#if __has_include(<liburing.h>)
#include <liburing.h>
#endif

using namespace tiering;

namespace {

constexpr auto kLong = std::chrono::seconds(30);  // until a test fails that hangs
constexpr int64_t kPage = 4096;

std::function<int(off_t)> before_read;  // returns an errno, or 0: the read goes on

}  // namespace

extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  if (const int code = before_read ? before_read(offset) : 0; code != 0) {
    errno = code;
    return -1;
  }
  return syscall(SYS_pread64, fd, to, bytes, offset);
}
extern "C" ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) { return pread(fd, to, bytes, offset); }

#if __has_include(<liburing.h>)
namespace {
int refused_submissions = 0, refused_reads = 0;
}
// The linker puts it in the place of liburing's, which there is none of where the core was built without.
extern "C" int __real_io_uring_submit_and_wait(io_uring* ring, unsigned wait) __attribute__((weak));
extern "C" int __wrap_io_uring_submit_and_wait(io_uring* ring, unsigned wait) {
  if (refused_submissions > 0) return --refused_submissions, -EAGAIN;
  const int code = __real_io_uring_submit_and_wait(ring, wait);
  io_uring_cqe* cqe;
  unsigned head;
  io_uring_for_each_cqe(ring, head, cqe) if (refused_reads > 0) {
    --refused_reads;
    cqe->res = -EAGAIN;
  }
  return code;
}
#endif

namespace {

/// An image of pages, of which each begins with its number.
class Image {
 public:
  explicit Image(int64_t pages) {
    std::string path = "/tmp/tiering-engines-XXXXXX";
    const int fd = mkstemp(path.data());
    CHECK(fd >= 0 && unlink(path.c_str()) == 0 && ftruncate(fd, pages * kPage) == 0);
    for (int64_t page = 0; page < pages; ++page)
      CHECK(pwrite(fd, &page, sizeof page, page * kPage) == static_cast<ssize_t>(sizeof page));
    images = ImageSet::of(ImageFile("image", fd, 1));
    close(fd);
  }
  ImageSet images;
};

/// Asks for `pages` pages, a few at a time, and checks what arrives.
class Pages final : public ReadSink {
 public:
  Pages(int64_t pages, size_t at_once) : pages_(pages), at_once_(at_once) {}

  std::span<const Read> more(bool) noexcept override {
    reads_.clear();
    for (; given_ < pages_ && reads_.size() < at_once_; ++given_)
      reads_.push_back({given_ * kPage, kPage, kPage, 0, nullptr});
    return reads_;
  }
  void ready(size_t index, const std::byte* data) noexcept override {
    CHECK(*reinterpret_cast<const int64_t*>(data) == static_cast<int64_t>(index));
    const std::lock_guard lock(mutex_);
    CHECK(arrived_.insert(index).second);
    changed_.notify_all();
  }
  /// Whether so many arrive in time.
  bool wait_for(size_t number) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return arrived_.size() >= number; });
  }
  size_t arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_.size();
  }

 private:
  int64_t pages_, given_ = 0;
  size_t at_once_;
  std::vector<Read> reads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<size_t> arrived_;
};

void read_all(const ImageSet& images, const std::string& engine, int depth, ReadSink& sink) {
  const auto made = make_engine(engine, images, {.depth = depth, .max_read = kPage});
  made->start({}, sink);
  made->finish();
}

/// The first page arrives after all others, which are asked for four at a time.
void test_a_slow_read_holds_back_no_other() {
  for (const int depth : {2, 3, 16}) {
    const Image image(100);
    Pages pages(100, 4);
    bool others = false;
    before_read = [&](off_t offset) {
      if (offset == 0) others = pages.wait_for(99);
      return 0;
    };
    read_all(image.images, "threads", depth, pages);
    CHECK(others && pages.arrived() == 100);
  }
  before_read = nullptr;
}

/// Reads wait for each other until `depth` are in flight, which are asked for four at a time; never are there more.
void test_as_many_reads_are_in_flight_as_the_depth_says() {
  for (const int depth : {1, 10, 64}) {
    const Image image(130);
    Pages pages(130, 4);
    std::mutex mutex;
    std::condition_variable changed;
    int in_flight = 0, most = 0;
    before_read = [&](off_t) {
      std::unique_lock lock(mutex);
      most = std::max(most, ++in_flight);
      changed.notify_all();
      CHECK(changed.wait_for(lock, kLong, [&] { return most >= depth; }));
      --in_flight;
      return 0;
    };
    read_all(image.images, "threads", depth, pages);
    CHECK(pages.arrived() == 130 && most == depth);
  }
  before_read = nullptr;
}

/// One that could keep every thread of the process busy lets another one read, too.
void test_engines_take_turns() {
  const Image image(200);
  std::atomic<bool> done{false};
  class : public ReadSink {
   public:
    std::span<const Read> more(bool) noexcept override {
      if (*done || std::chrono::steady_clock::now() > end) return {};
      return reads;
    }
    void ready(size_t, const std::byte*) noexcept override { ++arrived; }
    std::atomic<bool>* done = nullptr;
    std::chrono::steady_clock::time_point end = std::chrono::steady_clock::now() + kLong;
    std::vector<Read> reads = std::vector<Read>(64, Read{0, kPage, kPage, 0, nullptr});
    std::atomic<int64_t> arrived{0};
  } endless;
  endless.done = &done;
  before_read = [](off_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  };
  std::thread other([&] { read_all(image.images, "threads", 128, endless); });
  while (endless.arrived < 256) std::this_thread::yield();
  Pages pages(200, 4);
  read_all(image.images, "threads", 8, pages);
  CHECK(std::chrono::steady_clock::now() < endless.end);
  done = true;
  other.join();
  CHECK(pages.arrived() == 200);
  before_read = nullptr;
}

int code_of(const ImageSet& images, const std::string& engine, ReadSink& sink, std::string* text = nullptr,
            int depth = 4) {
  try {
    read_all(images, engine, depth, sink);
  } catch (const IoError& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return 0;
}

/// Signals are no reason to give up, refusals are after some tries.
void test_reads_that_are_refused_for_a_while() {
  const Image image(20);
  std::atomic<int> tries{0};
  auto refuse = [&](int code, int times) {
    tries = 0;
    before_read = [&tries, code, times](off_t offset) { return offset == 5 * kPage && tries++ < times ? code : 0; };
    Pages pages(20, 4);
    std::string text;
    const int found = code_of(image.images, "threads", pages, &text);
    CHECK((found == 0) == (pages.arrived() == 20));
    CHECK(found == 0 || text.find("image: reading 4096 bytes at byte 20480: ") == 0);
    return found;
  };
  CHECK(refuse(EAGAIN, 3) == 0 && tries == 4);
  CHECK(refuse(EINTR, 10'000) == 0 && tries == 10'001);
  CHECK(refuse(EAGAIN, kMaxRefusals) == 0);
  CHECK(refuse(EAGAIN, kMaxRefusals + 1) == EAGAIN && tries == kMaxRefusals + 1);
  CHECK(refuse(EIO, 1) == EIO && tries == 1);
  before_read = nullptr;
}

#if __has_include(<liburing.h>)
/// What a ring's reads come to: as the kernel says, or refused.
void test_reads_of_a_ring_that_are_refused_for_a_while() {
  const Image image(20);
  auto read = [&](int times, bool whole_ring, std::string* text = nullptr) {
    (whole_ring ? refused_submissions : refused_reads) = times;
    Pages pages(20, 4);
    const int code = code_of(image.images, "io_uring", pages, text);
    CHECK((code == 0) == (pages.arrived() == 20));
    refused_submissions = refused_reads = 0;
    return code;
  };
  for (const bool whole_ring : {false, true}) {
    CHECK(read(3, whole_ring) == 0);
    CHECK(read(kMaxRefusals, whole_ring) == 0);
    std::string text;
    CHECK(read(1 << 30, whole_ring, &text) == EAGAIN);
    CHECK(text.find(whole_ring ? "io_uring took nothing in " : "image: reading 4096 bytes at byte ") == 0);
    CHECK(text.find("500 more tries") != std::string::npos);
  }
  // Forgotten while reads are to be tried again.
  refused_reads = 1 << 30;
  Pages forgotten(20, 4);
  const auto engine = make_engine("io_uring", image.images, {.depth = 4, .max_read = kPage});
  engine->start({}, forgotten);
  for (int k = 0; k < 50; ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    engine->poll();
  }
  engine->abandon();
  CHECK(forgotten.arrived() == 0);
}
#endif

/// A new engine is a class with begin() and reap(), and a line in the table.
class PlainEngine final : public ReadEngine {
 public:
  PlainEngine(const ImageSet& images, const EngineOptions& options)
      : ReadEngine(images, static_cast<size_t>(options.depth)), buffer_(options.max_read) {}
  const char* name() const noexcept override { return "plain"; }

 private:
  void begin(uint32_t slot) noexcept override { begun_.push_back(slot); }
  void reap(bool) override {
    for (const uint32_t s : begun_) {
      const Read& read = slots_[s].read;
      std::byte* const into = read.into != nullptr ? read.into : buffer_.data();
      if (pread(image(slots_[s]).fd(), into, read.bytes, read.offset) < read.need)
        fail(std::make_exception_ptr(read_error(image(slots_[s]), read, 0, EIO)));
      else
        sink_->ready(slots_[s].index, into);
      release(s);
    }
    begun_.clear();
  }
  void renew() override { begun_.clear(); }

  AlignedBuffer buffer_;
  std::vector<uint32_t> begun_;
};

void test_an_engine_is_a_class_and_a_line() {
  engine_kinds().insert(engine_kinds().begin(),
                        {"plain",
                         [](const ImageSet& images, const EngineOptions& options) -> std::unique_ptr<ReadEngine> {
                           return std::make_unique<PlainEngine>(images, options);
                         },
                         [] { return std::string(); }});
  CHECK(EngineChoice("auto").name() == "plain" && EngineChoice("auto").fallback().empty());
  for (const int depth : {1, 3}) {
    const Image image(20);
    Pages pages(20, 4);
    CHECK(code_of(image.images, "plain", pages) == 0 && pages.arrived() == 20);
    Pages too_many(25, 4);
    CHECK(code_of(image.images, "plain", too_many, nullptr, depth) == EIO && too_many.arrived() == 20);
  }
  engine_kinds().erase(engine_kinds().begin());
  check_refused("engine: expected one of auto, io_uring, threads, found 'plain'", [] { EngineChoice("plain"); });
}

}  // namespace

int main() {
  alarm(300);  // for one that hangs
  test_a_slow_read_holds_back_no_other();
  test_as_many_reads_are_in_flight_as_the_depth_says();
  test_engines_take_turns();
  test_reads_that_are_refused_for_a_while();
  test_an_engine_is_a_class_and_a_line();
#if __has_include(<liburing.h>)
  if (uring_unavailable().empty()) test_reads_of_a_ring_that_are_refused_for_a_while();
#endif
  std::cout << "test_engines: ok\n";
  return 0;
}
