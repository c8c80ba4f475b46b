// The first and only process of a virtual machine with two NVMe devices and BaM's module: drives are brought up, read,
// opened again, after a process that was killed as well, and refused to a second process.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <tiering/errors.hpp>
#include <tiering/nvme/drive_queues.hpp>

#include "../cpp/drive_lanes.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

constexpr int64_t kPage = 4096, kPages = 400;  // of all images
constexpr size_t kHuge = size_t{2} << 20;      // in one piece for drives, too
const char* const kNames[] = {"/dev/libnvm0", "/dev/libnvm1"};

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      std::printf("VM: line %d: failed: %s\n", __LINE__, #condition); \
      _exit(1);                                                       \
    }                                                                 \
  } while (false)

/// The images' content; run.py writes the same.
std::byte byte_at(int64_t address) {
  const int64_t page = address / kPage, image = page % 2, at = page / 2 * kPage + address % kPage;
  const auto word = static_cast<uint32_t>(at / 4 * 4) * 2654435761U + static_cast<uint32_t>(image);
  return static_cast<std::byte>(word >> 8 * (at % 4));
}

struct Opened {
  const QueueShape shape{2, 2, 16, kPage};
  std::vector<std::unique_ptr<Drive>> drives;
  std::byte* memory = static_cast<std::byte*>(
      mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
  std::vector<DriveQueue> queues;
  unsigned long long failure = DriveFailure::kNone;
  uint32_t stop = 0, cursors[2] = {};
  DriveSet set{nullptr, shape.drives, shape.pairs, shape.depth, 9, 10'000'000'000, &stop, &failure, cursors};

  Opened() {
    EXPECT(memory != MAP_FAILED && shape.bytes() <= int64_t{kHuge});
    std::memset(memory, 0, kHuge);
    std::vector<std::byte*> registers;
    for (const auto* name : kNames) {
      drives.push_back(std::make_unique<Drive>(name, open_drive_bus(name)));
      registers.push_back(reinterpret_cast<std::byte*>(drives.back()->bus().registers()));
    }
    const auto pages = drives[0]->bus().map(memory, kHuge, false);
    std::vector<uint64_t> chunks;
    for (size_t i = 0; i < pages.size(); ++i) {
      EXPECT(pages[i] == pages[0] + i * DriveBus::kHostPage);
      if (i % (DriveBus::kDevicePage / DriveBus::kHostPage) == 0) chunks.push_back(pages[i]);
    }
    queues = make_queues(drives, shape, memory, chunks, registers,
                         [](std::byte* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); });
    set.queues = queues.data();
  }
  ~Opened() {
    for (const auto& drive : drives) EXPECT(drive->stop());
    drives[0]->bus().unmap(memory);
    munmap(memory, kHuge);
  }

  void read(int64_t row_bytes) {
    const int64_t stride = (row_bytes + 15) / 16 * 16;
    const int64_t unit = 4 * kPage;
    const SsdGeometry geometry{0, stride, unit / stride, unit, kPage, 2};
    std::mt19937 random(static_cast<uint32_t>(row_bytes));
    const uint32_t count = 400;
    std::vector<int64_t> rows(count);
    for (auto& row : rows) row = random() % (kPages / 4 * geometry.rows_per_unit);
    std::sort(rows.begin(), rows.end());
    std::vector<uint32_t> targets(count);
    std::iota(targets.rbegin(), targets.rend(), 0);
    std::vector<std::byte> out(count * static_cast<size_t>(row_bytes));
    read_in_lanes(set, {geometry, row_bytes, rows.data(), targets.data(), &count, out.data()});
    EXPECT(failure == DriveFailure::kNone);
    for (uint32_t i = 0; i < count; ++i) {
      const auto [image, begin] = geometry.place(rows[i]);
      for (int64_t b = 0; b < row_bytes; ++b) {
        const int64_t page = (begin + b) / kPage * 2 + image;
        EXPECT(out[targets[i] * static_cast<size_t>(row_bytes) + b] == byte_at(page * kPage + (begin + b) % kPage));
      }
    }
  }
};

void read_all() {
  Opened drives;
  drives.drives[0]->expect_image(kPage, kPages / 2 * kPage);
  for (int64_t row_bytes : {512, 4096, 100}) drives.read(row_bytes);
  const int64_t row = 1'000'000;
  const uint32_t target = 0, count = 1;
  std::vector<std::byte> out(kPage);
  read_in_lanes(drives.set, {{0, kPage, 1, kPage, kPage, 2}, kPage, &row, &target, &count, out.data()});
  EXPECT(drives.failure == DriveFailure::refused(row, 0x80));  // behind the end
}

/// In a child: whether `work` ended as it should.
template <typename Work>
bool in_child(Work&& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void second_process_is_refused() {
  Drive held(kNames[0], open_drive_bus(kNames[0]));
  EXPECT(in_child([] {
    try {
      open_drive_bus(kNames[0]);
    } catch (const IoError& error) {
      EXPECT(std::strstr(error.what(), "another process reads from this drive") != nullptr);
      return;
    }
    EXPECT(!"refused");
  }));
}

void killed_process_leaves_the_drives() {
  int ready[2];
  EXPECT(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    Opened drives;
    for (;;) {
      drives.read(512);
      EXPECT(write(ready[1], "x", 1) == 1);
    }
  }
  char read_once;
  EXPECT(read(ready[0], &read_once, 1) == 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

void set_up() {
  for (const auto& [kind, place] : {std::pair{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}}) {
    mkdir(place, 0755);
    (void)mount(kind, place, kind, 0, nullptr);
  }
  std::ofstream("/proc/sys/vm/nr_hugepages") << 8;
  const int module = open("/libnvm.ko", O_RDONLY);
  EXPECT(syscall(SYS_finit_module, module, "max_num_ctrls=8", 0) == 0);
  for (int i = 0; access(kNames[1], F_OK) != 0; ++i) {
    EXPECT(i < 100);
    usleep(100'000);
  }
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const bool passed = in_child([] {
    set_up();
    read_all();
    read_all();
    second_process_is_refused();
    killed_process_leaves_the_drives();
    read_all();
  });
  std::printf("VM: %s\n", passed ? "passed" : "failed");
  reboot(RB_POWER_OFF);
}
