// That tests would see it if the queues' ordering were wrong: mistakes are made on purpose, and must be noticed.
//
// A doorbell that rings before its command is written is noticed by what arrives. A store that is not a release looks
// right on x86 whatever the compiler makes of it, but not to ThreadSanitizer: with it, this program runs itself with each
// such mistake and expects a report.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <tiering/nvme/host_link.hpp>

namespace tiering::nvme {

inline std::atomic<bool> controller_relaxed = false, reader_relaxed = false;

/// The link with stores that order nothing, on one of the two sides.
template <std::atomic<bool>& kRelaxed>
struct MutantLink : HostLink {
  static void store_release(uint32_t* word, uint32_t value) noexcept {
    const auto order = kRelaxed ? std::memory_order_relaxed : std::memory_order_release;
    if (order == std::memory_order_relaxed)
      std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_relaxed);
    else
      HostLink::store_release(word, value);
  }
};
using MutantController = MutantLink<controller_relaxed>;
using MutantReader = MutantLink<reader_relaxed>;

}  // namespace tiering::nvme

// The controller and the engine themselves, with the mutants' link: these definitions stand before the library's.
#define HostLink MutantController
#include "nvme/soft_controller.cpp"
#undef HostLink

#include <tiering/nvme/queue_memory.hpp>

#include "check.hpp"
#include "nvme_medium.hpp"

using namespace tiering;
using namespace tiering::nvme;

namespace {

struct Reader {
  explicit Reader(const NumberedFile& file)
      : layout{nullptr, 8, 4096}, memory(std::make_shared<SharedMemory>(layout.bytes())), free_ids(8), in_flight(8) {
    layout.begin = memory->buffer.data();
    pair = layout.pair();
    books = {free_ids.data(), in_flight.data()};
    reset(pair, books);
    const std::span<std::byte> all{layout.begin, layout.bytes()};
    controller = std::make_unique<SoftController>(file.image(), std::vector{pair}, std::vector{all},
                                                  std::vector<std::shared_ptr<void>>{memory}, harmful({}));
  }
  BlockRead read(uint32_t number) {
    return {.block = 8, .blocks = 8, .into = layout.prps(place_of(pair, books, number), 4096)};
  }
  Reaped reap() {
    const Reaped reaped =
        await<HostLink>(pair, books, books.reaped, {HostLink::nanoseconds() + 30'000'000'000, nullptr});
    CHECK(reaped.outcome == Outcome::done);
    ring_reaped<MutantReader>(pair, books, 1);
    return reaped;
  }

  QueueMemory layout;
  std::shared_ptr<SharedMemory> memory;
  std::vector<uint16_t> free_ids;
  std::vector<InFlight> in_flight;
  QueuePair pair;
  QueueBooks books;
  std::unique_ptr<SoftController> controller;
};

/// Reads pages and looks at what they hold, right or with a mistake that is set.
void read_pages() {
  const NumberedFile file(1 << 20);
  Reader reader(file);
  for (uint32_t n = 0; n < 200; ++n) {
    write_command(reader.pair, reader.books, n, n, reader.read(n));
    ring_submitted<MutantReader>(reader.pair, reader.books, 1);
    const Reaped reaped = reader.reap();
    CHECK(reaped.status == kSuccess && std::memcmp(reader.layout.place(reaped.id), file.data() + 4096, 4096) == 0);
  }
}

/// Rings, and writes the command afterwards.
void test_early_doorbell() {
  const NumberedFile file(1 << 20);
  Reader reader(file);
  ring_submitted<HostLink>(reader.pair, reader.books, 1);
  CHECK(reader.controller->running());
  uint32_t word;
  while (!arrived<HostLink>(reader.pair, 0, word)) std::this_thread::yield();
  CHECK(status_of(word) != kSuccess);  // the controller took what lay there before
}

#ifdef __SANITIZE_THREAD__
/// This program with one mistake: the sanitizer must end it with its own status.
void expect_report(const char* mistake) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("TSAN_OPTIONS", "exitcode=66 halt_on_error=1 log_path=/dev/null", 1);
    execl("/proc/self/exe", "test_nvme_mutations", mistake, nullptr);
    _exit(1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (std::strcmp(mistake, "none") == 0 ? 0 : 66));
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const std::string mistake = argc > 1 ? argv[1] : "";
  controller_relaxed = mistake == "relaxed completion";
  reader_relaxed = mistake == "relaxed doorbell";
  read_pages();
  if (!mistake.empty()) return 0;
  test_early_doorbell();
#ifdef __SANITIZE_THREAD__
  expect_report("none");
  expect_report("relaxed completion");
  expect_report("relaxed doorbell");
#endif
}
