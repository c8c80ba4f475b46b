#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <simulated_drives.hpp>
#include <simulator.hpp>
#include <tiering/errors.hpp>

#include "../../cpp/emulated_drive.hpp"

namespace simulator {
namespace {

using tiering::test::EmulatedDrive;

std::mutex mutex;
std::map<std::string, std::weak_ptr<EmulatedDrive>> drives;

std::shared_ptr<EmulatedDrive> find(const std::string& path) {
  const std::lock_guard lock(mutex);
  const auto found = drives.find(path);
  return found == drives.end() ? nullptr : found->second.lock();
}

/// Keeps the drive for as long as it is open.
struct Opened final : tiering::DriveBus {
  std::shared_ptr<EmulatedDrive> drive;
  std::unique_ptr<DriveBus> bus;

  uint32_t* registers() override { return bus->registers(); }
  std::vector<uint64_t> map(std::byte* memory, size_t bytes, bool of_device) override {
    return bus->map(memory, bytes, of_device);
  }
  void unmap(std::byte* memory) noexcept override { bus->unmap(memory); }
};

}  // namespace

std::unique_ptr<tiering::DriveBus> open_drive_bus(const std::string& path) {
  if (find(path) != nullptr)
    throw tiering::IoError(EBUSY, path + ": another process reads from this drive; end it, or use another");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw tiering::IoError(ENOENT, path + ": opening it: No such file or directory");
  const std::vector<char> content(std::istreambuf_iterator<char>(file), {});
  auto opened = std::make_unique<Opened>();
  opened->drive = std::make_shared<EmulatedDrive>(512, static_cast<int64_t>(content.size() / 512 * 512), 1);
  std::memcpy(opened->drive->image.data(), content.data(), opened->drive->image.size());
  opened->drive->unordered = writes_are_flushed();
  opened->drive->start();
  opened->bus = opened->drive->open();
  const std::lock_guard lock(mutex);
  drives[path] = opened->drive;
  flush_drives = [] {
    const std::lock_guard lock(mutex);
    for (const auto& [name, drive] : drives)
      if (const auto open = drive.lock()) open->flush();
  };
  return opened;
}

}  // namespace simulator

int simulator_break_drive(const char* path, long long block) {
  const auto drive = simulator::find(path);
  if (drive == nullptr) return 0;
  if (block < 0)
    drive->silent = true;
  else
    drive->bad_block = block;
  return 1;
}

long long simulator_drive_reads(const char* path) {
  const auto drive = simulator::find(path);
  return drive == nullptr ? -1 : drive->reads.load();
}
