// Bindings of checksums: XXH3-64 over pages.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <tiering/io/page_hash.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::byte> bytes_of(const Bytes& data) {
  return {reinterpret_cast<const std::byte*>(data.data()), data.size()};
}

nb::object page_hashes(const Bytes& data, int64_t page_bytes) {
  const auto bytes = static_cast<int64_t>(data.size());
  TIERING_EXPECT(page_bytes >= 1 && bytes % page_bytes == 0,
                 "data: expected whole pages of " + std::to_string(page_bytes) + " bytes, found " +
                     std::to_string(bytes) + " bytes");
  tiering::Buffer<uint32_t> out(bytes / page_bytes);
  tiering::bind::without_gil(
      [&] { tiering::page_hashes(bytes_of(data), static_cast<size_t>(page_bytes), out.span()); });
  return tiering::bind::to_numpy(std::move(out));
}

}  // namespace

void bind_hashes(nb::module_& m) { m.def("page_hashes", &page_hashes, "data"_a, "page_bytes"_a); }
