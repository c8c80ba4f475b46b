// WebGraph's BVGraph: successor lists as gaps, intervals and copies from lists before, in a stream of bits. Decoder: the
// stream is not trusted; whatever it holds, each read stays inside it, and damage is an InputError that names the node.
// Encoder: lists in, bytes out, with the memory of a window of lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tiering/sampling/growing_array.hpp>
#include <vector>

namespace tiering {

/// Instantaneous codes of natural numbers.
enum class Code { unary, gamma, delta, zeta, nibble };

/// What the properties of a graph say of its stream.
struct BvFormat {
  int64_t num_nodes = 0, num_arcs = 0;
  int64_t window = 7;        ///< how far back a list may refer; 0: none does
  int64_t min_interval = 4;  ///< shortest run that is an interval; 0: none is
  int zeta_k = 3;
  Code outdegrees = Code::gamma, references = Code::unary, block_counts = Code::gamma, blocks = Code::gamma,
       intervals = Code::gamma, residuals = Code::zeta;
};

class BvGraph {
 public:
  /// `bits` are the bytes of the .graph file, most significant bit first.
  BvGraph(std::span<const std::byte> bits, const BvFormat& format);

  /// Finds where lists begin, from the lists themselves: fills offsets[first + 1 .. end] (bits) and
  /// indptr[first + 1 .. end]; what stands up to `first` is given. One thread: a list tells its end only when it is read.
  void find_lists(int64_t first, int64_t end, std::span<int64_t> offsets, std::span<int64_t> indptr) const;

  /// Fills indptr[first + 1 .. end] from the outdegrees of lists that begin at given offsets.
  void read_degrees(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<int64_t> indptr,
                    int threads) const;

  /// Writes the lists of the nodes first .. end - 1 to their places in `indices` (as `indptr` has them); those of the
  /// nodes before `first` stand there already. Each must end where the next begins, with ids that rise.
  void decode(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<const int64_t> indptr,
              std::span<int32_t> indices, int threads) const;
  void decode(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<const int64_t> indptr,
              std::span<int64_t> indices, int threads) const;

 private:
  template <typename Id>
  void decode_as(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<const int64_t> indptr,
                 std::span<Id> indices, int threads) const;
  void add_degree(int64_t node, int64_t degree, std::span<int64_t> indptr) const;
  void check(int64_t first, int64_t end, size_t offsets, size_t indptr) const;

  std::span<const std::byte> bits_;
  BvFormat format_;
};

/// Reads an .offsets file: the differences between offsets, from the bit `position` on, into offsets[first .. end - 1].
/// Returns the bit after them. Offsets that fall cannot be said; those beyond `limit` are refused.
int64_t read_bv_offsets(std::span<const std::byte> bits, Code code, int64_t position, int64_t first, int64_t end,
                        int64_t limit, std::span<int64_t> offsets);

/// Bytes of BASE.graph and BASE.offsets that follow those before.
struct BvBytes {
  GrowingArray<uint8_t> graph, offsets;
};

/// How the arcs were written, and the bits of all lists.
struct BvCounts {
  int64_t copied = 0, intervals = 0, residuals = 0, bits = 0;
};

class ListParts;

class BvEncoder {
 public:
  /// `max_chain`: how many lists may refer to one another in a row. The codes of `format` must be the usual ones; its
  /// number of arcs is not looked at.
  BvEncoder(const BvFormat& format, int64_t max_chain);
  ~BvEncoder();

  /// Writes the lists of the next nodes: indices[indptr[i] .. indptr[i + 1] - 1], which rise.
  void add(std::span<const int64_t> indptr, std::span<const int64_t> indices);

  /// The bytes that are complete.
  BvBytes take();

  /// The last bytes, once all nodes have their lists.
  BvBytes finish();

  const BvCounts& counts() const { return counts_; }

 private:
  struct Kept;
  struct Streams;
  void put(std::span<const int64_t> list);
  int64_t bits_of(const ListParts& parts) const;

  BvFormat format_;
  int64_t max_chain_, node_ = 0;
  BvCounts counts_;
  std::vector<Kept> kept_;  ///< the list of node v at v modulo window + 1
  std::unique_ptr<Streams> streams_;
};

}  // namespace tiering
