// Passes over the lists of a BVGraph. Threads have ranges of nodes; a list that refers to one before the range of its
// thread, which another thread may not have written yet, has that one decoded for itself.
#include <algorithm>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <vector>

#include "list_reader.hpp"

namespace tiering {

namespace {

/// Runs body for the nodes first .. end - 1; what it refuses says first which node it is about.
template <typename Body>
void for_nodes(int64_t first, int64_t end, Body&& body) {
  int64_t node = first;
  try {
    for (; node < end; ++node) body(node);
  } catch (const InputError& error) {
    throw InputError("node " + std::to_string(node) + ": " + error.what());
  }
}

/// Decodes the lists of one range of nodes.
template <typename Id>
class RangeDecoder {
 public:
  /// `done`: lists of the nodes before it stand in `indices`.
  RangeDecoder(std::span<const std::byte> bits, const BvFormat& format, std::span<const int64_t> offsets,
               std::span<const int64_t> indptr, std::span<Id> indices, int64_t done)
      : format_(format),
        reader_(bits, format),
        earlier_(bits, format),
        offsets_(offsets),
        indptr_(indptr),
        indices_(indices),
        done_(done) {}

  void decode(int64_t first, int64_t end) {
    kept_.assign(static_cast<size_t>(std::min(format_.window, first - done_)), {});
    for_nodes(first, end, [&](int64_t node) {
      const ListHead head = checked_head(reader_, node);
      const int64_t referred = node - head.reference;
      const bool elsewhere = referred < first && referred >= done_;
      const auto copied = elsewhere ? before(referred, first) : std::span<const Id>(place(referred));
      reader_.read_body(node, head, copied, place(node));
      const int64_t next = offsets_[static_cast<size_t>(node) + 1];
      TIERING_EXPECT(reader_.position() == next, "its list ends at bit " + std::to_string(reader_.position()) +
                                                     ", the next begins at bit " + std::to_string(next));
    });
  }

 private:
  std::span<Id> place(int64_t node) const {
    const int64_t begin = indptr_[static_cast<size_t>(node)], end = indptr_[static_cast<size_t>(node) + 1];
    TIERING_EXPECT(begin >= 0 && begin <= end && end <= static_cast<int64_t>(indices_.size()), "indptr is wrong");
    return indices_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }

  ListHead checked_head(ListReader& reader, int64_t node) const {
    const ListHead head = reader.head(node, offsets_[static_cast<size_t>(node)]);
    const auto degree = static_cast<int64_t>(place(node).size());
    TIERING_EXPECT(head.degree == degree,
                   "expected an outdegree of " + std::to_string(degree) + ", found " + std::to_string(head.degree));
    return head;
  }

  /// The list of a node in the window before the range, decoded when it is first asked for.
  std::span<const Id> before(int64_t node, int64_t first) {
    Kept& kept = kept_[static_cast<size_t>(first - 1 - node)];
    if (!kept.decoded) kept = {true, by_chain(node)};
    return kept.list;
  }

  /// A list by those that it copies from, one after another: the farthest first.
  std::vector<Id> by_chain(int64_t node) {
    std::vector<int64_t> chain{node};
    while (chain.back() >= done_) {
      const ListHead head = checked_head(earlier_, chain.back());
      if (head.reference == 0) break;
      chain.push_back(chain.back() - head.reference);
    }
    std::vector<Id> list;
    if (chain.back() < done_) {
      const auto there = place(chain.back());
      list.assign(there.begin(), there.end());
      chain.pop_back();
    }
    std::vector<Id> next;
    for (; !chain.empty(); chain.pop_back()) {
      const int64_t one = chain.back();
      next.resize(place(one).size());
      earlier_.read_body(one, checked_head(earlier_, one), std::span<const Id>(list), std::span<Id>(next));
      list.swap(next);
    }
    return list;
  }

  struct Kept {
    bool decoded = false;
    std::vector<Id> list;
  };

