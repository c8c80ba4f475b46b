// NVMe commands submitted by kernels to controllers made of software: what arrives, and what may go wrong. Without a
// device it is skipped (exit 77).
#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>
#include <tiering/cuda/nvme_reads.hpp>
#include <tiering/nvme/softnvme_engine.hpp>
#include <vector>

#include "../cpp/check.hpp"
#include "device.hpp"
#include "nvme_images.hpp"

using namespace tiering;
using namespace tiering::test;
using nvme::Outcome;

namespace {

constexpr auto kLong = std::chrono::seconds(30);  // until a test fails that hangs

/// Reads everything in as many waves as it takes; `check` is given each result.
template <typename Check>
void read_all(cuda::NvmeReads& reads, const std::vector<Read>& wanted, Check&& check) {
  for (uint32_t next = 0; next < wanted.size() || reads.under_way() > 0;) {
    while (reads.under_way() < 2 && next < wanted.size()) {
      while (next < wanted.size() && reads.add(wanted[next], next)) ++next;
      reads.submit();
    }
    reads.wait();
    for (const cuda::NvmeResult& result : reads.take()) check(result);
  }
}

/// Many rounds of every queue, completions in any order; reads of one page, of two and of lists; past the end are
/// zeros.
void test_many_reads(const nvme::MediumMaker& medium, size_t num_images, const cuda::NvmeOptions& options,
                     size_t count) {
  const Images images(num_images);
  cuda::NvmeReads reads(nvme::soft_server(medium), images.set, options);
  std::mt19937 random(options.in_flight);
  std::vector<Read> wanted;
  for (size_t i = 0; i < count; ++i) wanted.push_back(images.random(random, options.max_read));
  std::vector<int> seen(count);
  read_all(reads, wanted, [&](const cuda::NvmeResult& result) {
    CHECK(result.outcome == Outcome::done && result.status == nvme::kSuccess);
    const Read& read = wanted[result.request];
    CHECK(result.queue / options.per_image == read.image && images.same(read, result.data));
    const uint32_t blocks = (read.need + 511) / 512 * 512;
    CHECK(std::all_of(result.data + read.need, result.data + blocks, [](std::byte b) { return b == std::byte{0}; }));
    ++seen[result.request];
  });
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  CHECK(reads.stop(kLong));
}

/// A status that is not success comes with its request; the others arrive.
void test_failing_reads() {
  const Images images(1);
  const auto medium = harmful({.fate = [](const Read& r) { return r.offset == 8192 ? Fate::fails : Fate::arrives; }});
  cuda::NvmeReads reads(nvme::soft_server(medium), images.set, {.per_image = 2, .in_flight = 31, .max_read = 4096});
  std::vector<Read> wanted;
  for (uint32_t i = 0; i < 40; ++i) wanted.push_back({int64_t{i} * 4096, 4096, 4096, 0, nullptr});
  wanted.push_back({images.bytes + 8192, 4096, 4096, 0, nullptr});
  read_all(reads, wanted, [&](const cuda::NvmeResult& result) {
    CHECK(result.outcome == Outcome::done);
    const uint32_t expected = result.request == 2    ? nvme::kUnrecoveredReadError
                              : result.request == 40 ? nvme::kLbaOutOfRange
                                                     : nvme::kSuccess;
    CHECK(result.status == expected);
    if (expected == nvme::kSuccess) CHECK(images.same(wanted[result.request], result.data));
  });
  CHECK(reads.controller(0).trouble().find("the medium failed") != std::string::npos);
}

/// What does not come back ends the wait after the patience; the others' data are there.
void test_lost() {
  const Images images(1);
  const auto medium = harmful({.fate = [](const Read& r) { return r.offset == 8192 ? Fate::lost : Fate::arrives; }});
  cuda::NvmeReads reads(
      nvme::soft_server(medium), images.set,
      {.per_image = 2, .in_flight = 31, .max_read = 4096, .patience = std::chrono::milliseconds(300)});
  std::vector<Read> wanted;
  for (uint32_t i = 0; i < 8; ++i) wanted.push_back({int64_t{i} * 4096, 4096, 4096, 0, nullptr});
  const auto begin = std::chrono::steady_clock::now();
  int late = 0, done = 0;
  read_all(reads, wanted, [&](const cuda::NvmeResult& result) {
    late += result.outcome == Outcome::late ? 1 : 0;
    if (result.outcome != Outcome::done) return;
    CHECK(result.request != 2 && images.same(wanted[result.request], result.data));
    ++done;
  });
  const auto took = std::chrono::steady_clock::now() - begin;
  CHECK(late == 1 && done == 7 && took >= std::chrono::milliseconds(300) && took < std::chrono::seconds(5));
  CHECK(reads.stop(kLong));
}

/// The wait ends when somebody says so, and when the controller has ended; what may still land is kept.
void test_aborted() {
  const Images images(1);
  auto gate = std::make_shared<Gate>();
  const auto medium = harmful({.before_each = [gate] { gate->wait(); }});
  {
    cuda::NvmeReads reads(nvme::soft_server(medium), images.set, {.per_image = 1, .in_flight = 4, .max_read = 4096});
    CHECK(reads.add({0, 4096, 4096, 0, nullptr}, 0));
    reads.submit();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      reads.abort();
    });
    reads.wait();
    other.join();
    CHECK(reads.take()[0].outcome == Outcome::aborted);
    CHECK(!reads.stop(std::chrono::milliseconds(10)));
  }
  gate->open();  // what was read lands in memory that nobody uses any more
}

void test_refused() {
  const Images images(1);
  const auto medium = harmful({});
  auto make = [&](const cuda::NvmeOptions& options) {
    cuda::NvmeReads(nvme::soft_server(medium), images.set, options);
  };
  check_refused("per_image", [&] { make({.per_image = 0}); });
  check_refused("in_flight: expected 2 to 4095, found 1", [&] { make({.in_flight = 1}); });
  check_refused("max_read", [&] { make({.max_read = 4 << 20}); });
}

}  // namespace

int main() {
  if (no_device("test_nvme_reads")) return kSkipped;
  const auto any_order = harmful({.shuffled = true}), in_order = harmful({});
  test_many_reads(any_order, 1, {.per_image = 4, .in_flight = 15, .max_read = 4096}, 1500);
  test_many_reads(any_order, 3, {.per_image = 2, .in_flight = 7, .max_read = 65536}, 400);
  test_many_reads(in_order, 2, {.per_image = 3, .in_flight = 2, .max_read = 8192}, 100);
  test_many_reads(nvme::usual_medium(64, 65536), 2, {}, 1200);
  test_failing_reads();
  test_lost();
  test_aborted();
  test_refused();
  std::cout << "test_nvme_reads: ok\n";
  return 0;
}
