// Requests for rows in the order of addresses: what is gathered from host memory is read page after page.
#pragma once

#include <array>
#include <tiering/cuda/gather_rows.hpp>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

/// The ids of a request and its outputs; all addresses are readable by the device.
struct RowRequest {
  const int64_t* ids = nullptr;  ///< ranks, `count` of them; those outside the table are passed over
  int64_t count = 0;
  const uint32_t* slots = nullptr;  ///< as GatherRequest::slots
  /// If not null: the place of the first id outside the table is written here where it is less than what stands there.
  unsigned long long* first_bad = nullptr;
  /// If not null, the rows of the ssd tier are for the host to read: their ranks within the tier, ascending, and their
  /// places among the ids are written here, room for `count` each, and how many they are. In memory of the host.
  int64_t* listed = nullptr;
  uint32_t* listed_places = nullptr;
  uint32_t* num_listed = nullptr;
};

/// Prepares requests and gathers their rows, one request after the other. Not thread-safe: requests on different
/// streams must be ordered. Each id becomes a key that rises with the address of its row, and a radix sort orders (key,
/// place), as GraphBolt measured 4.3 times the rate from pinned memory for sorted ids (dmlc/dgl#6635). Memory, of the
/// device and kept: 24 bytes per id of the largest request and what the sort needs, a quarter more of both; none where
/// nothing is sorted.
class RequestGatherer {
 public:
  /// Puts the preparation on a stream and returns. `by_address`: sort; needed where rows are listed for the host.
  void prepare(const RowTable& table, const RowRequest& request, bool by_address, cudaStream_t stream);
  /// Puts the gather of the request prepared last on the same stream. Rows of listed ids are left as they are.
  void gather(const RowTable& table, std::byte* out, const GatherLaunch& launch, cudaStream_t stream);
  /// Rows of each tier in all requests gathered, which must have been done. The sums are kept by the device, so that
  /// nobody waits for them until somebody asks.
  std::array<int64_t, kNumTiers> totals() const;

 private:
  using Tally = unsigned long long;

  Scratch<uint64_t> keys_, sorted_keys_;
  Scratch<uint32_t> places_, sorted_places_;
  Scratch<std::byte> memory_;  // of the sort
  Scratch<Tally> tallies_;     // of the request, then of all
  RowRequest request_;
  bool sorted_ = false, counts_ = false;  // counts_: the sums of all requests have been cleared
};

}  // namespace tiering::cuda
