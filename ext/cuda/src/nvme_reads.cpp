#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <tiering/cuda/gpu_bells.hpp>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/nvme_reads.hpp>
#include <tiering/nvme/engine_reads.hpp>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <utility>
#include <vector>

#include "nvme_waves.hpp"

namespace tiering::cuda {
namespace {

using nvme::InFlight;
using nvme::QueueMemory;

constexpr uint32_t kWaves = 2;
constexpr uint32_t kBusyTries = 64;  // looks at an event before the thread sleeps between looks
constexpr auto kSleep = std::chrono::microseconds(20);
constexpr auto kQuiet = std::chrono::seconds(1);  // until reads must have come to rest

/// Tables of a wave in page-locked memory: shares of queues, reads, results.
class WaveTables {
 public:
  WaveTables(uint32_t queues, uint32_t most_reads)
      : memory_(queues * sizeof(WaveShare) + most_reads * (sizeof(WaveRead) + sizeof(NvmeResult))) {
    wave.reads = memory_.as<WaveRead>();
    wave.results = reinterpret_cast<NvmeResult*>(wave.reads + most_reads);
    wave.shares = reinterpret_cast<WaveShare*>(wave.results + most_reads);
  }

  Wave wave;
  GpuEvent arrived;

 private:
  PinnedMemory memory_;
};

/// A pinned page whose first word ends the wait of kernels.
PinnedMemory no_abort() {
  PinnedMemory memory(sizeof(uint32_t));
  *memory.as<uint32_t>() = 0;
  return memory;
}

/// For as long as the process runs. Otherwise its last owner might be a controller's thread, which would free it by a
/// call of CUDA.
void keep(std::shared_ptr<PinnedMemory> memory) noexcept {
  static std::mutex mutex;
  static auto& kept = *new std::list<std::shared_ptr<PinnedMemory>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

std::byte* aligned(std::byte* memory, size_t bytes) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory) + bytes - 1) / bytes * bytes);
}

/// Memory of the GPU that an image's commands take.
int64_t commands_bytes(uint32_t pairs, const QueueMemory& layout) {
  const size_t pages = (pairs * layout.commands_bytes() + nvme::kGpuPageBytes - 1) / nvme::kGpuPageBytes;
  return static_cast<int64_t>(pages * nvme::kGpuPageBytes);
}

void expect_possible(const ImageSet& images, const NvmeOptions& options) {
  auto expect = [](bool fine, const std::string& what, uint32_t found) {
    if (!fine) throw InputError("NVMe reads by the GPU: " + what + ", found " + std::to_string(found));
  };
  expect(!images.images.empty(), "expected at least one image", 0);
  expect(options.per_image > 0, "per_image: expected at least 1 pair of queues", options.per_image);
  expect(options.in_flight >= 2 && options.in_flight < nvme::kMostEntries,
         "in_flight: expected 2 to " + std::to_string(nvme::kMostEntries - 1), options.in_flight);
  expect(options.max_read > 0 && options.max_read <= nvme::kMostReadBytes,
         "max_read: expected 1 to " + std::to_string(nvme::kMostReadBytes) + " bytes", options.max_read);
}

}  // namespace

struct NvmeReads::State {
  State(const nvme::PairServer& server, const ImageSet& images, const NvmeOptions& options);
  bool stop(std::chrono::nanoseconds patience) noexcept;

  void make_queues();
  nvme::HeldMemory commands_of(uint32_t image) const;
  void serve(const nvme::PairServer& server, uint32_t number, uint32_t image, const ImageFile& file);
  void begin();
  WaveTables& oldest() { return *tables[taken % kWaves]; }
  Wave& building() { return tables[submitted % kWaves]->wave; }

  NvmeQueues queues;
  uint32_t depth;
  uint32_t wave_commands;  ///< of a queue
  std::array<std::unique_ptr<WaveTables>, kWaves> tables;
  std::vector<uint32_t> added;        ///< reads of the wave that is made, by image
  uint32_t submitted = 0, taken = 0;  ///< waves
  bool expected = false;              ///< the oldest one
  PinnedMemory abort_word = no_abort();
  DeviceMemory device_queues, free_ids, in_flight, addresses;
  std::vector<NvmeQueue> host_queues;      ///< as they were at first
  std::vector<QueueMemory> layouts;        ///< of these
  std::shared_ptr<PinnedMemory> memory;    ///< queues and landing places of all
  std::shared_ptr<DeviceMemory> commands;  ///< of all, where the GPU has to have them
  std::vector<std::unique_ptr<nvme::Controller>> controllers;
  std::vector<std::unique_ptr<GpuBells>> bells;
  GpuStream stream;
  bool stopped = false;
};

