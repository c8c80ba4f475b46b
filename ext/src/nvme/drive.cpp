#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <tiering/errors.hpp>
#include <tiering/nvme/drive.hpp>
#include <utility>

namespace tiering {
namespace {

// Registers, in bytes from the begin.
constexpr size_t kCapabilities = 0x00, kConfiguration = 0x14, kStatus = 0x1c, kAdminSizes = 0x24, kAdminCommands = 0x28,
                 kAdminCompletions = 0x30, kBells = 0x1000;
constexpr uint32_t kReady = 1, kFatal = 2;
constexpr uint32_t kEnabled = 4 << 20 | 6 << 16 | 1;  // entries of 2^4 and 2^6 bytes, pages of 4 KiB
constexpr uint32_t kEntries = 64;                     // of the admin queues
constexpr auto kAdminPatience = std::chrono::seconds(10);

template <typename Done>
bool wait_for(std::chrono::milliseconds longest, Done&& done) {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

Drive::Drive(std::string name, std::unique_ptr<DriveBus> bus)
    : name_(std::move(name)),
      bus_(std::move(bus)),
      registers_(bus_->registers()),
      memory_(static_cast<std::byte*>(std::aligned_alloc(DriveBus::kHostPage, 3 * DriveBus::kHostPage)), &std::free) {
  std::memset(memory_.get(), 0, 3 * DriveBus::kHostPage);
  addresses_ = bus_->map(memory_.get(), 3 * DriveBus::kHostPage, false);
  try {
    reset();
    identify();
  } catch (...) {
    leave();
    throw;
  }
}

Drive::~Drive() { leave(); }

void Drive::leave() noexcept {
  if (stop())
    bus_->unmap(memory_.get());
  else
    (void)memory_.release();  // the drive may write there
}

uint32_t* Drive::bell(uint32_t number) const {
  const uint32_t stride = uint32_t{4} << (load(kCapabilities + 4) & 15);
  const size_t at = kBells + size_t{number} * stride;
  TIERING_EXPECT(at + sizeof(uint32_t) <= DriveBus::kRegisterBytes, name_, ": no doorbell ", number,
                 " within the first ", DriveBus::kRegisterBytes, " bytes of registers; use fewer queues");
  return registers_ + at / sizeof(uint32_t);
}

bool Drive::await_ready(bool ready) noexcept {
  const auto longest = std::chrono::milliseconds(500) * std::max<uint32_t>(1, load(kCapabilities) >> 24);
  return wait_for(longest, [&] { return ((load(kStatus) & kReady) != 0) == ready; });
}

bool Drive::stop() noexcept {
  store(kConfiguration, load(kConfiguration) & ~uint32_t{1});
  return await_ready(false);
}

void Drive::reset() {
  const uint32_t high = load(kCapabilities + 4);
  TIERING_EXPECT(load(kCapabilities) != ~uint32_t{0}, name_, ": the drive's registers do not answer");
  TIERING_EXPECT((high >> 16 & 15) == 0, name_, ": expected a drive with memory pages of 4 KiB");
  TIERING_EXPECT((high >> 5 & 1) == 1, name_, ": expected a drive with NVM commands");
  facts_.most_depth = (load(kCapabilities) & 0xffff) + 1;
  if (!stop()) throw IoError(EIO, name_ + ": the drive did not stop; reset it");
  store(kAdminSizes, (kEntries - 1) << 16 | (kEntries - 1));
  store_address(kAdminCommands, addresses_[0]);
  store_address(kAdminCompletions, addresses_[1]);
  store(kConfiguration, kEnabled);
  if (!await_ready(true) || (load(kStatus) & kFatal) != 0)
    throw IoError(EIO, name_ + ": the drive did not start; reset it");
}

uint32_t Drive::admin(AdminOp op, const char* what, uint32_t space, uint64_t memory, uint32_t word10, uint32_t word11) {
  const uint32_t number = sent_++, entry = number % kEntries;
  DriveCommand command;
  command.words[0] = static_cast<uint32_t>(op) | (number & 0xffff) << 16;
  command.words[1] = space;
  command.words[6] = static_cast<uint32_t>(memory);
  command.words[7] = static_cast<uint32_t>(memory >> 32);
  command.words[10] = word10;
  command.words[11] = word11;
  std::memcpy(memory_.get() + entry * sizeof command, &command, sizeof command);
  std::atomic_ref(*bell(0)).store((number + 1) % kEntries, std::memory_order_seq_cst);
  auto* const completion = reinterpret_cast<DriveCompletion*>(memory_.get() + DriveBus::kHostPage) + entry;
  uint32_t last = 0;
  const bool came = wait_for(kAdminPatience, [&] {
    last = std::atomic_ref(completion->words[3]).load(std::memory_order_acquire);
    return DriveCompletion::phase(last) == phase_of(number, kEntries);
  });
  if (!came) throw IoError(EIO, name_ + ": " + what + ": the drive did not answer within 10 s; reset it");
  std::atomic_ref(*bell(1)).store((number + 1) % kEntries, std::memory_order_release);
  if (const uint32_t status = DriveCompletion::status(last); status != 0)
    throw IoError(EIO, name_ + ": " + what + ": the drive refused, with status " + std::to_string(status));
  return completion->words[0];
}

void Drive::identify() {
  const std::byte* const answer = memory_.get() + 2 * DriveBus::kHostPage;
  admin(AdminOp::identify, "identify the namespace", 1, addresses_[2], 0);
  std::memcpy(&facts_.blocks, answer, sizeof facts_.blocks);
  uint32_t format = 0;
  std::memcpy(&format, answer + 128 + 4 * (std::to_integer<int>(answer[26]) & 15), sizeof format);
  facts_.metadata_bytes = format & 0xffff;
  facts_.block_bytes = uint32_t{1} << (format >> 16 & 31);
}

void Drive::expect_image(int64_t page_bytes, int64_t image_bytes) const {
  const DriveFacts& has = facts_;
  TIERING_EXPECT(has.metadata_bytes == 0, name_, ": expected blocks without metadata, found ", has.metadata_bytes,
                 " bytes of it for each; format the drive without");
  // Every drive reads two memory pages at once, which is the least limit (MDTS) that it can have.
  TIERING_EXPECT(page_bytes <= 2 * kDrivePage && page_bytes % has.block_bytes == 0, name_, ": expected pages of ",
                 has.block_bytes, " to ", 2 * kDrivePage, " bytes in whole blocks, found ", page_bytes,
                 "; make the layout with --page 4KiB");
  TIERING_EXPECT(static_cast<uint64_t>(image_bytes) <= has.blocks * has.block_bytes, name_, ": expected space for ",
                 image_bytes, " bytes, found ", has.blocks * has.block_bytes, "; it is another drive, or too small");
}

void Drive::request_pairs(uint32_t pairs) {
  constexpr uint32_t kNumberOfQueues = 7;
  const uint32_t granted =
      admin(AdminOp::set_features, "ask for queues", 0, 0, kNumberOfQueues, (pairs - 1) << 16 | (pairs - 1));
  const uint32_t has = std::min(granted & 0xffff, granted >> 16) + 1;
  TIERING_EXPECT(has >= pairs, name_, ": expected ", pairs, " pairs of queues, found ", has);
}

void Drive::create_pair(uint32_t number, uint32_t depth, uint64_t submission, uint64_t completion) {
  const uint32_t id = number + 1, sizes = (depth - 1) << 16 | id, contiguous = 1;
  TIERING_EXPECT(depth <= facts_.most_depth, name_, ": expected queues of at most ", facts_.most_depth,
                 " entries, found ", depth);
  admin(AdminOp::create_completion, "make a completion queue", 0, completion, sizes, contiguous);
  admin(AdminOp::create_submission, "make a submission queue", 0, submission, sizes, id << 16 | contiguous);
}

}  // namespace tiering
