// What drives must have in common; how they read is seen from Python (tests/loader/gpu/test_drives.py).
#include <tiering/cuda/drives.hpp>
#include <vector>

#include "../../cpp/emulated_drive.hpp"

using namespace tiering;
using namespace tiering::cuda;
using namespace tiering::test;

int main() {
  constexpr int64_t kPage = 4096;
  std::vector<std::unique_ptr<EmulatedDrive>> there;
  std::vector<std::unique_ptr<Drive>> opened;
  for (uint32_t block : {512U, 4096U}) {
    there.push_back(std::make_unique<EmulatedDrive>(block, 64 * kPage, block));
    there.back()->start();
    opened.push_back(std::make_unique<Drive>("drive of " + std::to_string(block), there.back()->open()));
  }
  check_refused("drive of 4096: expected blocks of the size of the first drive's, 512 bytes",
                [&] { Drives(std::move(opened), kPage, {32 * kPage, 32 * kPage}, 1); });
}
