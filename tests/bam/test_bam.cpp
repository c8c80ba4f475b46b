// A drive that libnvm brings up, whose registers are emulated: identify, queues, reads that go round them many times, and
// what goes wrong.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tiering/bam/engine.hpp>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <vector>

#include "check.hpp"
#include "emulated_drive.hpp"

using namespace tiering;
using namespace tiering::bam;
using namespace tiering::nvme;

namespace {

constexpr uint32_t kDepth = 16, kPlace = 16384;

std::vector<std::byte> numbered(size_t bytes) {
  std::vector<std::byte> image(bytes);
  for (size_t i = 0; i < bytes; i += 8) std::memcpy(&image[i], &i, 8);
  return image;
}

std::unique_ptr<Drive> take_over(EmulatedDrive& emulated, uint32_t pairs = 2) {
  return Drive::over(emulated.registers(), EmulatedDrive::kRegisterBytes, "emulated", pairs);
}

/// A pair of queues of a drive, with places that its reads land in.
struct Reader {
  explicit Reader(Drive& drive)
      : layout{nullptr, kDepth, kPlace}, memory(layout.bytes()), free_ids(kDepth), in_flight(kDepth) {
    layout.begin = memory.data();
    shared = drive.share({memory.data(), layout.bytes()});
    added = drive.add_pair(layout, *shared);
    pair = added->queues();
    books = {free_ids.data(), in_flight.data()};
    reset(pair, books);
    block_bytes = drive.info().block_bytes;
  }
  void write(uint32_t ahead, uint32_t request, uint64_t block, uint32_t bytes) {
    const uint32_t number = books.submitted + ahead, place = place_of(pair, books, number);
    const size_t offset = static_cast<size_t>(layout.place(place) - layout.begin);
    const size_t list = (layout.queues_bytes() + size_t{place} * kPageBytes) / kPageBytes;
    const Prps into = shared->prps(offset, bytes, reinterpret_cast<uint64_t*>(layout.begin + list * kPageBytes), list);
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

void test_reads(uint32_t block_bytes) {
  const auto image = numbered(4 << 20);
  EmulatedDrive emulated(image, block_bytes, {});
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
  CHECK(emulated.queues() == 0 && !emulated.enabled());  // it writes to nobody's memory any more
}

std::string refusal(EmulatedDrive& emulated) {
  try {
    const auto drive = take_over(emulated);
    Reader reader(*drive);
  } catch (const IoError& error) {
    return error.what();
  }
  return {};
}

void test_flaws() {
  const auto image = numbered(1 << 20);
  EmulatedDrive never(image, 512, {.never_ready = true}), refuses(image, 512, {.refuses_queues = true});
  CHECK(refusal(never).find("did not get ready in 500 ms") != std::string::npos);
  CHECK(refusal(refuses).find("cannot make a completion queue: NVMe status 257") != std::string::npos);
  EmulatedDrive fails(image, 512, {.fails_reads = true});
  const auto drive = take_over(fails, 1);
  Reader reader(*drive);
  reader.write(0, 0, 8, 4096);
  ring_submitted<HostLink>(reader.pair, reader.books, 1);
  CHECK(reader.reap().status == kUnrecoveredReadError);
  check_refused("expected a power of two from 2 to 256",
                [&] { drive->add_pair({reader.layout.begin, 512, 0}, *reader.shared); });
  try {
    Drive::open("/dev/no-such-drive", 1);
    CHECK(false);
  } catch (const IoError& error) {
    CHECK(std::string(error.what()).find("expected a drive of BaM's module") != std::string::npos);
  }
}

/// Reads of two images by an engine, from two drives, beside what the images hold.
void test_engine() {
  const auto first = numbered(1 << 20), second = numbered((1 << 20) + 4096);
  EmulatedDrive one(first, 512, {}), other(second, 4096, {});
  ImageSet images;
  for (const auto* image : {&first, &second}) {
    const int file = memfd_create("image", MFD_CLOEXEC);
    CHECK(ftruncate(file, static_cast<off_t>(image->size())) == 0);  // only its size is looked at
    images.add(ImageFile("image", file, 4096));
    close(file);
  }
  struct Comparison final : ReadSink {
    void ready(size_t index, const std::byte* data) noexcept override {
      const Read& read = reads[index];
      CHECK(std::memcmp(data, contents[read.image]->data() + read.offset, read.need) == 0);
      ++arrived;
    }
    std::vector<Read> reads;
    std::vector<const std::vector<std::byte>*> contents;
    size_t arrived = 0;
  } sink;
  sink.contents = {&first, &second};
  for (uint32_t i = 0; i < 1000; ++i) {
    const uint32_t bytes = 4096 * (1 + i % 7);
    sink.reads.push_back({int64_t{i} * 7 % 248 * 4096, bytes, bytes, i % 2, nullptr});
  }
  std::vector<std::shared_ptr<Drive>> drives;
  for (EmulatedDrive* drive : {&one, &other}) drives.push_back(take_over(*drive, 4));
  {
    const auto engine = make_bam_engine(images, {.depth = 24, .max_read = 65536}, drives);
    const auto beside = make_bam_engine(images, {.depth = 4, .max_read = 65536}, drives);
    for (const auto& reader : {engine.get(), beside.get()}) {
      sink.arrived = 0;
      reader->start(sink.reads, sink);
      reader->finish();
      CHECK(sink.arrived == 1000 && std::string(reader->name()) == "bam");
    }
    CHECK(one.queues() == 2 && other.queues() == 2 && one.reads() + other.reads() == 2000);
  }
  CHECK(one.queues() == 0 && other.queues() == 0);
  const auto later = make_bam_engine(images, {.depth = 24, .max_read = 65536}, drives);  // numbers are used again
  later->start(sink.reads, sink);
  later->finish();
  CHECK(sink.arrived == 2000);
  check_refused("drives: expected one for each of 2 images, found 1",
                [&] { make_bam_engine(images, {}, {drives[0]}); });
  check_refused("max_read: expected at most 65536", [&] { make_bam_engine(images, {.max_read = 1 << 20}, drives); });
}

}  // namespace

int main() {
  test_reads(512);
  test_reads(4096);
  test_flaws();
  test_engine();
}