NvmeReads::State::State(const nvme::PairServer& server, const ImageSet& images, const NvmeOptions& options)
    : depth(QueueMemory::depth_for(options.in_flight)), wave_commands(options.in_flight / kWaves) {
  const bool one = options.only_image >= 0;
  queues.images = one ? 1 : static_cast<uint32_t>(images.images.size());
  queues.per_image = options.per_image;
  queues.patience = static_cast<uint64_t>(options.patience.count());
  queues.abort = abort_word.as<uint32_t>();
  for (auto& table : tables) table = std::make_unique<WaveTables>(queues.count(), queues.count() * wave_commands);
  added.assign(queues.images, 0);
  QueueMemory layout{nullptr, depth, QueueMemory::whole_pages(options.max_read)};
  queues.place_bytes = layout.place_bytes;
  // A page more: page-locked memory need not begin at a page's border.
  memory = std::make_shared<PinnedMemory>(static_cast<int64_t>(queues.count() * layout.bytes() + nvme::kPageBytes));
  layout.begin = aligned(memory->data(), nvme::kPageBytes);
  for (uint32_t q = 0; q < queues.count(); ++q, layout.begin += layout.bytes()) {
    std::memset(layout.begin, 0, static_cast<size_t>(layout.place(0) - layout.begin));
    layouts.push_back(layout);
    NvmeQueue& queue = host_queues.emplace_back();
    queue.pair = layout.pair();
    queue.places = layout.place(0);
    queue.place_bytes = layout.place_bytes;
  }
  make_queues();
  if (server.commands_on_gpu)
    commands = std::make_shared<DeviceMemory>((queues.images + 1) * commands_bytes(queues.per_image, layout), true);
  for (uint32_t i = 0; i < queues.images; ++i) {
    const uint32_t number = one ? static_cast<uint32_t>(options.only_image) : i;
    serve(server, number, i, images.images[number]);
  }
  begin();
}

/// Books lie in memory of the GPU; their first state is made here.
void NvmeReads::State::make_queues() {
  const size_t entries = size_t{queues.count()} * depth;
  std::vector<uint16_t> ids(entries);
  std::vector<InFlight> flying(entries);
  free_ids = DeviceMemory(static_cast<int64_t>(entries * sizeof(uint16_t)));
  in_flight = DeviceMemory(static_cast<int64_t>(entries * sizeof(InFlight)));
  addresses = DeviceMemory(static_cast<int64_t>(entries * sizeof(PlaceAddress)));
  for (uint32_t q = 0; q < queues.count(); ++q) {
    NvmeQueue& queue = host_queues[q];
    queue.books = {ids.data() + q * depth, flying.data() + q * depth};
    reset(queue.pair, queue.books);
    queue.books.free_ids = free_ids.as<uint16_t>() + q * depth;
    queue.books.in_flight = in_flight.as<InFlight>() + q * depth;
    queue.addresses = addresses.as<PlaceAddress>() + q * depth;
  }
  copy_async(free_ids.data(), ids.data(), free_ids.size(), stream.get(), "filling books");
  copy_async(in_flight.data(), flying.data(), in_flight.size(), stream.get(), "filling books");
  stream.synchronize();
}

/// Memory of the GPU for an image's commands, in pages of its own.
nvme::HeldMemory NvmeReads::State::commands_of(uint32_t image) const {
  if (!commands) return {};
  const auto bytes = static_cast<size_t>(commands_bytes(queues.per_image, layouts.front()));
  return {{aligned(commands->data(), nvme::kGpuPageBytes) + image * bytes, bytes}, commands};
}

/// Has image `number` of the set served, which is `image` here.
void NvmeReads::State::serve(const nvme::PairServer& server, uint32_t number, uint32_t image, const ImageFile& file) {
  const uint32_t first = image * queues.per_image;
  NvmeQueue* const own = host_queues.data() + first;
  const std::vector<QueueMemory> where(layouts.begin() + first, layouts.begin() + first + queues.per_image);
  const nvme::HeldMemory held{{where[0].begin, queues.per_image * where[0].bytes()}, memory};
  nvme::ServedPairs served = server.serve({number, file, where, {held}, commands_of(image)});
  controllers.push_back(std::move(served.controller));
  if (!served.registers.empty()) bells.push_back(std::make_unique<GpuBells>(served.registers));
  std::vector<PlaceAddress> known;
  for (uint32_t q = 0; q < queues.per_image; ++q) {
    own[q].pair = served.registers.empty() ? served.pairs[q] : bells.back()->of(served.pairs[q]);
    own[q].block_bytes = controllers.back()->block_bytes();
    own[q].blocks = controllers.back()->blocks();
    for (uint32_t place = 0; place < depth; ++place)
      known.push_back(PlaceAddress::of(where[q].landing(), place, served.prps));
  }
  queues.block_bytes = std::max(queues.block_bytes, own->block_bytes);
  copy_async(addresses.as<PlaceAddress>() + first * depth, known.data(),
             static_cast<int64_t>(known.size() * sizeof(PlaceAddress)), stream.get(), "filling books");
  stream.synchronize();
}

