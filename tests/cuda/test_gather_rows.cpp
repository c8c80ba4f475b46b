// The combined gather on a device, against the same rows found on the CPU. Without a device it is skipped (exit 77).
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <tiering/cuda/gather_rows.hpp>
#include <tiering/cuda/memory.hpp>
#include <vector>

#include "../cpp/check.hpp"
#include "device.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

/// Memory that the device can read, filled from the host.
class Shared {
 public:
  Shared(const std::vector<std::byte>& content, bool on_device, size_t offset = 0) {
    const size_t bytes = content.size() + offset + 1;
    void* memory = nullptr;
    if (on_device) {
      cuda::check(cudaMalloc(&memory, bytes), "memory of the device");
      memory_ = {memory, [](void* p) { cudaFree(p); }};
    } else {
      cuda::check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "pinned memory");
      memory_ = {memory, [](void* p) { cudaFreeHost(p); }};
    }
    data_ = static_cast<std::byte*>(memory) + offset;
    cuda::check(cudaMemcpy(data_, content.data(), content.size(), cudaMemcpyDefault), "filling memory");
  }
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::shared_ptr<void> memory_;
  std::byte* data_;
};

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A simulated device is slow, and slower under a sanitizer.
#ifdef TIERING_SIMULATED
constexpr size_t kIds = 60;
constexpr int64_t kGpu = 20, kPeer = 51, kCpu = 100, kAll = 140, kPeers = 3;
#else
constexpr size_t kIds = 5000;
constexpr int64_t kGpu = 100, kPeer = 251, kCpu = 500, kAll = 700, kPeers = 3;
#endif

struct Case {
  int64_t row_bytes;
  size_t offset;  ///< of all tables and of the result from an aligned address
  cuda::GatherLaunch launch;
};

void test_rows(const Case& c) {
  std::mt19937_64 random(static_cast<uint64_t>(c.row_bytes));
  const auto size = static_cast<size_t>(c.row_bytes);
  std::vector<std::byte> all(kAll * size);
  for (auto& byte : all) byte = static_cast<std::byte>(random());
  auto rows = [&](int64_t begin, int64_t end) {
    return std::vector<std::byte>(all.begin() + begin * c.row_bytes, all.begin() + end * c.row_bytes);
  };
  std::vector<Shared> tables;
  RowTable table;
  table.row_bytes = c.row_bytes;
  table.ranges = {kGpu, kPeer, kCpu, kAll};
  table.num_peers = kPeers;
  table.local = tables.emplace_back(rows(0, kGpu), true, c.offset).data();
  for (int64_t p = 0; p < kPeers; ++p) {
    std::vector<std::byte> share;
    for (int64_t i = p; i < kPeer - kGpu; i += kPeers) {
      const auto row = rows(kGpu + i, kGpu + i + 1);
      share.insert(share.end(), row.begin(), row.end());
    }
    table.peers[p] = tables.emplace_back(share, true, c.offset).data();
  }
  table.host = tables.emplace_back(rows(kPeer, kCpu), false, c.offset).data();

  std::vector<int64_t> ids(kIds);
  std::vector<uint32_t> slots(ids.size(), ~uint32_t{0});
  std::vector<std::byte> staged, expected;
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(random() % kAll);
    const auto row = rows(ids[i], ids[i] + 1);
    expected.insert(expected.end(), row.begin(), row.end());
    if (ids[i] < kCpu) continue;
    slots[i] = static_cast<uint32_t>(staged.size() / size);
    staged.insert(staged.end(), row.begin(), row.end());
  }
  table.staged = tables.emplace_back(staged, false, c.offset).data();
  const std::vector<std::byte> empty(expected.size(), std::byte{0xee});
  const Shared slots_there(bytes_of(slots), true);
  const cuda::GpuStream stream;
  const auto expect = [&](const uint32_t* slots_of_ids, const uint32_t* places) {
    const Shared ids_there(bytes_of(ids), true), out(empty, true, c.offset);
    const cuda::GatherRequest request{.ids = ids_there.as<int64_t>(),
                                      .slots = slots_of_ids,
                                      .places = places,
                                      .count = static_cast<int64_t>(ids.size()),
                                      .out = out.data()};
    cuda::gather_rows(table, request, c.launch, stream.get());
    stream.synchronize();
    std::vector<std::byte> found(expected.size());
    cuda::check(cudaMemcpy(found.data(), out.data(), found.size(), cudaMemcpyDefault), "reading the rows");
    CHECK(found == expected);
  };
  expect(slots_there.as<uint32_t>(), nullptr);

  // Rows of ids outside the table are left alone, the others come.
  ids[40] = kAll;
  ids[17] = -1;
  for (size_t i : {17, 40}) std::fill_n(expected.begin() + static_cast<int64_t>(i * size), size, std::byte{0xee});
  expect(slots_there.as<uint32_t>(), nullptr);

  // Where no memory has them, the rows of the ssd tier are left as they are; with places rows go where these say.
  table.staged = nullptr;
  ids[40] = ids[17] = 0;
  std::vector<uint32_t> places(ids.size());
  std::iota(places.begin(), places.end(), 0U);
  std::shuffle(places.begin(), places.end(), random);
  const Shared places_there(bytes_of(places), true);
  const auto place_rows = [&](int64_t end) {
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < end)
        std::copy_n(all.begin() + ids[i] * c.row_bytes, c.row_bytes, expected.begin() + places[i] * c.row_bytes);
  };
  expected = empty;
  place_rows(kCpu);
  expect(nullptr, places_there.as<uint32_t>());

  // Where memory has all of them, no slots are needed.
  table.staged = tables.emplace_back(rows(kCpu, kAll), false, c.offset).data();
  place_rows(kAll);
  expect(nullptr, places_there.as<uint32_t>());
}

}  // namespace

int main() {
  if (no_device("test_gather_rows")) return kSkipped;
  for (const int64_t row_bytes : {1, 2, 4, 12, 64, 96, 128, 512, 602, 1204, 1536, 2408, 4096, 5000})
    for (const size_t offset : {size_t{0}, size_t{16}, size_t{4}, size_t{1}})
      for (const auto& launch : {cuda::GatherLaunch{}, cuda::GatherLaunch{3, 96, false}})
        test_rows({row_bytes, offset, launch});
  std::cout << "test_gather_rows: ok\n";
  return 0;
}
