// BaM's kernel module: its three calls, for memory of the host, of a GPU, and the end of both. No code of BaM is here.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>
#include <tiering/errors.hpp>
#include <tiering/io/image_set.hpp>
#include <tiering/nvme/drive.hpp>

namespace tiering {
namespace {

struct MapRequest {
  uint64_t memory;
  size_t pages;
  uint64_t* addresses;
};
constexpr unsigned long kMapHost = _IOW(0x80, 1, MapRequest), kMapDevice = _IOW(0x80, 2, MapRequest),
                        kUnmap = _IOW(0x80, 3, uint64_t);

class ModuleBus final : public DriveBus {
 public:
  explicit ModuleBus(const std::string& path) : path_(path), fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    const int fd = fd_.get();
    if (fd < 0) throw failed("opening it", errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
      throw errno == EWOULDBLOCK
          ? IoError(EBUSY, path_ + ": another process reads from this drive; end it, or use another")
          : failed("locking it", errno);
    void* const mapped = mmap(nullptr, kRegisterBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) throw failed("mapping its registers", errno);
    registers_ = static_cast<uint32_t*>(mapped);
  }
  ~ModuleBus() override {
    while (!mappings_.empty()) forget(mappings_.begin()->first, false);
    munmap(registers_, kRegisterBytes);
  }

  uint32_t* registers() override { return registers_; }

  std::vector<uint64_t> map(std::byte* memory, size_t bytes, bool of_device) override {
    const size_t page = of_device ? kDevicePage : kHostPage;
    std::vector<uint64_t> addresses((bytes + page - 1) / page);
    MapRequest request{reinterpret_cast<uintptr_t>(memory), addresses.size(), addresses.data()};
    Mapping& mapping = mappings_[memory];
    std::promise<int> mapping_ended;
    auto mapped = mapping_ended.get_future();
    mapping.thread = std::thread([&request, command = of_device ? kMapDevice : kMapHost, fd = fd_.get(),
                                  told = std::move(mapping_ended), end = mapping.end.get_future()]() mutable {
      uint64_t address = request.memory;
      told.set_value(ioctl(fd, command, &request) == 0 ? 0 : errno);
      if (end.get()) (void)ioctl(fd, kUnmap, &address);
    });
    const int error = mapped.get();
    if (error != 0) {
      forget(memory, false);
      throw failed(
          of_device ? "mapping GPU memory: build the module for CUDA, and use a data center GPU" : "mapping memory",
          error);
    }
    return addresses;
  }

  void unmap(std::byte* memory) noexcept override { forget(memory, true); }

 private:
  /// The module lets only the thread that mapped memory unmap it: one that waits for its end.
  struct Mapping {
    std::promise<bool> end;
    std::thread thread;
  };

  void forget(std::byte* memory, bool unmap) noexcept {
    Mapping& mapping = mappings_.at(memory);
    mapping.end.set_value(unmap);
    mapping.thread.join();
    mappings_.erase(memory);
  }

  IoError failed(const std::string& what, int error) const {
    return IoError(error, path_ + ": " + what + ": " + std::generic_category().message(error));
  }

  std::string path_;
  Descriptor fd_;
  uint32_t* registers_ = nullptr;
  std::map<std::byte*, Mapping> mappings_;
};

}  // namespace

std::unique_ptr<DriveBus> open_drive_bus(const std::string& path) {
  expect_no_translation("/sys/kernel/iommu_groups");
  return std::make_unique<ModuleBus>(path);
}

void expect_no_translation(const std::string& groups) {
  std::error_code missing;
  for (const auto& group : std::filesystem::directory_iterator(groups, missing)) {
    std::string type;
    std::ifstream(group.path() / "type") >> type;
    TIERING_EXPECT(type.empty() || type == "identity", "the IOMMU translates addresses (", group.path().string(),
                   " is of type ", type, "): start the kernel with iommu=off, or with iommu.passthrough=1");
  }
}

}  // namespace tiering
