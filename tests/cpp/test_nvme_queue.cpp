// NVMe queues between threads of the host and a controller made of software: what lies in memory, and what may go wrong.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <tiering/nvme/soft_controller.hpp>
#include <vector>

#include "check.hpp"
#include "nvme_medium.hpp"

using namespace tiering;
using namespace tiering::nvme;

namespace {

constexpr uint32_t kBlock = SoftController::kBlockBytes;
constexpr auto kLong = std::chrono::seconds(30);  // until a test fails that hangs

uint64_t soon(std::chrono::nanoseconds patience) {
  return HostLink::nanoseconds() + static_cast<uint64_t>(patience.count());
}

/// A pair of queues, its books, and memory that reads land in.
struct Reader {
  explicit Reader(uint32_t depth, uint32_t place_bytes = 4096)
      : layout{nullptr, depth, place_bytes},
        memory(std::make_shared<SharedMemory>(layout.bytes())),
        free_ids(depth),
        in_flight(depth) {
    layout.begin = memory->buffer.data();
    pair = layout.pair();
    books = {free_ids.data(), in_flight.data()};
    reset(pair, books);
  }
  std::span<std::byte> all() { return {layout.begin, layout.bytes()}; }
  void write(uint32_t request, uint64_t block, uint32_t blocks, uint32_t ahead = 0) {
    const uint32_t number = books.submitted + ahead;
    write_command(
        pair, books, number, request,
        {.block = block, .blocks = blocks, .into = layout.prps(place_of(pair, books, number), blocks * kBlock)});
  }
  void submit(uint32_t request, uint64_t block, uint32_t blocks = 1) {
    write(request, block, blocks);
    ring_submitted<HostLink>(pair, books, 1);
  }
  Reaped reap(std::chrono::nanoseconds patience = kLong, const uint32_t* abort = nullptr) {
    const Reaped reaped = await<HostLink>(pair, books, books.reaped, {soon(patience), abort});
    if (reaped.outcome == Outcome::done) ring_reaped<HostLink>(pair, books, 1);
    return reaped;
  }
  std::unique_ptr<SoftController> serve(const NumberedFile& file, const TestMedium::Harm& harm = {}) {
    return std::make_unique<SoftController>(file.image(), std::vector{pair}, std::vector{all()},
                                            std::vector<std::shared_ptr<void>>{memory}, harmful(harm));
  }

