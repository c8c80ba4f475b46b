#include <fcntl.h>
#include <nvm_admin.h>
#include <nvm_aq.h>
#include <nvm_ctrl.h>
#include <nvm_dma.h>
#include <nvm_error.h>
#include <nvm_types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <tiering/bam/drive.hpp>
#include <tiering/errors.hpp>
#include <tiering/io/read_engine.hpp>
#include <utility>

namespace tiering::bam {
namespace {

constexpr size_t kConfiguration = 0x14, kStatus = 0x1c;  // registers CC and CSTS
constexpr uint32_t kReady = 1;

struct FreeController {
  void operator()(nvm_ctrl_t* controller) const { nvm_ctrl_free(controller); }
};
struct Unmap {
  void operator()(nvm_dma_t* map) const { nvm_dma_unmap(map); }
};
struct EndAdmin {
  void operator()(nvm_admin_reference* admin) const { nvm_aq_destroy(admin); }
};
using Mapped = std::unique_ptr<nvm_dma_t, Unmap>;

/// Text without the blanks that pad it.
template <size_t N>
std::string trimmed(const char (&text)[N]) {
  std::string found(text, N);
  found.erase(std::find(found.begin(), found.end(), '\0'), found.end());
  found.erase(found.find_last_not_of(' ') + 1);
  return found;
}

class Memory final : public DriveMemory {
 public:
  explicit Memory(Mapped map) : map_(std::move(map)) {}
  std::span<const uint64_t> pages() const noexcept override { return {map_->ioaddrs, map_->n_ioaddrs}; }
  const nvm_dma_t* map() const noexcept { return map_.get(); }

 private:
  Mapped map_;
};

class NvmDrive;

class Pair final : public DrivePair {
 public:
  Pair(NvmDrive& drive, uint16_t number, nvme::QueuePair queues) : drive_(drive), number_(number), queues_(queues) {}
  ~Pair() override { remove(); }
  const nvme::QueuePair& queues() const noexcept override { return queues_; }
  bool remove() noexcept override;

 private:
  NvmDrive& drive_;
  uint16_t number_;
  bool removed_ = false;
  nvme::QueuePair queues_;

 public:
  nvm_queue_t completions{}, submissions{};
  friend class NvmDrive;
};

class NvmDrive final : public Drive {
 public:
  NvmDrive(nvm_ctrl_t* controller, const std::string& name, bool emulated, uint32_t pairs)
      : controller_(controller), emulated_(emulated), admin_memory_(3 * nvme::kPageBytes) {
    name_ = name;
    // libnvm gives its admin queues a page each, whatever the drive has.
    TIERING_EXPECT(controller_->max_qs >= nvme::kPageBytes / sizeof(nvme::Completion),
                   name_ + ": expected a drive with queues of at least 256 entries, which libnvm wants, found " +
                       std::to_string(controller_->max_qs));
    admin_map_ = map({admin_memory_.data(), 3 * nvme::kPageBytes});
    nvm_aq_ref admin = nullptr;
    check(nvm_aq_create(&admin, controller_.get(), admin_map_.get()), "cannot make its admin queues");
    admin_.reset(admin);
    // libnvm does not say that the drive did not come up.
    if ((reg(kStatus) & kReady) == 0)
      throw IoError(ETIMEDOUT, name_ + ": the drive did not get ready in " + std::to_string(controller_->timeout) +
                                   " ms after it was reset");
    identify();
    uint16_t completions = static_cast<uint16_t>(pairs), submissions = completions;
    check(nvm_admin_request_num_queues(admin_.get(), &completions, &submissions), "cannot ask for queues");
    info_.most_pairs = std::min(completions, submissions);
    for (uint32_t number = info_.most_pairs; number > 0; --number) free_.push_back(static_cast<uint16_t>(number));
  }

  /// The drive is switched off: it writes no more to memory that is then given back.
  ~NvmDrive() override {
    std::atomic_ref<uint32_t>(*at(kConfiguration)).store(reg(kConfiguration) & ~kReady, std::memory_order_release);
    for (uint64_t waited = 0; (reg(kStatus) & kReady) != 0 && waited < controller_->timeout; ++waited) usleep(1000);
  }

