// A tiered table together with the arrays and the reader it points to, as several bindings take it.
#pragma once

#include <memory>
#include <optional>
#include <tiering/io/gather.hpp>
#include <utility>

#include "ndarray_types.hpp"

namespace tiering::bind {

template <Name kName>
using Bytes = Values<const std::byte, kName>;
using Checksums = std::vector<Values<const uint32_t, "checksums">>;

struct BoundTable {
  TieredTable table;
  std::optional<Bytes<"gpu">> gpu;
  std::vector<Bytes<"peers">> peers;
  std::optional<Bytes<"cpu">> cpu;
  std::optional<Bytes<"ssd">> ssd;
  nb::object reader;
  Checksums checksums;
};

/// Where rows of `ids` go; throws InputError where they do not fit.
RowsTarget checked_target(const TieredTable& table, std::span<const int64_t> ids,
                          const Argument<RowsTarget, "out">& out);

DirectMode parse_direct(const std::string& text);
/// What makes engines in another module, which stays loaded; empty: the core does.
EngineMaker engine_maker(const std::optional<nb::capsule>& capsule);

/// Lets Python, and through it another module, have what is not known to Python.
template <typename T>
nb::capsule capsule_of(T value, const char* name) {
  auto held = std::make_unique<T>(std::move(value));
  return nb::capsule(held.release(), name, [](void* made) noexcept { delete static_cast<T*>(made); });
}

}  // namespace tiering::bind
