// Drives for Python: memory crosses as addresses.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <tiering/cuda/drives.hpp>

#include "addresses.hpp"

#ifdef TIERING_SIMULATED
#include <simulated_drives.hpp>
namespace opener = simulator;
#else
namespace opener = tiering;
#endif

namespace nb = nanobind;
using namespace nb::literals;

namespace tiering::cuda {

void bind_drives(nb::module_& m) {
  using Bound = OnDevice<Drives>;
  nb::class_<Bound>(m, "Drives")
      .def(
          "__init__",
          [](Bound* self, int device, const std::vector<std::string>& paths, int64_t page_bytes,
             const std::vector<int64_t>& image_bytes, double patience, uint32_t pairs) {
            std::vector<std::unique_ptr<Drive>> drives;
            for (const auto& path : paths)
              drives.push_back(std::make_unique<Drive>(path, opener::open_drive_bus(path)));
            new (self) Bound(device, std::move(drives), page_bytes, image_bytes, patience, pairs);
          },
          "device"_a, "paths"_a, "page_bytes"_a, "image_bytes"_a, "patience"_a, "pairs"_a, Release())
      .def("read",
           on_device(+[](Bound& self, const int64_t* rows, const uint32_t* targets, const uint32_t* count,
                         std::byte* out, cudaStream_t stream, int64_t row_bytes, int64_t first_unit, int64_t stride,
                         int64_t rows_per_unit, int64_t unit_bytes) {
             const SsdGeometry geometry{first_unit, stride, rows_per_unit, unit_bytes, 0, 0};
             self.held->read({geometry, row_bytes, rows, targets, count, out}, stream);
           }),
           "rows"_a, "targets"_a, "count"_a, "out"_a, "stream"_a, "row_bytes"_a, "first_unit"_a, "stride"_a,
           "rows_per_unit"_a, "unit_bytes"_a, Release())
      .def("stop", [](Bound& self) { self.held->stop(); });
}

}  // namespace tiering::cuda
