// Neighbors sampled without replacement as cuGraph and GraphBolt have published it, written to be compared with; no
// part of the package.
//
// Every edge of every list gets a random key, the edges of each list are sorted by it, and the first of them are taken:
// all sets are equally likely, and a hub costs as much as its whole list. Lists are read by their address, in the memory
// of the GPU or over the link; only the ids that are taken are read.
#include <cstddef>
#include <cstdint>
#ifdef __CUDACC__
#include <cub/device/device_segmented_sort.cuh>
#endif

#include "launch.hpp"

namespace {

constexpr int kThreads = 256;

__device__ int64_t first_item() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

/// The last of `count` rows whose first item is not behind `item`; rows without items are none.
__device__ int64_t row_of(const int64_t* firsts, int64_t count, int64_t item) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (firsts[middle] <= item ? low : high) = middle;
  }
  return low;
}

__device__ uint32_t random_bits(uint64_t seed, uint64_t item) {
  uint64_t bits = seed + (item + 1) * 0x9E3779B97F4A7C15ULL;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<uint32_t>((bits ^ (bits >> 31)) >> 32);
}

__global__ void read_lists(const int64_t* indptr, const int64_t* nodes, int64_t count, int64_t* begins,
                           int64_t* degrees) {
  const int64_t item = first_item();
  if (item >= count) return;
  begins[item] = indptr[nodes[item]];
  degrees[item] = indptr[nodes[item] + 1] - begins[item];
}

__global__ void give_keys(const int64_t* begins, const int64_t* firsts, int64_t count, int64_t edges, uint64_t seed,
                          uint32_t* keys, int64_t* places) {
  const int64_t item = first_item();
  if (item >= edges) return;
  const int64_t row = row_of(firsts, count, item);
  keys[item] = random_bits(seed, static_cast<uint64_t>(item));
  places[item] = begins[row] + (item - firsts[row]);
}

template <typename Id>
__global__ void take_first(const Id* indices, const int64_t* places, const int64_t* firsts, const int64_t* outs,
                           int64_t count, int64_t taken, int64_t* sources, int64_t* destinations) {
  const int64_t item = first_item();
  if (item >= taken) return;
  const int64_t row = row_of(outs, count, item);
  sources[item] = static_cast<int64_t>(indices[places[firsts[row] + (item - outs[row])]]);
  destinations[item] = row;
}

unsigned blocks(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

}  // namespace

/// Where the list of each node begins, and how long it is.
extern "C" int reference_lists(const int64_t* indptr, const int64_t* nodes, int64_t count, int64_t* begins,
                               int64_t* degrees, void* stream) {
  if (count == 0) return 0;
  REFERENCE_LAUNCH(read_lists, blocks(count), kThreads, static_cast<cudaStream_t>(stream), indptr, nodes, count, begins,
                   degrees);
  return static_cast<int>(cudaGetLastError());
}

/// A random key, and its place, for each of the `edges` edges of `count` lists, in their order; `firsts` has count + 1
/// places where they begin among these edges.
extern "C" int reference_keys(const int64_t* begins, const int64_t* firsts, int64_t count, int64_t edges, uint64_t seed,
                              uint32_t* keys, int64_t* places, void* stream) {
  if (edges == 0) return 0;
  REFERENCE_LAUNCH(give_keys, blocks(edges), kThreads, static_cast<cudaStream_t>(stream), begins, firsts, count, edges,
                   seed, keys, places);
  return static_cast<int>(cudaGetLastError());
}

/// Places of each list by their keys. Without a workspace only says how many bytes of it are needed.
extern "C" int reference_sort(void* workspace, size_t* workspace_bytes, const uint32_t* keys, uint32_t* keys_out,
                              const int64_t* places, int64_t* places_out, int64_t edges, int64_t count,
                              const int64_t* firsts, void* stream) {
  return static_cast<int>(cub::DeviceSegmentedSort::SortPairs(workspace, *workspace_bytes, keys, keys_out, places,
                                                              places_out, edges, count, firsts, firsts + 1,
                                                              static_cast<cudaStream_t>(stream)));
}

/// The first `outs[k + 1] - outs[k]` of list k by sorted places: neighbors, and the places of their lists.
extern "C" int reference_take(int id_bytes, const void* indices, const int64_t* places, const int64_t* firsts,
                              const int64_t* outs, int64_t count, int64_t taken, int64_t* sources,
                              int64_t* destinations, void* stream) {
  if (taken == 0) return 0;
  auto* const on = static_cast<cudaStream_t>(stream);
  if (id_bytes == 4)
    REFERENCE_LAUNCH(take_first<int32_t>, blocks(taken), kThreads, on, static_cast<const int32_t*>(indices), places,
                     firsts, outs, count, taken, sources, destinations);
  else
    REFERENCE_LAUNCH(take_first<int64_t>, blocks(taken), kThreads, on, static_cast<const int64_t*>(indices), places,
                     firsts, outs, count, taken, sources, destinations);
  return static_cast<int>(cudaGetLastError());
}
