// The Python module of the CUDA part: converts, releases the GIL, calls. Memory crosses as addresses, streams as
// handles, so that neither torch nor any other array library is linked.
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tiering/codec/rows.hpp>
#include <tiering/cuda/drives.hpp>
#include <tiering/cuda/row_requests.hpp>
#include <tiering/errors.hpp>

#include "addresses.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::cuda;

namespace {

void bind_errors(nb::module_& m) {
  static nb::exception<OutOfMemory> out_of_memory(m, "OutOfMemoryError", PyExc_MemoryError);
  static nb::exception<CudaError> cuda_error(m, "CudaError", PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const OutOfMemory& e) {
      const nb::object args = nb::make_tuple(std::string(e.what()), e.wanted(), e.free());
      PyErr_SetObject(out_of_memory.ptr(), args.ptr());
    } catch (const InputError& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const IoError& e) {
      const nb::object type = nb::module_::import_("tiering.errors").attr("StorageError");
      PyErr_SetObject(type.ptr(), type(e.code(), e.what()).ptr());
    }
  });
}

struct DeviceInfo {
  std::string name;
  std::string capability;  ///< such as 9.0
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  std::string pci_bus;
  std::string drive_writes;  ///< DriveWrites, by name
  bool coherent = false;     ///< reads host memory over a link that keeps caches in step, such as NVLink-C2C
};

/// Versions of driver and runtime as CUDA numbers them: 13000 is 13.0; 0 where there is no driver.
std::pair<int, int> versions() {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "reading the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "reading the runtime's version");
  return {driver, runtime};
}

/// Throws CudaError with the runtime's reason where there is no device, or the driver is too old for this build.
int count_devices() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "looking for a GPU");
  return count;
}

DeviceInfo device_info(int device) {
  cudaDeviceProp found;
  check(cudaGetDeviceProperties(&found, device), "describing a GPU");
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "describing a GPU");
  int coherent = 0;
  check(cudaDeviceGetAttribute(&coherent, cudaDevAttrPageableMemoryAccessUsesHostPageTables, device),
        "describing a GPU");
  return {found.name,
          std::to_string(found.major) + "." + std::to_string(found.minor),
          found.multiProcessorCount,
          static_cast<int64_t>(found.totalGlobalMem),
          bus,
          std::array{"none", "flushed", "ordered"}[static_cast<size_t>(drive_writes(device))],
          coherent != 0};
}

int64_t free_bytes(int device) {
  const DeviceScope scope(device);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "reading the GPU's free memory");
  return static_cast<int64_t>(free);
}

/// For threads of ours: makes a device the calling thread's current one, for torch too, and lets the thread allocate
/// and wait for events while another one captures a graph.
void begin_thread(int device) {
  check(cudaSetDevice(device), "choosing the device");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "letting a thread work during captures");
}

void bind_devices(nb::module_& m) {
  nb::class_<DeviceInfo>(m, "DeviceInfo")
      .def_ro("name", &DeviceInfo::name)
      .def_ro("capability", &DeviceInfo::capability)
      .def_ro("multiprocessors", &DeviceInfo::multiprocessors)
      .def_ro("total_bytes", &DeviceInfo::total_bytes)
      .def_ro("pci_bus", &DeviceInfo::pci_bus)
      .def_ro("drive_writes", &DeviceInfo::drive_writes)
      .def_ro("coherent", &DeviceInfo::coherent);
  m.def("begin_thread", &begin_thread, "device"_a, Release());
  m.def("versions", &versions);
  m.def("count_devices", &count_devices, Release());
  m.def("device_info", &device_info, "device"_a, Release());
  m.def("free_bytes", &free_bytes, "device"_a, Release());
  m.attr("architectures") = TIERING_CUDA_ARCHITECTURES;
}