  const DriveInfo& info() const noexcept override { return info_; }

  std::unique_ptr<DriveMemory> share(std::span<std::byte> memory) override {
    return std::make_unique<Memory>(map(memory));
  }

  std::unique_ptr<DriveMemory> share_gpu(std::span<std::byte> memory) override {
    nvm_dma_t* made = nullptr;
    check(
        nvm_dma_map_device(&made, controller_.get(), memory.data(), memory.size()),
        "cannot use memory of a GPU: BaM's module was built without the NVIDIA driver's symbols, or BAR1 is too small");
    return std::make_unique<Memory>(Mapped(made));
  }

  std::unique_ptr<DrivePair> add_pair(const nvme::QueueMemory& where, const DriveMemory& memory) override {
    const auto& shared = dynamic_cast<const Memory&>(memory);
    TIERING_EXPECT(where.depth >= 2 && where.depth <= info_.most_entries && (where.depth & (where.depth - 1)) == 0,
                   "depth: expected a power of two from 2 to " + std::to_string(info_.most_entries) +
                       ", as many entries as queues of " + name_ + " have, found " + std::to_string(where.depth));
    const size_t page = where.commands_bytes() / nvme::kPageBytes;
    expect_contiguous(shared.pages().subspan(0, page));
    expect_contiguous(shared.pages().subspan(page, where.completions_bytes() / nvme::kPageBytes));
    const std::lock_guard lock(mutex_);
    TIERING_EXPECT(!free_.empty(), "pairs: expected at most " + std::to_string(info_.most_pairs) + ", which is what " +
                                       name_ + " has for us");
    const uint16_t number = free_.back();
    auto pair = std::make_unique<Pair>(*this, number, where.pair());
    pair->removed_ = true;  // until it is made
    check(nvm_admin_cq_create(admin_.get(), &pair->completions, number, shared.map(), page, where.depth),
          "cannot make a completion queue");
    const int code =
        nvm_admin_sq_create(admin_.get(), &pair->submissions, &pair->completions, number, shared.map(), 0, where.depth);
    if (code != 0) nvm_admin_cq_delete(admin_.get(), &pair->completions);
    check(code, "cannot make a submission queue");
    pair->queues_.submit_bell = const_cast<uint32_t*>(pair->submissions.db);
    pair->queues_.complete_bell = const_cast<uint32_t*>(pair->completions.db);
    pair->removed_ = false;
    free_.pop_back();
    return pair;
  }

  bool remove(Pair& pair) noexcept {
    const std::lock_guard lock(mutex_);
    if (nvm_admin_sq_delete(admin_.get(), &pair.submissions, &pair.completions) != 0) return false;
    if (nvm_admin_cq_delete(admin_.get(), &pair.completions) != 0) return false;
    free_.push_back(pair.number_);
    return true;
  }

 private:
  uint32_t* at(size_t offset) const {
    return reinterpret_cast<uint32_t*>(const_cast<std::byte*>(static_cast<volatile std::byte*>(controller_->mm_ptr)) +
                                       offset);
  }
  uint32_t reg(size_t offset) const { return std::atomic_ref<uint32_t>(*at(offset)).load(std::memory_order_acquire); }

  void check(int code, const std::string& what) const {
    if (code == 0) return;
    // libnvm gives the status of a command as a negative number, else errno.
    if (code < 0)
      throw IoError(EIO,
                    name_ + ": " + what + ": NVMe status " + std::to_string(-code) + " (" + nvm_strerror(code) + ")");
    throw IoError(code == ETIME ? ETIMEDOUT : code, name_ + ": " + what + ": " + nvm_strerror(code));
  }

  void expect_contiguous(std::span<const uint64_t> pages) const {
    for (size_t i = 1; i < pages.size(); ++i)
      TIERING_EXPECT(pages[i] == pages[0] + i * nvme::kPageBytes,
                     "depth: queues of more than a page want memory that is contiguous for " + name_ +
                         ": use fewer entries, or memory of a GPU or of huge pages");
  }

