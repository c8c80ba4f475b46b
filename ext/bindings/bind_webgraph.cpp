// Bindings of ext/src/webgraph.
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>

#include <map>
#include <tiering/webgraph.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

namespace {

using Bits = Values<const std::byte, "bits">;

Code code_of(const std::string& name) {
  static const std::map<std::string, Code> kCodes{{"unary", Code::unary},
                                                  {"gamma", Code::gamma},
                                                  {"delta", Code::delta},
                                                  {"zeta", Code::zeta},
                                                  {"nibble", Code::nibble}};
  const auto known = kCodes.find(name);
  TIERING_EXPECT(known != kCodes.end(), "expected unary, gamma, delta, zeta or nibble, found " + name);
  return known->second;
}

struct BoundGraph {
  BoundGraph(Bits given, int64_t num_nodes, int64_t num_arcs, int64_t window, int64_t min_interval, int zeta_k,
             const std::array<std::string, 6>& codes)
      : bits(std::move(given)),
        graph(bits, {num_nodes, num_arcs, window, min_interval, zeta_k, code_of(codes[0]), code_of(codes[1]),
                     code_of(codes[2]), code_of(codes[3]), code_of(codes[4]), code_of(codes[5])}) {}

  Bits bits;
  BvGraph graph;
};

using Offsets = Values<int64_t, "offsets">;
using GivenOffsets = Values<const int64_t, "offsets">;
using Indptr = Values<int64_t, "indptr">;
using GivenIndptr = Values<const int64_t, "indptr">;

void decode(const BoundGraph& bound, int64_t first, int64_t end, const GivenOffsets& offsets, const GivenIndptr& indptr,
            const Values<int64_t, "indices">& indices, Threads threads) {
  if (indices.array.itemsize() == 4) {
    const Values<int32_t, "indices"> narrow{indices.array};
    bound.graph.decode(first, end, offsets, indptr, narrow.get(), threads);
  } else {
    bound.graph.decode(first, end, offsets, indptr, indices.get(), threads);
  }
}

/// Bytes of .graph and .offsets.
std::pair<GrowingArray<uint8_t>, GrowingArray<uint8_t>> pair_of(BvBytes&& bytes) {
  return {std::move(bytes.graph), std::move(bytes.offsets)};
}

}  // namespace

void bind_webgraph(nb::module_& m) {
  nb::class_<BoundGraph>(m, "BvGraph")
      .def(nb::init<Bits, int64_t, int64_t, int64_t, int64_t, int, const std::array<std::string, 6>&>(), "bits"_a,
           "num_nodes"_a, "num_arcs"_a, "window"_a, "min_interval"_a, "zeta_k"_a, "codes"_a)
      .def(
          "find_lists",
          [](const BoundGraph& bound, int64_t first, int64_t end, const Offsets& offsets, const Indptr& indptr) {
            bound.graph.find_lists(first, end, offsets, indptr);
          },
          "first"_a, "end"_a, "offsets"_a, "indptr"_a, Release())
      .def(
          "read_degrees",
          [](const BoundGraph& bound, int64_t first, int64_t end, const GivenOffsets& offsets, const Indptr& indptr,
             Threads threads) { bound.graph.read_degrees(first, end, offsets, indptr, threads); },
          "first"_a, "end"_a, "offsets"_a, "indptr"_a, "threads"_a = 1, Release())
      .def("decode", &decode, "first"_a, "end"_a, "offsets"_a, "indptr"_a, "indices"_a, "threads"_a = 1, Release());
  m.def(
      "read_bv_offsets",
      [](const Bits& bits, const std::string& code, int64_t position, int64_t first, int64_t end, int64_t limit,
         const Offsets& offsets) { return read_bv_offsets(bits, code_of(code), position, first, end, limit, offsets); },
      "bits"_a, "code"_a, "position"_a, "first"_a, "end"_a, "limit"_a, "offsets"_a, Release());
  nb::class_<BvEncoder>(m, "BvEncoder")
      .def(
          "__init__",
          [](BvEncoder* self, int64_t num_nodes, int64_t window, int64_t max_chain, int64_t min_interval, int zeta_k) {
            BvFormat format;
            format.num_nodes = num_nodes, format.window = window;
            format.min_interval = min_interval, format.zeta_k = zeta_k;
            new (self) BvEncoder(format, max_chain);
          },
          "num_nodes"_a, "window"_a = 7, "max_chain"_a = 3, "min_interval"_a = 4, "zeta_k"_a = 3)
      .def(
          "add",
          [](BvEncoder& encoder, const GivenIndptr& indptr, const Values<const int64_t, "indices">& indices) {
            encoder.add(indptr, indices);
            return pair_of(encoder.take());
          },
          "indptr"_a, "indices"_a, Release())
      .def("finish", [](BvEncoder& encoder) { return pair_of(encoder.finish()); })
      .def_prop_ro("copied_arcs", [](const BvEncoder& encoder) { return encoder.counts().copied; })
      .def_prop_ro("interval_arcs", [](const BvEncoder& encoder) { return encoder.counts().intervals; })
      .def_prop_ro("residual_arcs", [](const BvEncoder& encoder) { return encoder.counts().residuals; })
      .def_prop_ro("bits", [](const BvEncoder& encoder) { return encoder.counts().bits; });
}