void bind_memory(nb::module_& m) {
  using Device = OnDevice<DeviceMemory>;
  nb::class_<Device>(m, "DeviceMemory")
      .def(nb::init<int, int64_t, bool>(), "device"_a, "nbytes"_a, "shared"_a = false, Release())
      .def_prop_ro("address", [](const Device& d) { return address(d.held->data()); })
      .def_prop_ro("nbytes", [](const Device& d) { return d.held->size(); })
      .def_ro("device", &Device::device)
      .def("share", on_device(+[](const Device& d) {
             const cudaIpcMemHandle_t handle = d.held->share();
             return nb::bytes(reinterpret_cast<const char*>(&handle), sizeof handle);
           }));
  using Pinned = OnDevice<PinnedMemory>;
  nb::class_<Pinned>(m, "PinnedMemory")
      .def(nb::init<int, int64_t>(), "device"_a, "nbytes"_a, Release())
      .def_prop_ro("address", [](const Pinned& p) { return address(p.held->data()); })
      .def_prop_ro("nbytes", [](const Pinned& p) { return p.held->size(); })
      .def("array", [](nb::handle self) {
        auto& memory = *nb::cast<Pinned&>(self).held;
        return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(memory.data(), {static_cast<size_t>(memory.size())}, self);
      });
  using Registered = OnDevice<Registration>;
  nb::class_<Registered>(m, "Registration")
      .def(
          "__init__",
          [](Registered* self, int device, Address memory, int64_t nbytes) {
            new (self) Registered(device, pointer<void>(memory), nbytes);
          },
          "device"_a, "memory"_a, "nbytes"_a, Release())
      .def_prop_ro("address", [](const Registered& r) { return address(r.held->device_address()); });
  nb::class_<OnDevice<PeerMemory>>(m, "PeerMemory")
      .def(
          "__init__",
          [](OnDevice<PeerMemory>* self, int device, const nb::bytes& shared) {
            cudaIpcMemHandle_t handle;
            TIERING_EXPECT(shared.size() == sizeof handle, "handle: expected ", sizeof handle, " bytes, found ",
                           shared.size());
            std::memcpy(&handle, shared.c_str(), sizeof handle);
            const nb::gil_scoped_release release;
            new (self) OnDevice<PeerMemory>(device, handle);
          },
          "device"_a, "handle"_a)
      .def_prop_ro("address", [](const OnDevice<PeerMemory>& p) { return address(p.held->data()); });
  m.def(
      "copy",
      [](int device, Address into, Address from, int64_t nbytes, Address stream) {
        const DeviceScope scope(device);
        copy_async(pointer<void>(into), pointer<void>(from), nbytes, pointer<CUstream_st>(stream), "copying");
      },
      "device"_a, "into"_a, "source"_a, "nbytes"_a, "stream"_a, Release());
}

void bind_streams(nb::module_& m) {
  using BoundStream = OnDevice<GpuStream>;
  using BoundEvent = OnDevice<GpuEvent>;
  nb::class_<BoundStream>(m, "Stream")
      .def(nb::init<int>(), "device"_a)
      .def_prop_ro("handle", [](const BoundStream& s) { return address(s.held->get()); })
      .def("synchronize", on_device(&GpuStream::synchronize), Release());
  nb::class_<BoundEvent>(m, "Event")
      .def(nb::init<int>(), "device"_a)
      // A stream may be the default one, which every device has.
      .def("record", on_device(&GpuEvent::record), "stream"_a)
      .def("wait", on_device(&GpuEvent::wait), Release());
  m.def(
      "wait_event",
      [](Address stream, const BoundEvent& e) {
        const DeviceScope scope(e.device);
        wait_event(pointer<CUstream_st>(stream), *e.held);
      },
      "stream"_a, "event"_a);
}

/// A tiered table of rows, ready for the kernels.
struct BoundRows {
  int device;
  RowTable table;
};

/// A codec by names and numbers: stored, delivered, dim, and where the device finds scales and offsets.
using CodecParts = std::tuple<std::string, std::string, int64_t, Address, Address>;

