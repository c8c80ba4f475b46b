// Lists to a BVGraph, one after another: each is written in the shortest of the ways that the window allows.
#include <string>
#include <tiering/errors.hpp>
#include <tiering/webgraph.hpp>
#include <vector>

#include "list_writer.hpp"

namespace tiering {

/// A list in the window.
struct BvEncoder::Kept {
  std::vector<int64_t> list;
  int64_t chain = 0;  ///< how many lists are read before it can be
};

struct BvEncoder::Streams {
  BitWriter graph, offsets;
  ListParts best, other;
};

BvEncoder::BvEncoder(const BvFormat& format, int64_t max_chain)
    : format_(format), max_chain_(max_chain), streams_(std::make_unique<Streams>()) {
  TIERING_EXPECT(format.num_nodes >= 0 && format.num_nodes <= int64_t{1} << 48, "expected at most 2^48 nodes");
  TIERING_EXPECT(format.window >= 0 && format.window <= 1 << 16, "expected a window of 0 to 65536");
  TIERING_EXPECT(format.min_interval >= 0, "expected intervals of 0 or more");
  TIERING_EXPECT(format.zeta_k >= 1 && format.zeta_k <= 7, "expected a zeta code of 1 to 7");
  TIERING_EXPECT(max_chain >= 0, "expected chains of 0 or more");
  const BvFormat usual;
  TIERING_EXPECT(format.outdegrees == usual.outdegrees && format.references == usual.references &&
                     format.block_counts == usual.block_counts && format.blocks == usual.blocks &&
                     format.intervals == usual.intervals && format.residuals == usual.residuals,
                 "expected the usual codes: no others are written");
  kept_.resize(static_cast<size_t>(format.window) + 1);
  put_gamma(streams_->offsets, 0);
}

BvEncoder::~BvEncoder() = default;

void BvEncoder::add(std::span<const int64_t> indptr, std::span<const int64_t> indices) {
  TIERING_EXPECT(!indptr.empty() && indptr.front() == 0 && indptr.back() == static_cast<int64_t>(indices.size()),
                 "indptr: expected entries from 0 to the number of indices");
  TIERING_EXPECT(static_cast<int64_t>(indptr.size()) - 1 <= format_.num_nodes - node_,
                 "more lists than the graph has nodes, " + std::to_string(format_.num_nodes));
  for (size_t i = 0; i + 1 < indptr.size(); ++i) {
    const std::string where = "node " + std::to_string(node_) + ": ";
    TIERING_EXPECT(indptr[i] <= indptr[i + 1] && indptr[i + 1] <= indptr.back(), where + "indptr falls");
    const auto list = indices.subspan(static_cast<size_t>(indptr[i]), static_cast<size_t>(indptr[i + 1] - indptr[i]));
    int64_t before = -1;
    for (const int64_t id : list) {
      TIERING_EXPECT(id > before && id < format_.num_nodes, where + "successors must rise from 0 to " +
                                                                std::to_string(format_.num_nodes - 1) + ", found " +
                                                                std::to_string(id));
      before = id;
    }
    put(list);
  }
}

BvBytes BvEncoder::take() { return {streams_->graph.take(), streams_->offsets.take()}; }

BvBytes BvEncoder::finish() {
  TIERING_EXPECT(node_ == format_.num_nodes,
                 "expected lists of " + std::to_string(format_.num_nodes) + " nodes, found " + std::to_string(node_));
  return {streams_->graph.finish(), streams_->offsets.finish()};
}

/// Nearer lists come first: of several ways that are as short the nearest is taken.
void BvEncoder::put(std::span<const int64_t> list) {
  auto& [graph, offsets, best, other] = *streams_;
  const auto place = [&](int64_t node) -> Kept& { return kept_[static_cast<size_t>(node % (format_.window + 1))]; };
  best.split(format_, node_, list, 0, {});
  int64_t least = bits_of(best);
  for (int64_t back = 1; !list.empty() && back <= std::min(format_.window, node_); ++back) {
    const Kept& kept = place(node_ - back);
    if (kept.chain >= max_chain_ || kept.list.empty()) continue;
    other.split(format_, node_, list, back, kept.list);
    if (const int64_t bits = bits_of(other); bits < least) {
      least = bits;
      std::swap(best, other);
    }
  }
  Kept& own = place(node_);
  own.list.assign(list.begin(), list.end());
  own.chain = best.reference() > 0 ? place(node_ - best.reference()).chain + 1 : 0;
  best.put(format_, graph);
  put_gamma(offsets, least);
  counts_.copied += best.copied_arcs();
  counts_.intervals += best.interval_arcs();
  counts_.residuals += best.residual_arcs();
  counts_.bits += least;
  ++node_;
}

int64_t BvEncoder::bits_of(const ListParts& parts) const {
  BitCounter counter;
  parts.put(format_, counter);
  return counter.bits();
}

}  // namespace tiering
