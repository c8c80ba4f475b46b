// A tiered table together with the arrays and the reader it points to, as several bindings take it.
#pragma once

#include <optional>
#include <tiering/io/gather.hpp>

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
  nb::object codec;
};

/// A codec together with the arrays of its parameters.
struct BoundCodec {
  RowCodec codec;
  std::optional<Values<const float, "scale">> scale;
  std::optional<Values<const int32_t, "offset">> offset;
};

/// Where rows of `ids` go; throws InputError where they do not fit.
RowsTarget checked_target(const TieredTable& table, std::span<const int64_t> ids,
                          const Argument<RowsTarget, "out">& out);

DirectMode parse_direct(const std::string& text);

}  // namespace tiering::bind
