#include <fcntl.h>
#include <nvm_admin.h>
#include <nvm_aq.h>
#include <nvm_ctrl.h>
#include <nvm_dma.h>
#include <nvm_types.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <tiering/bam/drive.hpp>
#include <tiering/errors.hpp>
#include <tiering/io/read_engine.hpp>
#include <utility>

#include "nvm_memory.hpp"

namespace tiering::bam {
namespace {

constexpr size_t kConfiguration = 0x14, kStatus = 0x1c, kBells = 0x1000;  // registers CC, CSTS and the first doorbell
constexpr uint32_t kReady = 1;
constexpr uint64_t kLeastPatience = 500;  // milliseconds: the unit of CAP.TO
constexpr size_t kMostReadByte = 77;      // of what a drive answers: MDTS, 0 for any length

struct FreeController {
  void operator()(nvm_ctrl_t* controller) const { nvm_ctrl_free(controller); }
};
struct EndAdmin {
  void operator()(nvm_admin_reference* admin) const { nvm_aq_destroy(admin); }
};
struct UnmapRegisters {
  void operator()(void* registers) const { munmap(registers, NVM_CTRL_MEM_MINSIZE); }
};

/// Text without the blanks that pad it.
template <size_t N>
std::string trimmed(const char (&text)[N]) {
  std::string found(text, N);
  found.erase(std::find(found.begin(), found.end(), '\0'), found.end());
  found.erase(found.find_last_not_of(' ') + 1);
  return found;
}

uint32_t* register_at(const nvm_ctrl_t& controller, size_t offset) {
  auto* const registers = const_cast<std::byte*>(static_cast<volatile std::byte*>(controller.mm_ptr));
  return reinterpret_cast<uint32_t*>(registers + offset);
}

uint32_t load_register(const nvm_ctrl_t& controller, size_t offset) {
  return std::atomic_ref<uint32_t>(*register_at(controller, offset)).load(std::memory_order_acquire);
}

/// A drive that is switched on, with its admin queues; switched off when it ends, whatever came of it meanwhile.
class Admin {
 public:
  static constexpr size_t kAnswer = 2;  ///< page that commands answer to, behind those of the queues

  Admin(const nvm_ctrl_t& controller, const std::string& name, Flipped emulated)
      : controller_(controller), memory_(std::make_unique<AlignedBuffer>(3 * nvme::kPageBytes, true)) {
    map_ = map_memory(&controller, name, emulated, {memory_->data(), 3 * nvme::kPageBytes});
    nvm_aq_ref made = nullptr;
    check(nvm_aq_create(&made, &controller, map_.get()), name, "cannot make its admin queues");
    queues_.reset(made);
  }
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;
  ~Admin() {
    if (!ours()) {
      keep();
      return;
    }
    uint32_t* const configuration = register_at(controller_, kConfiguration);
    std::atomic_ref<uint32_t>(*configuration)
        .store(load_register(controller_, kConfiguration) & ~kReady, std::memory_order_release);
    for (uint64_t waited = 0; ready() && waited < controller_.timeout; ++waited) usleep(1000);
    if (ready()) keep();  // the drive may write to it as long as it is on
  }

  bool ours() const { return owner_ == getpid(); }
  bool ready() const { return (load_register(controller_, kStatus) & kReady) != 0; }
  nvm_aq_ref queues() const { return queues_.get(); }
  std::byte* answer() const { return memory_->data() + kAnswer * nvme::kPageBytes; }
  uint64_t answer_address() const { return map_->ioaddrs[kAnswer]; }

 private:
  /// Keeps the memory for good, and its mapping, which the module would end for everybody.
  void keep() {
    static auto* const mutex = new std::mutex;
    static auto* const kept = new std::vector<std::pair<std::unique_ptr<AlignedBuffer>, Mapped>>;
    const std::lock_guard lock(*mutex);
    kept->emplace_back(std::move(memory_), std::move(map_));
  }

  const pid_t owner_ = getpid();
  const nvm_ctrl_t& controller_;
  std::unique_ptr<AlignedBuffer> memory_;  ///< completions, commands, and what commands answer
  Mapped map_;
  std::unique_ptr<nvm_admin_reference, EndAdmin> queues_;
};

class NvmDrive;

class Pair final : public DrivePair {
 public:
  Pair(NvmDrive& drive, uint16_t number, nvme::QueuePair queues) : drive_(drive), number_(number), queues_(queues) {}
  ~Pair() override { remove(); }
  const nvme::QueuePair& queues() const noexcept override { return queues_; }
  bool remove() noexcept override;