  QueueMemory layout;
  std::shared_ptr<SharedMemory> memory;
  std::vector<uint16_t> free_ids;
  std::vector<InFlight> in_flight;
  QueuePair pair;
  QueueBooks books;
};

uint64_t word(const std::byte* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Words as the specification puts them, written down by hand.
void test_entries() {
  const Command command = read_command(
      0xabcd, {.block = 0x1122334455667788, .blocks = 8, .name_space = 1, .into = {0x10000a000, 0x2000b000}});
  const std::array<uint32_t, 16> expected{0xabcd0002, 1,          0,          0,          0, 0, 0x0000a000, 0x1,
                                          0x2000b000, 0x00000000, 0x55667788, 0x11223344, 7, 0, 0,          0};
  CHECK(std::equal(expected.begin(), expected.end(), command.words));
  CHECK(sizeof(Command) == 64 && sizeof(Completion) == 16);
  const BlockRead read = read_of(command);
  CHECK(read.block == 0x1122334455667788 && read.blocks == 8 && read.into.second == 0x2000b000);
  const uint32_t last = completion_word(0xabcd, 1, kUnrecoveredReadError);
  CHECK(last == (0x281U << 17 | 1U << 16 | 0xabcd));
  CHECK(completed_id(last) == 0xabcd && phase_of(last) == 1 && status_of(last) == kUnrecoveredReadError);
}

void test_pages() {
  alignas(4096) uint64_t list[kListEntries] = {};
  auto page = [](uint32_t i) { return uint64_t{0x100000} * (i + 1); };
  Prps prps = describe(page, 512, 3584, list, 0xf000);
  CHECK(prps.first == 0x100200 && prps.second == 0);
  prps = describe(page, 512, 4096, list, 0xf000);
  CHECK(prps.first == 0x100200 && prps.second == 0x200000 && list[0] == 0);
  prps = describe(page, 0, 3 * 4096, list, 0xf000);
  CHECK(prps.first == 0x100000 && prps.second == 0xf000 && list[0] == 0x200000 && list[1] == 0x300000 && list[2] == 0);
  CHECK(pages_touched(4095, 2) == 2 && pages_touched(0, kMostReadBytes) == kListEntries);
}

/// Many rounds of a queue, completions in any order, several queues and threads for each controller.
void test_many_reads(bool shuffled, uint32_t depth, uint32_t reads) {
  const NumberedFile file(4 << 20);
  constexpr size_t kQueues = 3;
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<QueuePair> pairs;
  std::vector<std::span<std::byte>> memory;
  std::vector<std::shared_ptr<void>> owners;
  for (size_t q = 0; q < kQueues; ++q) {
    readers.push_back(std::make_unique<Reader>(depth));
    pairs.push_back(readers[q]->pair);
    memory.push_back(readers[q]->all());
    owners.push_back(readers[q]->memory);
  }
  SoftController controller(file.image(), pairs, memory, owners, harmful({.shuffled = shuffled}));
  CHECK(controller.blocks() == (4 << 20) / kBlock);
  std::vector<std::thread> threads;
  for (size_t q = 0; q < kQueues; ++q)
    threads.emplace_back([&, q] {
      Reader& reader = *readers[q];
      std::vector<int> seen(reads);
      for (uint32_t next = 0, done = 0; done < reads;) {
        uint32_t written = 0;
        for (; next < reads && reader.books.flying() + written < reader.pair.most_in_flight(); ++written, ++next)
          reader.write(next, next * 7 % 8000, 8, written);
        ring_submitted<HostLink>(reader.pair, reader.books, written);
        const Reaped reaped = reader.reap();
        CHECK(reaped.outcome == Outcome::done && reaped.status == kSuccess);
        CHECK(word(reader.layout.place(reaped.id)) == reaped.request * 7 % 8000 * (kBlock / 8));
        CHECK(word(reader.layout.place(reaped.id) + 4088) == reaped.request * 7 % 8000 * (kBlock / 8) + 511);
        ++seen[reaped.request];
        ++done;
      }
      CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(controller.stop(kLong) && !controller.running() && controller.trouble().empty());
}

/// Reads of many pages use a list; those that are apart in memory are put together; bytes past the end are 0.
void test_places() {
  const NumberedFile file((1 << 20) + 520);
  Reader reader(8, 65536);
  const auto controller = reader.serve(file);
  reader.submit(0, 3, 128);
  Reaped reaped = reader.reap();
  CHECK(reaped.status == kSuccess && std::memcmp(reader.layout.place(reaped.id), file.data() + 3 * kBlock, 65536) == 0);
  // Three pages, backwards.
  std::byte* const target = reader.layout.place(7);
  auto page = [&](uint32_t i) { return reinterpret_cast<uint64_t>(target + (2 - i) * 4096); };
  auto* const list = reinterpret_cast<uint64_t*>(reader.layout.place(6));
  const Prps prps = describe(page, 0, 3 * 4096, list, reinterpret_cast<uint64_t>(list));
  write_command(reader.pair, reader.books, reader.books.submitted, 1, {.block = 8, .blocks = 24, .into = prps});
  ring_submitted<HostLink>(reader.pair, reader.books, 1);
  CHECK(reader.reap().status == kSuccess);
  for (int i = 0; i < 3; ++i) CHECK(std::memcmp(target + (2 - i) * 4096, file.data() + 4096 * (i + 1), 4096) == 0);
  // The last block has 8 bytes.
  reader.submit(2, (1 << 20) / kBlock, 2);
  reaped = reader.reap();
  const std::byte* const place = reader.layout.place(reaped.id);
  CHECK(reaped.status == kSuccess && word(place) == (1 << 20) / 8 && word(place + 520) == 0 && word(place + 1016) == 0);
}

/// Everything but reads of blocks that are there into memory that was named.
void test_refused() {
  const NumberedFile file(1 << 20);
  Reader reader(8);
  const auto controller = reader.serve(file);
  alignas(4096) static std::byte elsewhere[4096];
  auto status_of_command = [&](auto&& change) {
    reader.write(0, 0, 8);
    change(reader.pair.commands[reader.pair.entry(reader.books.submitted)].words);
    ring_submitted<HostLink>(reader.pair, reader.books, 1);
    const Reaped reaped = reader.reap();
    CHECK(reaped.outcome == Outcome::done);
    return reaped.status;
  };
  for (const uint32_t opcode : {0x00U, 0x01U, 0x08U, 0x09U})  // flush, write, write zeroes, deallocate
    CHECK(status_of_command([&](uint32_t* words) { words[0] = (words[0] & ~0xffU) | opcode; }) == kInvalidOpcode);
  CHECK(status_of_command([](uint32_t* words) { words[1] = 2; }) == kInvalidNamespace);
  CHECK(status_of_command([](uint32_t* words) { words[10] = 2048 - 7; }) == kLbaOutOfRange);
  CHECK(status_of_command([](uint32_t* words) { words[11] = 0xffffffff; }) == kLbaOutOfRange);
  CHECK(status_of_command([](uint32_t* words) { words[6] += 2; }) == kPrpOffsetInvalid);
  const auto address = reinterpret_cast<uint64_t>(elsewhere);
  CHECK(status_of_command([&](uint32_t* words) {
          words[6] = low(address);
          words[7] = high(address);
        }) == kDataTransferError);
  CHECK(status_of_command([&](uint32_t* words) {
          words[8] = low(address);
          words[9] = high(address);
          words[12] = 23;
        }) == kInvalidField);
  CHECK(status_of_command([](uint32_t*) {}) == kSuccess);
  CHECK(std::all_of(elsewhere, elsewhere + 4096, [](std::byte b) { return b == std::byte{0}; }));
}

/// A queue with room for one command; a completion queue whose doorbell is late: completions wait, nothing is lost.
void test_full() {
  const NumberedFile file(1 << 20);
  Reader reader(4);
  const auto controller = reader.serve(file);
  for (int round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 3; ++i) reader.write(i, i * 8, 8, i);
    ring_submitted<HostLink>(reader.pair, reader.books, 3);
    CHECK(reader.books.flying() == reader.pair.most_in_flight());
    for (uint32_t i = 0; i < 3; ++i) {
      const Reaped reaped = await<HostLink>(reader.pair, reader.books, reader.books.reaped + i, {soon(kLong), nullptr});
      CHECK(reaped.outcome == Outcome::done && reaped.request < 3);
    }
    reader.books.reaped += 3;  // no doorbell yet: the controller believes its completions are still being looked at
    if (round < 4) {
      reader.submit(9, 0);
      CHECK(await<HostLink>(reader.pair, reader.books, reader.books.reaped,
                            {soon(std::chrono::milliseconds(20)), nullptr})
                .outcome == Outcome::late);
      ring_reaped<HostLink>(reader.pair, reader.books, 0);
      CHECK(reader.reap().request == 9);
    }
  }
}

/// A lost completion is an error after the patience, not a hang; an abort ends the wait at once; others come meanwhile.
void test_lost_and_aborted() {
  const NumberedFile file(1 << 20);
  Reader reader(8);
  auto controller = reader.serve(
      file, {.fate = [](const Read& read) { return read.offset == 8 * kBlock ? Fate::lost : Fate::arrives; }});
  reader.submit(1, 8);
  reader.submit(2, 16);
  CHECK(reader.reap().request == 2);
  CHECK(reader.reap(std::chrono::milliseconds(30)).outcome == Outcome::late);
  uint32_t abort = 0;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    HostLink::store_release(&abort, 1);
  });
  CHECK(reader.reap(kLong, &abort).outcome == Outcome::aborted);
  other.join();
  CHECK(controller->stop(kLong));  // at rest: the memory may be used again
  reset(reader.pair, reader.books);
}

/// What an earlier user of the memory left is not taken for an answer, and a completion twice, or of nobody's, is seen.
void test_stale() {
  const NumberedFile file(1 << 20);
  Reader reader(4);
  CHECK(reader.reap(std::chrono::milliseconds(5)).outcome == Outcome::late);
  reader.write(5, 0, 1);
  Completion* const entries = reader.pair.completions;
  entries[0].words[3] = completion_word(0, 0, kSuccess);  // of the round before
  CHECK(reader.reap(std::chrono::milliseconds(5)).outcome == Outcome::late);
  entries[0].words[3] = completion_word(3, 1, kSuccess);  // of a command that is not in flight
  CHECK(reader.reap().outcome == Outcome::strange);
  entries[0].words[3] = completion_word(0, 1, kSuccess);
  CHECK(reader.reap().request == 5);
  entries[1].words[3] = completion_word(0, 1, kSuccess);  // again
  CHECK(reader.reap().outcome == Outcome::strange);
  // In its second round, a place has another id: a completion that was held back since the first is not taken.
  Reader second(2);
  for (uint32_t n = 0; n < 2; ++n) {
    second.submit(n, 0);
    second.pair.completions[n].words[3] =
        completion_word(static_cast<uint16_t>(second.in_flight[second.free_ids[n]].id), 1, 0);
    CHECK(second.reap().request == n);
  }
  second.submit(7, 0);
  second.pair.completions[0].words[3] = completion_word(0, 0, kSuccess);
  CHECK(second.reap().outcome == Outcome::strange);
}

/// A controller whose thread hangs does not come to rest; it keeps what its reads land in until it does.
void test_stalled() {
  const NumberedFile file(1 << 20);
  const auto gate = std::make_shared<Gate>();
  std::weak_ptr<SharedMemory> memory;
  {
    Reader reader(4);
    memory = reader.memory;
    const auto controller = reader.serve(file, {.before_each = [gate] { gate->wait(); }});
    reader.submit(0, 0);
    CHECK(reader.reap(std::chrono::milliseconds(10)).outcome == Outcome::late);
    CHECK(!controller->stop(std::chrono::milliseconds(10)) && controller->running());
  }
  CHECK(!memory.expired());
  gate->open();
  for (int i = 0; i < 3000 && !memory.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(memory.expired());
}

/// Reads that fail are tried alone, so that those beside them arrive; the rest is told by the status.
void test_failing_reads() {
  const NumberedFile file(1 << 20);
  Reader reader(16);
  int first_tries = 2;
  const auto controller = reader.serve(file, {.fate = [&](const Read& read) {
                                         if (read.offset == 24 * kBlock && first_tries-- > 0) return Fate::fails;
                                         return read.offset == 8 * kBlock ? Fate::fails : Fate::arrives;
                                       }});
  for (uint32_t i = 0; i < 10; ++i) reader.write(i, i * 8, 8, i);
  ring_submitted<HostLink>(reader.pair, reader.books, 10);
  for (int i = 0; i < 10; ++i) {
    const Reaped reaped = reader.reap();
    const uint32_t expected =
        reaped.request == 1 || (reaped.request == 3 && reaped.status != kSuccess) ? kUnrecoveredReadError : kSuccess;
    CHECK(reaped.outcome == Outcome::done && reaped.status == expected);
  }
  CHECK(controller->trouble().find("the medium failed") != std::string::npos && controller->running());
  reader.submit(0, 24, 8);
  CHECK(reader.reap().status == kSuccess);
}

}  // namespace

int main() {
  test_entries();
  test_pages();
  test_many_reads(false, 64, 5000);
  test_many_reads(true, 16, 5000);
  test_many_reads(true, 2, 300);
  test_places();
  test_refused();
  test_full();
  test_lost_and_aborted();
  test_stale();
  test_stalled();
  test_failing_reads();
}