/// Runs each kernel once with nothing to do: loading it later could wait for one that waits.
void NvmeReads::State::begin() {
  device_queues = DeviceMemory(static_cast<int64_t>(host_queues.size() * sizeof(NvmeQueue)));
  queues.queues = device_queues.as<NvmeQueue>();
  copy_async(queues.queues, host_queues.data(), device_queues.size(), stream.get(), "filling books");
  const Wave& nothing = tables[0]->wave;
  std::fill_n(nothing.shares, queues.count(), WaveShare{});
  submit_wave(queues, nothing, stream.get());
  complete_wave(queues, nothing, stream.get());
  stream.synchronize();
}

bool NvmeReads::State::stop(std::chrono::nanoseconds patience) noexcept {
  if (stopped) return true;
  nvme::HostLink::store_release(abort_word.as<uint32_t>(), 1);
  bool rest = cudaStreamSynchronize(stream.get()) == cudaSuccess;
  if (!rest) (void)cudaGetLastError();  // the GPU is lost, and whoever uses it next is told
  for (const auto& controller : controllers) rest &= controller->stop(patience);
  if (!rest) keep(memory);
  stopped = true;
  return rest;
}

NvmeReads::NvmeReads(const nvme::PairServer& server, const ImageSet& images, const NvmeOptions& options) {
  expect_possible(images, options);
  state_ = std::make_unique<State>(server, images, options);
}

NvmeReads::~NvmeReads() { state_->stop(kQuiet); }

bool NvmeReads::add(const Read& read, uint32_t request) {
  State& s = *state_;
  uint32_t& of_image = s.added[read.image];
  if (under_way() == kWaves || of_image == s.queues.per_image * s.wave_commands) return false;
  const auto blocks = nvme::blocks_of(*s.controllers[read.image], read);
  Wave& wave = s.building();
  wave.reads[wave.num_reads++] = {.block = blocks.block,
                                  .blocks = blocks.blocks,
                                  .queue = read.image * s.queues.per_image + of_image % s.queues.per_image,
                                  .ahead = of_image / s.queues.per_image,
                                  .request = request};
  ++of_image;
  return true;
}

uint32_t NvmeReads::added() const noexcept { return state_->building().num_reads; }
uint32_t NvmeReads::under_way() const noexcept { return state_->submitted - state_->taken; }

void NvmeReads::submit() {
  State& s = *state_;
  const Wave& wave = s.building();
  uint32_t first = 0;
  for (uint32_t q = 0; q < s.queues.count(); ++q) {
    const uint32_t of_image = s.added[q / s.queues.per_image], behind = q % s.queues.per_image;
    const uint32_t count = (of_image + s.queues.per_image - 1 - behind) / s.queues.per_image;
    wave.shares[q] = {first, count};
    first += count;
  }
  submit_wave(s.queues, wave, s.stream.get());
  s.added.assign(s.queues.images, 0);
  ++s.submitted;
}

void NvmeReads::expect() {
  State& s = *state_;
  if (std::exchange(s.expected, true)) return;
  complete_wave(s.queues, s.oldest().wave, s.stream.get());
  s.oldest().arrived.record(s.stream.get());
}

bool NvmeReads::arrived() const { return state_->expected && state_->oldest().arrived.reached(); }

void NvmeReads::wait() {
  expect();
  for (uint32_t tries = 0; !arrived(); ++tries) {
    if (tries < kBusyTries) continue;
    std::this_thread::sleep_for(kSleep);
    const auto& all = state_->controllers;
    if (!std::all_of(all.begin(), all.end(), [](const auto& controller) { return controller->running(); })) abort();
  }
}

std::span<const NvmeResult> NvmeReads::take() {
  State& s = *state_;
  Wave& wave = s.oldest().wave;
  s.expected = false;
  ++s.taken;
  return {wave.results, std::exchange(wave.num_reads, 0)};
}

void NvmeReads::abort() noexcept { nvme::HostLink::store_release(state_->abort_word.as<uint32_t>(), 1); }
bool NvmeReads::stop(std::chrono::nanoseconds patience) noexcept { return state_->stop(patience); }
const NvmeQueues& NvmeReads::queues() const noexcept { return state_->queues; }
cudaStream_t NvmeReads::stream() const noexcept { return state_->stream.get(); }
const nvme::Controller& NvmeReads::controller(uint32_t image) const { return *state_->controllers[image]; }

}  // namespace tiering::cuda
