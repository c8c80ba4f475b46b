// Binding of drives that are bound to BaM's module, in builds that have it.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tiering/bam/engine.hpp>
#include <utility>
#include <vector>

#include "../bindings/bound_table.hpp"

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
  using bam::Drives;
  // A type of its own: of a list of drives, Python would make a list of its own.
  struct BamDrives {
    Drives drives;
  };
  nb::class_<bam::DriveInfo>(m, "DriveInfo")
      .def_ro("model", &bam::DriveInfo::model)
      .def_ro("serial", &bam::DriveInfo::serial)
      .def_prop_ro("bytes", [](const bam::DriveInfo& info) { return info.blocks * info.block_bytes; })
      .def_ro("most_read", &bam::DriveInfo::most_read);
  nb::class_<BamDrives>(m, "BamDrives")
      .def(nb::new_([](const std::vector<std::string>& paths) {
             Drives drives;
             for (const std::string& path : paths) drives.push_back(drive_at(path));
             return BamDrives{std::move(drives)};
           }),
           "paths"_a)
      .def_prop_ro("infos",
                   [](const BamDrives& all) {
                     std::vector<bam::DriveInfo> infos;
                     for (const auto& drive : all.drives) infos.push_back(drive->info());
                     return infos;
                   })
      .def("engine_maker",
           [](const BamDrives& all) {
             EngineMaker maker = [drives = all.drives](const ImageSet& images, const EngineOptions& options) {
               return bam::make_bam_engine(images, options, drives);
             };
             return bind::capsule_of(std::move(maker), kEngineMakerName);
           })
      .def("server", [](const BamDrives& all) {
        nvme::PairServerMaker maker = [drives = all.drives](const ImageSet& images, const EngineOptions& options) {
          return bam::drive_server(images, options, drives);
        };
        return bind::capsule_of(std::move(maker), nvme::kPairServerMakerName);
      });
}