 private:
  friend class NvmDrive;
  NvmDrive& drive_;
  uint16_t number_;
  bool made_ = false;
  nvme::QueuePair queues_;
  nvm_queue_t completions_{}, submissions_{};
};

class NvmDrive final : public Drive {
 public:
  NvmDrive(nvm_ctrl_t* controller, const std::string& name, Flipped emulated, uint32_t pairs)
      : controller_(controller), emulated_(emulated) {
    name_ = name;
    TIERING_EXPECT(pairs >= 1 && pairs <= kMostPairs, "pairs: expected 1 to " + std::to_string(kMostPairs) +
                                                          " pairs of queues of " + name_ + ", found " +
                                                          std::to_string(pairs));
    expect_usable();
    controller_->timeout = std::max(controller_->timeout, kLeastPatience);
    admin_ = std::make_unique<Admin>(*controller_, name_, emulated_);
    // libnvm does not say that the drive did not come up.
    if (!admin_->ready())
      throw IoError(ETIMEDOUT, name_ + ": the drive did not get ready in " + std::to_string(controller_->timeout) +
                                   " ms after it was reset");
    identify();
    uint16_t completions = static_cast<uint16_t>(pairs), submissions = completions;
    check(nvm_admin_request_num_queues(admin_->queues(), &completions, &submissions), "cannot ask for queues");
    info_.most_pairs = std::min<uint32_t>({completions, submissions, pairs_with_bells()});
    for (uint32_t number = info_.most_pairs; number > 0; --number) free_.push_back(static_cast<uint16_t>(number));
  }

  const DriveInfo& info() const noexcept override { return info_; }
  std::span<std::byte> registers() const noexcept override {
    return {reinterpret_cast<std::byte*>(register_at(*controller_, 0)), controller_->mm_size};
  }

  std::unique_ptr<DriveMemory> share(std::span<std::byte> memory) override {
    expect_pages(memory, nvme::kPageBytes);
    return std::make_unique<NvmMemory>(map_memory(controller_.get(), name_, emulated_, memory), controller_.get());
  }

  std::unique_ptr<DriveMemory> share_gpu(std::span<std::byte> memory) override {
    expect_pages(memory, nvme::kGpuPageBytes);
    if (emulated_) return share(memory);
    nvm_dma_t* made = nullptr;
    check(
        nvm_dma_map_device(&made, controller_.get(), memory.data(), memory.size()),
        "cannot use memory of a GPU: BaM's module was built without the NVIDIA driver's symbols, or BAR1 is too small");
    return std::make_unique<NvmMemory>(whole(made, name_), controller_.get());
  }

  std::unique_ptr<DrivePair> add_pair(const nvme::QueuePair& entries, const DriveMemory& commands,
                                      const DriveMemory& completions) override {
    const std::lock_guard lock(mutex_);
    expect_pair(entries.depth);
    const size_t commands_bytes = entries.depth * sizeof(nvme::Command);
    const size_t completions_bytes = entries.depth * sizeof(nvme::Completion);
    const nvm_dma_t* const commands_map = expect_entries("commands", entries.commands, commands_bytes, commands);
    const nvm_dma_t* const completions_map =
        expect_entries("completions", entries.completions, completions_bytes, completions);
    auto pair = std::make_unique<Pair>(*this, free_.back(), entries);
    check(nvm_admin_cq_create(admin_->queues(), &pair->completions_, pair->number_, completions_map,
                              completions.page_of(entries.completions), entries.depth),
          "cannot make a completion queue");
    const int code = nvm_admin_sq_create(admin_->queues(), &pair->submissions_, &pair->completions_, pair->number_,
                                         commands_map, commands.page_of(entries.commands), entries.depth);
    if (code < 0) nvm_admin_cq_delete(admin_->queues(), &pair->completions_);
    check(code, "cannot make a submission queue");
    pair->queues_.submit_bell = const_cast<uint32_t*>(pair->submissions_.db);
    pair->queues_.complete_bell = const_cast<uint32_t*>(pair->completions_.db);
    pair->made_ = true;
    free_.pop_back();
    return pair;
  }

