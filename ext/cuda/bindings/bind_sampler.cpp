// The GPU's sampler for Python: plain tuples become its config.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tiering/cuda/sampler.hpp>
#include <tiering/errors.hpp>
#include <tiering/sampling/sampler.hpp>

#include "addresses.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiering::cuda {
namespace {

/// (begins, indices, sums, num_edges); addresses, 0 for none.
using Part = std::tuple<Address, Address, Address, int64_t>;

template <typename Index>
AdjacencyPart<Index> part(const Part& given) {
  const auto& [begins, indices, sums, num_edges] = given;
  return {pointer<const int64_t>(begins), pointer<const Index>(indices), pointer<const uint64_t>(sums), num_edges};
}

/// (source type, destination type, int64 ids, end of the local columns, local, host).
using Adjacency = std::tuple<int, int, bool, int64_t, Part, Part>;

template <typename Index>
AdjacencyTable<Index> table(const Adjacency& given) {
  const auto& [src, dst, wide, local_end, local, host] = given;
  return {local_end, part<Index>(local), part<Index>(host)};
}

/// (keys in the memory of the GPU, how many, keys in host memory, int64 keys).
using Keys = std::tuple<Address, int64_t, Address, bool>;

GpuSamplerConfig make_config(std::vector<int64_t> num_nodes, const std::vector<Adjacency>& relations,
                             std::vector<std::vector<int64_t>> fanouts, bool only_new, const std::string& rule,
                             const std::vector<Keys>& node_keys, uint64_t seed, bool positions, int max_sms) {
  GpuSamplerConfig config;
  config.num_nodes = std::move(num_nodes);
  config.fanouts = std::move(fanouts);
  config.only_new = only_new;
  config.rule = parse_rule(rule, kNumListRules);
  config.seed = seed;
  config.positions = positions;
  config.max_sms = max_sms;
  for (const auto& [local, local_end, host, wide] : node_keys)
    config.node_keys.push_back({pointer<const void>(local), local_end, pointer<const void>(host), wide});
  for (const auto& given : relations) {
    GpuRelation relation{std::get<0>(given), std::get<1>(given), {}};
    if (std::get<2>(given))
      relation.table = table<int64_t>(given);
    else
      relation.table = table<int32_t>(given);
    config.relations.push_back(std::move(relation));
  }
  return config;
}

using BoundSampler = OnDevice<GpuSampler>;

}  // namespace

void bind_sampler(nb::module_& m) {
  nb::class_<BoundSampler>(m, "Sampler")
      .def(
          "__init__",
          [](BoundSampler* self, int device, std::vector<int64_t> num_nodes, const std::vector<Adjacency>& relations,
             std::vector<std::vector<int64_t>> fanouts, bool only_new, const std::string& rule,
             const std::vector<Keys>& node_keys, uint64_t seed, bool positions, int max_sms) {
            new (self) BoundSampler(device, make_config(std::move(num_nodes), relations, std::move(fanouts), only_new,
                                                        rule, node_keys, seed, positions, max_sms));
          },
          "device"_a, "num_nodes"_a, "relations"_a, "fanouts"_a, "only_new"_a, "rule"_a, "node_keys"_a, "seed"_a,
          "positions"_a = false, "max_sms"_a = 0, Release())
      .def("start",
           on_device(+[](BoundSampler& self, std::vector<std::tuple<Address, int64_t>> seeds, uint64_t epoch,
                         uint64_t batch, cudaStream_t stream) {
             std::vector<GpuSeeds> lists;
             for (const auto& [ids, size] : seeds) lists.push_back({pointer<const int64_t>(ids), size});
             self.held->start(lists, epoch, batch, stream);
           }),
           "seeds"_a, "epoch"_a, "batch"_a, "stream"_a, Release())
      .def("finish", on_device(+[](BoundSampler& self) {
             GpuBatchSizes sizes = self.held->finish();
             return std::pair(std::move(sizes.num_nodes), std::move(sizes.num_edges));
           }),
           Release())
      .def("write_nodes", on_device(&GpuSampler::write_nodes), "node_type"_a, "out"_a, "stream"_a, Release())
      .def("write_edges", on_device(&GpuSampler::write_edges), "hop"_a, "relation"_a, "out"_a, "stream"_a, Release())
      .def("write_positions", on_device(&GpuSampler::write_positions), "hop"_a, "relation"_a, "out"_a, "stream"_a,
           Release())
      .def_prop_ro("device_bytes", [](const BoundSampler& self) { return self.held->device_bytes(); });
}

}  // namespace tiering::cuda
