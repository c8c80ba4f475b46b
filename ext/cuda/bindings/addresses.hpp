// How the CUDA part's Python module takes addresses, streams and what belongs to a device.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <tiering/cuda/memory.hpp>
#include <type_traits>

namespace tiering::cuda {

using Address = uintptr_t;
using Release = nanobind::call_guard<nanobind::gil_scoped_release>;

template <typename T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address);
}
template <typename T>
Address address(T* pointer) {
  return reinterpret_cast<Address>(pointer);
}

/// Something of one device: it is made, used and given back with that device as the current one.
template <typename T>
struct OnDevice {
  int device;
  std::optional<T> held;

  template <typename... Arguments>
  explicit OnDevice(int d, Arguments&&... arguments) : device(d) {
    const DeviceScope scope(d);
    held.emplace(std::forward<Arguments>(arguments)...);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    const DeviceScope scope(device, std::nothrow);
    held.reset();
  }
};

/// What Python gives for an argument: a number for a pointer or a stream.
template <typename T>
using Given = std::conditional_t<std::is_pointer_v<T>, Address, T>;

template <typename T>
T from_given(Given<T> given) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<T>(given);
  else
    return given;
}

/// A function for Python of something that belongs to a device, with that device as the current one.
template <typename Self, typename Return, typename... Arguments>
auto on_device(Return (*function)(Self&, Arguments...)) {
  return [function](Self& self, Given<Arguments>... given) {
    const DeviceScope scope(self.device);
    return function(self, from_given<Arguments>(given)...);
  };
}

/// A method of something of one device.
template <typename T, typename Return, typename... Arguments>
auto on_device(Return (T::*method)(Arguments...) const) {
  return [method](const OnDevice<T>& self, Given<Arguments>... given) {
    const DeviceScope scope(self.device);
    return ((*self.held).*method)(from_given<Arguments>(given)...);
  };
}

void bind_drives(nanobind::module_& m);
void bind_sampler(nanobind::module_& m);

}  // namespace tiering::cuda
