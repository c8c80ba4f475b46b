// Counters of what is alive, for tests of leaks.
#include <limits>
#include <simulator.hpp>
#include <string_view>

#include "address_map.hpp"
#include "devices.hpp"
#include "events.hpp"
#include "ipc.hpp"
#include "streams.hpp"

using namespace simulator;

int simulator_device() { return current_device; }

int simulator_capture_mode() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  cudaStreamCaptureMode back = mode;
  (void)cudaThreadExchangeStreamCaptureMode(&back);
  return mode;
}

size_t simulator_live(const char* what) {
  const std::string_view name = what;
  const AddressMap& map = AddressMap::get();
  if (name == "allocations") return map.count(Place::kDevice);
  if (name == "bytes") return map.bytes(Place::kDevice);
  if (name == "host") return map.count(Place::kPinned);
  if (name == "registered") return map.count(Place::kRegistered);
  if (name == "ipc") return opened_from_others();
  if (name == "streams") return Streams::get().count();
  if (name == "events") return live_events();
  if (name == "contexts") return Devices::get().used();
  return std::numeric_limits<size_t>::max();
}
