// Addresses and streams as the CUDA part's Python module takes them.
#pragma once

#include <cuda_runtime_api.h>
#include <nanobind/nanobind.h>

#include <cstdint>

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
inline cudaStream_t stream_of(Address handle) { return reinterpret_cast<cudaStream_t>(handle); }

void bind_sampler(nanobind::module_& m);

}  // namespace tiering::cuda