  const BvFormat& format_;
  ListReader reader_;   ///< of the range
  ListReader earlier_;  ///< of lists before it
  std::span<const int64_t> offsets_, indptr_;
  std::span<Id> indices_;
  int64_t done_;
  std::vector<Kept> kept_;  ///< lists of the nodes right before the range, the nearest first
};

}  // namespace

BvGraph::BvGraph(std::span<const std::byte> bits, const BvFormat& format) : bits_(bits), format_(format) {
  constexpr int64_t kMost = int64_t{1} << 48;
  TIERING_EXPECT(format.num_nodes >= 0 && format.num_nodes <= kMost, "expected at most 2^48 nodes");
  TIERING_EXPECT(format.window >= 0 && format.window <= kMost, "expected a window of 0 or more");
  TIERING_EXPECT(format.min_interval >= 0 && format.min_interval <= kMost, "expected intervals of 0 or more");
  TIERING_EXPECT(format.zeta_k >= 1 && format.zeta_k <= 31, "expected a zeta code of 1 to 31");
}

void BvGraph::check(int64_t first, int64_t end, size_t offsets, size_t indptr) const {
  const auto entries = static_cast<size_t>(format_.num_nodes) + 1;
  TIERING_EXPECT(first >= 0 && first <= end && end <= format_.num_nodes, "nodes outside the graph");
  TIERING_EXPECT(offsets == entries && indptr == entries, "expected one offset more than there are nodes");
}

void BvGraph::add_degree(int64_t node, int64_t degree, std::span<int64_t> indptr) const {
  const int64_t before = indptr[static_cast<size_t>(node)];
  TIERING_EXPECT(before >= 0 && degree <= format_.num_arcs - before,
                 "more arcs up to here than the graph has, " + std::to_string(format_.num_arcs));
  indptr[static_cast<size_t>(node) + 1] = before + degree;
}

void BvGraph::find_lists(int64_t first, int64_t end, std::span<int64_t> offsets, std::span<int64_t> indptr) const {
  check(first, end, offsets.size(), indptr.size());
  ListReader reader(bits_, format_);
  for_nodes(first, end, [&](int64_t node) {
    const ListHead head = reader.head(node, offsets[static_cast<size_t>(node)]);
    const auto referred = static_cast<size_t>(node - head.reference);
    reader.skip_body(node, head, head.reference > 0 ? indptr[referred + 1] - indptr[referred] : 0);
    offsets[static_cast<size_t>(node) + 1] = reader.position();
    add_degree(node, head.degree, indptr);
  });
}

void BvGraph::read_degrees(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<int64_t> indptr,
                           int threads) const {
  check(first, end, offsets.size(), indptr.size());
  run_team(threads, [&](int t) {
    const auto [begin, past] = even_cut(end - first, threads, t);
    ListReader reader(bits_, format_);
    for_nodes(first + begin, first + past, [&](int64_t node) {
      indptr[static_cast<size_t>(node) + 1] = reader.head(node, offsets[static_cast<size_t>(node)]).degree;
    });
  });
  for_nodes(first, end, [&](int64_t node) { add_degree(node, indptr[static_cast<size_t>(node) + 1], indptr); });
}

template <typename Id>
void BvGraph::decode_as(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<const int64_t> indptr,
                        std::span<Id> indices, int threads) const {
  check(first, end, offsets.size(), indptr.size());
  const int64_t* from = indptr.data() + first;
  run_team(threads, [&](int t) {
    const int64_t begin = first + edge_cut(from, end - first, threads, t);
    const int64_t past = first + edge_cut(from, end - first, threads, t + 1);
    RangeDecoder<Id>(bits_, format_, offsets, indptr, indices, first).decode(begin, past);
  });
}

void BvGraph::decode(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<const int64_t> indptr,
                     std::span<int32_t> indices, int threads) const {
  TIERING_EXPECT(format_.num_nodes <= int64_t{1} << 31, "ids of 32 bits hold at most 2^31 nodes");
  decode_as(first, end, offsets, indptr, indices, threads);
}

void BvGraph::decode(int64_t first, int64_t end, std::span<const int64_t> offsets, std::span<const int64_t> indptr,
                     std::span<int64_t> indices, int threads) const {
  decode_as(first, end, offsets, indptr, indices, threads);
}

int64_t read_bv_offsets(std::span<const std::byte> bits, Code code, int64_t position, int64_t first, int64_t end,
                        int64_t limit, std::span<int64_t> offsets) {
  TIERING_EXPECT(first >= 0 && first <= end && end <= static_cast<int64_t>(offsets.size()),
                 "offsets outside the array");
  BitReader reader(bits, 1);
  reader.seek(position);
  int64_t offset = first == 0 ? 0 : offsets[static_cast<size_t>(first) - 1];
  TIERING_EXPECT(offset >= 0 && offset <= limit, "an offset outside the graph");
  for_nodes(first, end, [&](int64_t node) {
    offset += reader.read(code, limit - offset, "a difference of offsets");
    offsets[static_cast<size_t>(node)] = offset;
  });
  return reader.position();
}

}  // namespace tiering