  /// A drive that does not answer is not asked again.
  bool remove(Pair& pair) noexcept {
    if (!admin_->ours()) return false;
    const std::lock_guard lock(mutex_);
    answers_ = answers_ && nvm_admin_sq_delete(admin_->queues(), &pair.submissions_, &pair.completions_) == 0 &&
               nvm_admin_cq_delete(admin_->queues(), &pair.completions_) == 0;
    if (answers_) free_.push_back(pair.number_);
    return answers_;
  }

 private:
  static constexpr uint32_t kMostPairs = 65535;

  void check(int code, const std::string& what) const { bam::check(code, name_, what); }

  /// Before the drive is reset: what its registers say at once.
  void expect_usable() const {
    TIERING_EXPECT(controller_->page_size == nvme::kPageBytes, name_ + ": expected a system with pages of " +
                                                                   std::to_string(nvme::kPageBytes) + " bytes, found " +
                                                                   std::to_string(controller_->page_size));
    // libnvm gives its admin queues a page each, whatever the drive has.
    TIERING_EXPECT(controller_->max_qs >= nvme::kPageBytes / sizeof(nvme::Completion),
                   name_ + ": expected a drive with queues of at least 256 entries, which libnvm wants, found " +
                       std::to_string(controller_->max_qs));
  }

  /// Pairs of queues whose doorbells are among the registers that are mapped.
  uint32_t pairs_with_bells() const {
    return static_cast<uint32_t>((controller_->mm_size - kBells) / (size_t{8} << controller_->dstrd)) - 1;
  }

  void expect_pages(std::span<std::byte> memory, size_t page_bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    TIERING_EXPECT(!memory.empty() && begin % page_bytes == 0 && memory.size() % page_bytes == 0,
                   "memory: expected whole pages of " + std::to_string(page_bytes) + " bytes to share with " + name_ +
                       ", found " + std::to_string(memory.size()) + " bytes, " + std::to_string(begin % page_bytes) +
                       " bytes into a page");
  }

  void expect_pair(uint32_t depth) const {
    TIERING_EXPECT(depth >= 2 && depth <= info_.most_entries && (depth & (depth - 1)) == 0,
                   "depth: expected a power of two from 2 to " + std::to_string(info_.most_entries) +
                       ", as many entries as queues of " + name_ + " have, found " + std::to_string(depth));
    TIERING_EXPECT(!free_.empty(),
                   "pairs: expected at most " + std::to_string(info_.most_pairs) + ", which is what " + name_ + " has");
  }

  /// libnvm's name for the memory that entries lie in.
  const nvm_dma_t* expect_entries(const char* what, const void* entries, size_t bytes,
                                  const DriveMemory& memory) const {
    const auto& shared = dynamic_cast<const NvmMemory&>(memory);
    const auto into_page = reinterpret_cast<uintptr_t>(entries) % nvme::kPageBytes;
    TIERING_EXPECT(shared.controller() == controller_.get() && shared.holds(entries, bytes) && into_page == 0,
                   "memory: expected " + std::to_string(bytes) + " bytes for " + what + " in memory that " + name_ +
                       " shares, from a page's begin on, found other memory, or less of it");
    const size_t pages = (bytes + nvme::kPageBytes - 1) / nvme::kPageBytes;
    expect_contiguous(shared.pages().subspan(shared.page_of(entries), pages));
    return shared.map();
  }

  void expect_contiguous(std::span<const uint64_t> pages) const {
    for (size_t i = 1; i < pages.size(); ++i)
      TIERING_EXPECT(pages[i] == pages[0] + i * nvme::kPageBytes,
                     "depth: queues of more than a page want memory that is contiguous for " + name_ +
                         ": use fewer entries, or memory of a GPU or of huge pages");
  }

