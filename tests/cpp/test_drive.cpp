// The bring-up of drives, against one that a thread plays: what it says of itself, and what is refused.
#include <filesystem>
#include <fstream>
#include <tiering/nvme/drive.hpp>

#include "emulated_drive.hpp"
#include "temp_dir.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

constexpr int64_t kImage = 64 * 4096;

void says_what_it_is() {
  EmulatedDrive there(4096, kImage, 1);
  there.start();
  CHECK(Drive("drive 0", there.open()).stop());  // and then it is opened again
  Drive drive("drive 0", there.open());
  CHECK(drive.facts().block_bytes == 4096 && drive.facts().blocks == 64 && drive.facts().metadata_bytes == 0);
  CHECK(drive.facts().most_depth == 1024);
}

void misfits_are_refused() {
  EmulatedDrive there(512, kImage, 1);
  there.start();
  Drive drive("drive 0", there.open());
  drive.expect_image(4096, kImage);
  check_refused("expected space for 266240 bytes, found 262144", [&] { drive.expect_image(4096, kImage + 4096); });
  check_refused("pages of 512 to 8192 bytes in whole blocks, found 16384", [&] { drive.expect_image(16384, kImage); });
  check_refused("expected 9 pairs of queues, found 8", [&] { drive.request_pairs(9); });
  check_refused("expected queues of at most 1024 entries", [&] { drive.create_pair(0, 2048, 0, 0); });
  there.facts.metadata_bytes = 8;
  check_refused("blocks without metadata, found 8", [&] { Drive("drive 0", there.open()).expect_image(4096, kImage); });
}

void translation_is_refused() {
  const TempDir groups;
  expect_no_translation(groups.path() / "none");
  for (const auto* type : {"identity", "DMA-FQ"}) {
    std::filesystem::create_directory(groups.path() / type);
    std::ofstream(groups.path() / type / "type") << type << "\n";
    if (std::string(type) == "identity") expect_no_translation(groups.path());
  }
  check_refused("is of type DMA-FQ): start the kernel with iommu=off", [&] { expect_no_translation(groups.path()); });
}

}  // namespace

int main() {
  says_what_it_is();
  misfits_are_refused();
  translation_is_refused();
}
