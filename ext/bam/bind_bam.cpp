// Binding of the engine bam, in builds that have it.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tiering/bam/engine.hpp>
#include <utility>
#include <vector>

#include "../bindings/ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;

namespace {

constexpr uint32_t kPairs = 64;  // of a drive, for all engines of this process

/// A drive by its path: this process takes it over once, as long as somebody uses it.
std::shared_ptr<bam::Drive> drive_at(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<bam::Drive>> known;
  const std::lock_guard lock(mutex);
  auto drive = known[path].lock();
  if (!drive) known[path] = drive = bam::Drive::open(path, kPairs);
  return drive;
}

}  // namespace

void bind_bam(nb::module_& m) {
  m.def(
      "bam_engine_maker",
      [](const std::vector<std::string>& paths) {
        std::vector<std::shared_ptr<bam::Drive>> drives;
        for (const std::string& path : paths) drives.push_back(drive_at(path));
        auto maker = std::make_unique<EngineMaker>([drives](const ImageSet& images, const EngineOptions& options) {
          return bam::make_bam_engine(images, options, drives);
        });
        return nb::capsule(maker.release(), kEngineMakerName,
                           [](void* made) noexcept { delete static_cast<EngineMaker*>(made); });
      },
      "drives"_a);
}