  void identify() {
    nvm_ctrl_info controller{};
    check(nvm_admin_ctrl_info(admin_->queues(), &controller, admin_->answer(), admin_->answer_address()),
          "cannot identify the drive");
    const bool any_length = admin_->answer()[kMostReadByte] == std::byte{0};
    nvm_ns_info name_space{};
    check(nvm_admin_ns_info(admin_->queues(), &name_space, 1, admin_->answer(), admin_->answer_address()),
          "cannot identify namespace 1");
    info_.model = trimmed(controller.model_no);
    info_.serial = trimmed(controller.serial_no);
    info_.blocks = name_space.size;
    info_.block_bytes = static_cast<uint32_t>(name_space.lba_data_size);
    info_.most_entries = std::min<uint32_t>(static_cast<uint32_t>(controller_->max_qs), nvme::kMostEntries);
    info_.most_read = any_length
                          ? nvme::kMostReadBytes
                          : static_cast<uint32_t>(std::min<size_t>(controller.max_data_size, nvme::kMostReadBytes));
    TIERING_EXPECT(info_.block_bytes >= 512 && info_.block_bytes <= nvme::kPageBytes && info_.blocks > 0,
                   name_ + ": expected a namespace 1 with blocks of 512 to 4096 bytes, found " +
                       std::to_string(info_.blocks) + " of " + std::to_string(info_.block_bytes));
    // They would land where nobody said: behind the blocks, or at address 0.
    TIERING_EXPECT(name_space.metadata_size == 0, name_ + ": expected blocks without metadata, found " +
                                                      std::to_string(name_space.metadata_size) +
                                                      " bytes of it for each; format the namespace without");
  }

  std::unique_ptr<nvm_ctrl_t, FreeController> controller_;
  Flipped emulated_;
  std::unique_ptr<Admin> admin_;
  DriveInfo info_;
  std::mutex mutex_;            ///< held while pairs are made and removed
  std::vector<uint16_t> free_;  ///< numbers of pairs that there may be yet
  bool answers_ = true;
};

bool Pair::remove() noexcept {
  if (made_) made_ = !drive_.remove(*this);
  return !made_;
}

/// A drive that was taken away, or whose memory the system has switched off, reads as ones.
void expect_answer(const void* registers, const std::string& name) {
  const auto* const capabilities = static_cast<const volatile uint32_t*>(registers);
  if ((capabilities[0] & capabilities[1]) == ~0U)
    throw IoError(ENODEV, name + ": the drive does not answer, its registers read as ones: is it switched off?");
}

/// Throws unless `file` is what BaM's module makes: libnvm would use registers that are not there.
void expect_module(int file, const std::string& path) {
  struct stat about{};
  const bool asked = fstat(file, &about) == 0;
  if (asked && S_ISBLK(about.st_mode))
    throw IoError(ENOTTY, path +
                              ": expected a drive of BaM's module, such as /dev/libnvm0, found one that the kernel's "
                              "driver holds: unbind it from that (docs/gpu-ssd.md)");
  void* mapped = MAP_FAILED;
  if (asked && S_ISCHR(about.st_mode))
    mapped = mmap(nullptr, NVM_CTRL_MEM_MINSIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED)
    throw IoError(ENOTTY, path +
                              ": expected a drive of BaM's module, such as /dev/libnvm0, found something without a "
                              "drive's registers: load the module (docs/gpu-ssd.md)");
  const std::unique_ptr<void, UnmapRegisters> registers(mapped);
  expect_answer(mapped, path);
}

/// What libnvm said of registers.
void check_registers(int code, const std::string& name) {
  check(code, name,
        code == ERANGE ? "the drive does not take pages as the system has them" : "cannot use its registers");
}

}  // namespace

std::unique_ptr<Drive> Drive::open(const std::string& path, uint32_t pairs) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    const int code = errno;
    const bool root = code == EACCES || code == EPERM;
    throw IoError(code, path + ": " + std::strerror(code) + ": " +
                            (root ? "expected the rights of root"
                                  : "expected a drive of BaM's module: load it, and unbind the drive from the kernel's "
                                    "nvme driver (docs/gpu-ssd.md)"));
  }
  nvm_ctrl_t* made = nullptr;
  int code = 0;
  try {
    expect_module(file, path);
    code = nvm_ctrl_init(&made, file);
  } catch (...) {
    close(file);
    throw;
  }
  close(file);
  check_registers(code, path);
  return std::make_unique<NvmDrive>(made, path, std::nullopt, pairs);
}

std::unique_ptr<Drive> Drive::over(std::span<std::byte> registers, const std::string& name, uint32_t pairs,
                                   uint64_t flipped) {
  expect_answer(registers.data(), name);
  nvm_ctrl_t* made = nullptr;
  check_registers(nvm_raw_ctrl_init(&made, registers.data(), registers.size()), name);
  return std::make_unique<NvmDrive>(made, name, flipped, pairs);
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
