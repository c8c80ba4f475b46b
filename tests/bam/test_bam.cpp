// A drive that libnvm brings up, whose registers are emulated: identify, queues, reads that go round them many times,
// and what goes wrong.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tiering/bam/engine.hpp>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <vector>

#include "check.hpp"
#include "emulated_drive.hpp"
#include "images.hpp"

using namespace tiering;
using namespace tiering::bam;
using namespace tiering::nvme;

namespace {

constexpr uint32_t kDepth = 16, kPlace = 16384;

std::unique_ptr<Drive> take_over(EmulatedDrive& emulated, uint32_t pairs = 2) {
  return Drive::over(emulated.registers(), "emulated", pairs, EmulatedDrive::kFlipped);
}

/// A pair of queues of a drive, with places that its reads land in.
struct Reader {
  explicit Reader(Drive& drive)
      : layout{nullptr, kDepth, kPlace}, memory(layout.bytes()), free_ids(kDepth), in_flight(kDepth) {
    layout.begin = memory.data();
    shared = drive.share({memory.data(), layout.bytes()});
    added = drive.add_pair(layout.pair(), *shared, *shared);
    pair = added->queues();
    books = {free_ids.data(), in_flight.data()};
    reset(pair, books);
    block_bytes = drive.info().block_bytes;
  }
  void write(uint32_t ahead, uint32_t request, uint64_t block, uint32_t bytes) {
    const uint32_t number = books.submitted + ahead, place = place_of(pair, books, number);
    const Prps into = layout.landing().prps(place, bytes, [&](const std::byte* page) { return shared->address(page); });
    write_command(pair, books, number, request, {.block = block, .blocks = bytes / block_bytes, .into = into});
  }
  Reaped reap() {
    const Reaped reaped =
        await<HostLink>(pair, books, books.reaped, {HostLink::nanoseconds() + 30'000'000'000, nullptr});
    CHECK(reaped.outcome == Outcome::done);
    ring_reaped<HostLink>(pair, books, 1);
    return reaped;
  }

  QueueMemory layout;
  AlignedBuffer memory;
  std::unique_ptr<DriveMemory> shared;
  std::unique_ptr<DrivePair> added;
  std::vector<uint16_t> free_ids;
  std::vector<InFlight> in_flight;
  QueuePair pair;
  QueueBooks books;
  uint32_t block_bytes = 0;
};

void test_reads(uint32_t block_bytes, uint32_t stride) {
  const auto image = numbered(4 << 20);
  EmulatedDrive emulated(image, block_bytes, {.stride = stride});
  {
    const auto drive = take_over(emulated);
    CHECK(drive->info().model == "EMULATED DRIVE" && drive->info().serial == "0123456789");
    CHECK(drive->info().blocks == image.size() / block_bytes && drive->info().block_bytes == block_bytes);
    CHECK(drive->info().most_entries == 256 && drive->info().most_read == 65536 && drive->info().most_pairs == 4);
    drive->expect_room(4 << 20, 4096);
    check_refused("expected a namespace of at least 4194305 bytes, found 4194304",
                  [&] { drive->expect_room((4 << 20) + 1, 4096); });
    check_refused("expected blocks that divide a page of 256 bytes", [&] { drive->expect_room(4096, 256); });
    Reader first(*drive), second(*drive);
    CHECK(emulated.queues() == 2);
    for (Reader* reader : {&first, &second})
      for (uint32_t next = 0, done = 0; done < 300;) {
        uint32_t written = 0;
        for (; next < 300 && reader->books.flying() + written < kDepth - 1; ++written, ++next)
          reader->write(written, next, uint64_t{next} * 8192 / block_bytes, 4096 * (1 + next % 4));
        ring_submitted<HostLink>(reader->pair, reader->books, written);
        const Reaped reaped = reader->reap();
        CHECK(reaped.status == kSuccess);
        const size_t at = size_t{reaped.request} * 8192;
        CHECK(std::memcmp(reader->layout.place(reaped.id), &image[at], 4096 * (1 + reaped.request % 4)) == 0);
        ++done;
      }
    CHECK(emulated.reads() == 600);
    first.write(0, 0, image.size() / block_bytes, 4096);
    ring_submitted<HostLink>(first.pair, first.books, 1);
    CHECK(first.reap().status == kLbaOutOfRange);
  }
  CHECK(emulated.queues() == 0 && emulated.off());  // it writes to nobody's memory any more
}

/// What is said of a drive that is of no use. It is off afterwards, so that it writes to nobody's memory.
std::string refusal(EmulatedDrive& emulated) {
  try {
    const auto drive = take_over(emulated);
    Reader reader(*drive);
  } catch (const std::exception& error) {
    CHECK(emulated.off());
    return error.what();
  }
  return {};
}

void expect_refusal(const EmulatedDrive::Flaws& flaws, const std::string& words, uint32_t block_bytes = 512) {
  const auto image = numbered(1 << 20);
  EmulatedDrive emulated(image, block_bytes, flaws);
  const std::string said = refusal(emulated);
  if (said.find(words) == std::string::npos) std::cerr << "expected \"" << words << "\", found \"" << said << "\"\n";
  CHECK(said.find(words) != std::string::npos);
}

void test_flaws() {
  expect_refusal({.never_ready = true}, "did not get ready in 500 ms");
  expect_refusal({.refuses_queues = true}, "cannot make a completion queue: NVMe status 0x101");
  expect_refusal({.answers = 1}, "cannot identify namespace 1: Connection timed out");
  expect_refusal({.answers = 4}, "cannot make a submission queue: Connection timed out");
  expect_refusal({.metadata_bytes = 8}, "expected blocks without metadata, found 8 bytes");
  expect_refusal({}, "blocks of 512 to 4096 bytes, found 128 of 8192", 8192);
}

/// What a drive says that is no flaw.
void test_kinds() {
  const auto image = numbered(1 << 20);
  EmulatedDrive any_length(image, 512, {.longest_read = 0}), few_bells(image, 512, {.stride = 8});
  CHECK(take_over(any_length)->info().most_read == kMostReadBytes);
  // Two doorbells of 1 KiB each for the drive's own queues, two for ours: no other fits what is mapped.
  const auto drive = take_over(few_bells);
  CHECK(drive->info().most_pairs == 1);
  Reader first(*drive);
  check_refused("pairs: expected at most 1", [&] { Reader second(*drive); });
}

/// A drive that falls silent is asked once more, and switched off; one that stays on may write to what is kept for it.
void test_ends() {
  const auto image = numbered(1 << 20);
  EmulatedDrive silent(image, 512, {.answers = 7}), stays(image, 512, {.stays_on = true});
  {
    const auto drive = take_over(silent);
    Reader first(*drive), second(*drive);
    CHECK(silent.administered() == 7);
  }
  CHECK(silent.administered() == 8 && silent.off());
  take_over(stays).reset();
  stays.answer_late();
}

void test_memory() {
  const auto image = numbered(1 << 20);
  EmulatedDrive emulated(image, 512, {}), other(image, 512, {});
  const auto drive = take_over(emulated), stranger = take_over(other);
  const AlignedBuffer memory(8 * kPageBytes);
  const auto share = [&](size_t from, size_t bytes) { return drive->share({memory.data() + from, bytes}); };
  check_refused("expected whole pages of 4096 bytes to share with emulated, found 4096 bytes, 512",
                [&] { share(512, 4096); });
  check_refused("found 100 bytes, 0 bytes", [&] { share(0, 100); });
  check_refused("found 0 bytes", [&] { share(0, 0); });
  check_refused("expected whole pages of 65536 bytes", [&] { drive->share_gpu({memory.data(), 4096}); });
  const auto all = share(0, 8 * kPageBytes), page = share(0, kPageBytes), rest = share(kPageBytes, 7 * kPageBytes);
  const auto theirs = stranger->share({memory.data(), 8 * kPageBytes});
  const QueueMemory where{memory.data(), kDepth, 0};
  const QueuePair entries = where.pair();
  check_refused("expected 1024 bytes for commands in memory that emulated shares",
                [&] { drive->add_pair(entries, *rest, *rest); });
  check_refused("expected 256 bytes for completions in memory that emulated shares",
                [&] { drive->add_pair(entries, *page, *page); });
  check_refused("memory that emulated shares", [&] { drive->add_pair(entries, *theirs, *theirs); });
  QueuePair within = entries;
  within.commands += 1;
  check_refused("from a page's begin on", [&] { drive->add_pair(within, *all, *all); });
  check_refused("expected a power of two from 2 to 256",
                [&] { drive->add_pair(QueueMemory{memory.data(), 512, 0}.pair(), *all, *all); });
  check_refused("queues of more than a page want memory that is contiguous for emulated",
                [&] { drive->add_pair(QueueMemory{memory.data(), 128, 0}.pair(), *all, *all); });
  drive->add_pair(entries, *page, *rest);
}

/// Reads that fail say so, and take none with them.
void test_failing_read() {
  const auto image = numbered(1 << 20);
  EmulatedDrive emulated(image, 512, {.fails_reads = true});
  const auto drive = take_over(emulated, 1);
  Reader reader(*drive);
  for (uint32_t i = 0; i < 3; ++i) reader.write(i, i, uint64_t{i} * 8, 4096);
  ring_submitted<HostLink>(reader.pair, reader.books, 3);
  for (int i = 0; i < 3; ++i) {
    const Reaped reaped = reader.reap();
    CHECK(reaped.status == (reaped.request == 1 ? kUnrecoveredReadError : kSuccess));
  }
}

void expect_no_drive(const std::string& path, const std::string& words) {
  std::string said;
  try {
    Drive::open(path, 1);
  } catch (const std::exception& error) {
    said = error.what();
  }
  if (said.find(words) == std::string::npos) std::cerr << path << ": \"" << said << "\"\n";
  CHECK(said.find(words) != std::string::npos);
}

/// Files that are no drives of the module, of which libnvm would read registers that are not there.
void test_no_drives() {
  expect_no_drive("/dev/no-such-drive", "expected a drive of BaM's module: load it");
  check_refused("pairs: expected 1 to 65535 pairs of queues of /dev/zero, found 0",
                [] { Drive::open("/dev/zero", 0); });
  expect_no_drive("/dev/null", "found something without a drive's registers");
  expect_no_drive("/dev/zero", "expected a drive with queues of at least 256 entries, which libnvm wants, found 1");
  alignas(4096) static std::array<std::byte, EmulatedDrive::kRegisterBytes> ones;
  ones.fill(std::byte{0xff});
  try {
    Drive::over(ones, "gone", 1);
    CHECK(false);
  } catch (const IoError& error) {
    CHECK(error.code() == ENODEV && std::string(error.what()).find("its registers read as ones") != std::string::npos);
  }
}

/// Reads of two images by an engine, from two drives, beside what the images hold.
void test_engine() {
  const auto first = numbered(1 << 20), second = numbered((1 << 20) + 4096);
  EmulatedDrive one(first, 512, {}), other(second, 4096, {});
  const DriveImages images({&first, &second});
  Comparison sink(images, 1000, 7);
  Drives drives;
  for (EmulatedDrive* drive : {&one, &other}) drives.push_back(take_over(*drive, 4));
  {
    const auto engine = make_bam_engine(images.set, {.depth = 24, .max_read = 65536}, drives);
    const auto beside = make_bam_engine(images.set, {.depth = 4, .max_read = 65536}, drives);
    for (const auto& reader : {engine.get(), beside.get()}) {
      sink.arrived = 0;
      reader->start(sink.reads, sink);
      reader->finish();
      CHECK(sink.arrived == 1000 && std::string(reader->name()) == "bam");
    }
    CHECK(one.queues() == 2 && other.queues() == 2 && one.reads() + other.reads() == 2000);
  }
  CHECK(one.queues() == 0 && other.queues() == 0);
  auto later = make_bam_engine(images.set, {.depth = 24, .max_read = 65536}, drives);  // numbers are used again
  later->start(sink.reads, sink);
  later->finish();
  CHECK(sink.arrived == 2000);
  // A forked child that drops what is its parent's writes to no register: the drive stays on, no command is rung for.
  const auto before = std::vector(one.registers().begin(), one.registers().end());
  const pid_t child = fork();
  if (child == 0) {
    later.reset();
    drives.clear();
    _exit(std::equal(before.begin(), before.end(), one.registers().begin()) ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check_refused("drives: expected one for each of 2 images, found 1",
                [&] { make_bam_engine(images.set, {}, {drives[0]}); });
  check_refused("max_read: expected at most 65536",
                [&] { make_bam_engine(images.set, {.max_read = 1 << 20}, drives); });
}

}  // namespace

int main() {
  test_engine();
  test_reads(512, 0);
  test_reads(4096, 6);
  test_flaws();
  test_kinds();
  test_ends();
  test_memory();
  test_failing_read();
  test_no_drives();
}