  Mapped map(std::span<std::byte> memory) const {
    nvm_dma_t* made = nullptr;
    if (emulated_) {
      std::vector<uint64_t> pages;
      for (size_t p = 0; p * nvme::kPageBytes < memory.size(); ++p)
        pages.push_back(reinterpret_cast<uint64_t>(memory.data()) + p * nvme::kPageBytes);
      check(nvm_dma_map(&made, controller_.get(), memory.data(), nvme::kPageBytes, pages.size(), pages.data()),
            "cannot share memory");
    } else {
      check(nvm_dma_map_host(&made, controller_.get(), memory.data(), memory.size()),
            "cannot share memory of the host");
    }
    return Mapped(made);
  }

  void identify() {
    std::byte* const answer = admin_memory_.data() + 2 * nvme::kPageBytes;
    nvm_ctrl_info controller{};
    check(nvm_admin_ctrl_info(admin_.get(), &controller, answer, admin_map_->ioaddrs[2]), "cannot identify the drive");
    std::memset(answer, 0, nvme::kPageBytes);
    nvm_ns_info name_space{};
    check(nvm_admin_ns_info(admin_.get(), &name_space, 1, answer, admin_map_->ioaddrs[2]),
          "cannot identify namespace 1");
    info_.model = trimmed(controller.model_no);
    info_.serial = trimmed(controller.serial_no);
    info_.blocks = name_space.size;
    info_.block_bytes = static_cast<uint32_t>(name_space.lba_data_size);
    info_.most_entries = std::min<uint32_t>(static_cast<uint32_t>(controller_->max_qs), nvme::kMostEntries);
    info_.most_read = static_cast<uint32_t>(std::min<size_t>(controller.max_data_size, nvme::kMostReadBytes));
    TIERING_EXPECT(info_.block_bytes >= 512 && info_.block_bytes <= nvme::kPageBytes && info_.blocks > 0,
                   name_ + ": expected a namespace 1 with blocks of 512 to 4096 bytes, found " +
                       std::to_string(info_.blocks) + " of " + std::to_string(info_.block_bytes));
  }

  std::unique_ptr<nvm_ctrl_t, FreeController> controller_;
  bool emulated_;
  AlignedBuffer admin_memory_;  ///< completions, commands, and what identify commands answer
  Mapped admin_map_;
  std::unique_ptr<nvm_admin_reference, EndAdmin> admin_;
  DriveInfo info_;
  std::mutex mutex_;            ///< held while pairs are made and removed
  std::vector<uint16_t> free_;  ///< numbers of pairs that there may be yet
};

bool Pair::remove() noexcept {
  if (!removed_) removed_ = drive_.remove(*this);
  return removed_;
}

}  // namespace

std::unique_ptr<Drive> Drive::open(const std::string& path, uint32_t pairs) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    const int code = errno;
    throw IoError(code, path + ": " + std::strerror(code) +
                            ": expected a drive of BaM's module: load it and unbind the drive from the kernel's nvme "
                            "driver (docs/gpu-ssd.md)");
  }
  nvm_ctrl_t* made = nullptr;
  const int code = nvm_ctrl_init(&made, file);
  close(file);
  if (code != 0) throw IoError(code, path + ": cannot map the registers of the drive: " + std::strerror(code));
  return std::make_unique<NvmDrive>(made, path, false, pairs);
}

std::unique_ptr<Drive> Drive::over(volatile void* registers, size_t bytes, const std::string& name, uint32_t pairs) {
  nvm_ctrl_t* made = nullptr;
  const int code = nvm_raw_ctrl_init(&made, registers, bytes);
  if (code != 0) throw IoError(code, name + ": cannot use the registers of the drive: " + std::strerror(code));
  return std::make_unique<NvmDrive>(made, name, true, pairs);
}

void Drive::expect_room(uint64_t bytes, uint32_t page_bytes) const {
  const uint64_t there = info().blocks * info().block_bytes;
  TIERING_EXPECT(there >= bytes, name_ + ": expected a namespace of at least " + std::to_string(bytes) +
                                     " bytes, found " + std::to_string(there) +
                                     "; use a larger drive, or more of them");
  TIERING_EXPECT(page_bytes % info().block_bytes == 0,
                 name_ + ": expected blocks that divide a page of " + std::to_string(page_bytes) + " bytes, found " +
                     std::to_string(info().block_bytes) + "; make the layout with larger pages, or format the drive");
}

}  // namespace tiering::bam