void init_rows(BoundRows* self, int device, int64_t row_bytes, const std::vector<int64_t>& ends, Address gpu,
               const std::vector<Address>& peers, Address cpu, Address staged, const std::optional<CodecParts>& codec) {
  TIERING_EXPECT(peers.size() <= RowTable::kMostPeers, "peers: expected at most ", RowTable::kMostPeers, ", found ",
                 peers.size());
  RowTable table;
  table.ranges = {ends[0], ends[1], ends[2], ends[3]};
  table.row_bytes = row_bytes;
  table.local = pointer<const std::byte>(gpu);
  table.num_peers = static_cast<int64_t>(peers.size());
  for (size_t p = 0; p < peers.size(); ++p) table.peers[p] = pointer<const std::byte>(peers[p]);
  table.host = pointer<const std::byte>(cpu);
  table.staged = pointer<const std::byte>(staged);
  if (codec) {
    const auto& [stored, delivered, dim, scale, offset] = *codec;
    table.codec = {parse_encoding(stored, kNumEncodings), parse_encoding(delivered, kNumDelivered), dim,
                   pointer<const float>(scale), pointer<const int32_t>(offset)};
    TIERING_EXPECT(table.codec.fits(row_bytes), "row_bytes: expected those of the codec, ", table.codec.stored_bytes(),
                   ", found ", row_bytes);
  }
  new (self) BoundRows{device, table};
}

void bind_rows(nb::module_& m) {
  nb::class_<BoundRows>(m, "RowTable")
      .def("__init__", &init_rows, "device"_a, "row_bytes"_a, "ends"_a, "gpu"_a, "peers"_a, "cpu"_a, "staged"_a = 0,
           "codec"_a = nb::none())
      .def(
          "gather",
          on_device(+[](const BoundRows& rows, const int64_t* ids, int64_t count, std::byte* out, cudaStream_t stream,
                        const uint32_t* places, const uint32_t* slots, int max_sms, int block_threads, bool streaming) {
            gather_rows(rows.table, {.ids = ids, .slots = slots, .places = places, .count = count, .out = out},
                        {max_sms, block_threads, streaming}, stream);
          }),
          "ids"_a, "count"_a, "out"_a, "stream"_a, "places"_a = 0, "slots"_a = 0, "max_sms"_a = 0,
          "block_threads"_a = GatherLaunch{}.block_threads, "streaming"_a = GatherLaunch{}.streaming, Release());
  using Gatherer = OnDevice<RequestGatherer>;
  nb::class_<Gatherer>(m, "RequestGatherer")
      .def(nb::init<int>(), "device"_a)
      .def("prepare",
           on_device(+[](Gatherer& gatherer, const BoundRows& rows, const int64_t* ids, int64_t count,
                         cudaStream_t stream, bool by_address, const uint32_t* slots, unsigned long long* first_bad,
                         int64_t* listed, uint32_t* listed_places, uint32_t* num_listed) {
             gatherer.held->prepare(rows.table, {ids, count, slots, first_bad, listed, listed_places, num_listed},
                                    by_address, stream);
           }),
           "rows"_a, "ids"_a, "count"_a, "stream"_a, "by_address"_a, "slots"_a = 0, "first_bad"_a = 0, "listed"_a = 0,
           "listed_places"_a = 0, "num_listed"_a = 0, Release())
      .def("gather",
           on_device(+[](Gatherer& gatherer, const BoundRows& rows, std::byte* out, cudaStream_t stream, int max_sms) {
             gatherer.held->gather(rows.table, out, {.max_sms = max_sms}, stream);
           }),
           "rows"_a, "out"_a, "stream"_a, "max_sms"_a = 0, Release())
      .def("totals", on_device(&RequestGatherer::totals));
}

}  // namespace

NB_MODULE(TIERING_CUDA_MODULE, m) {
  bind_errors(m);
  bind_devices(m);
  bind_memory(m);
  bind_streams(m);
  bind_rows(m);
  bind_drives(m);
  bind_sampler(m);
}
