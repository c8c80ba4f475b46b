// A tiered table together with the arrays and the reader it points to, as several bindings take it.
#pragma once

#include <tiering/io/gather.hpp>

#include "ndarray_types.hpp"

namespace tiering::bind {

struct BoundTable {
  TieredTable table;
  std::vector<AnyArray> arrays;  ///< that it points to
  nb::object reader, codec;
};

/// A codec together with the arrays of its parameters.
struct BoundCodec {
  RowCodec codec;
  std::vector<AnyArray> arrays;
};

/// Throws InputError where rows of `ids` do not fit `out`.
void expect_target(const TieredTable& table, std::span<const int64_t> ids, const RowsTarget& out);

DirectMode parse_direct(const std::string& text);

}  // namespace tiering::bind
