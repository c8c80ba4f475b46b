// One successor list of a BVGraph, read where it begins.
#pragma once

#include <string>
#include <vector>

#include "bit_reader.hpp"

namespace tiering {

/// What a list begins with.
struct ListHead {
  int64_t degree = 0;
  int64_t reference = 0;  ///< how many nodes back the list is that this one copies from; 0 for none
};

class ListReader {
 public:
  ListReader(std::span<const std::byte> bits, const BvFormat& format) : format_(format), bits_(bits, format.zeta_k) {}

  int64_t position() const { return bits_.position(); }

  ListHead head(int64_t node, int64_t offset) {
    bits_.seek(offset);
    ListHead head;
    head.degree = bits_.read(format_.outdegrees, format_.num_nodes, "an outdegree");
    if (head.degree > 0 && format_.window > 0)
      head.reference = bits_.read(format_.references, std::min(format_.window, node), "a reference");
    return head;
  }

  /// Reads what follows the head, past the end of the list; `copied_degree` is that of the list referred to.
  void skip_body(int64_t node, const ListHead& head, int64_t copied_degree) { body<false>(node, head, copied_degree); }

  /// Reads what follows the head; `copied_list` is the list referred to, `out` takes the successors.
  template <typename Copied, typename Out>
  void read_body(int64_t node, const ListHead& head, std::span<const Copied> copied_list, std::span<Out> out) {
    body<true>(node, head, static_cast<int64_t>(copied_list.size()));
    merge(copied_list, out);
  }

 private:
  /// A run of places in the list referred to, or of ids.
  struct Run {
    int64_t begin, length;
  };

  template <bool kKeep>
  void body(int64_t node, const ListHead& head, int64_t copied_degree) {
    copies_.clear(), intervals_.clear(), residuals_.clear();
    int64_t left = head.degree;
    if (head.reference > 0) left -= copies<kKeep>(copied_degree, left);
    if (left > 0 && format_.min_interval > 0) left -= intervals<kKeep>(node, left);
    if (left > 0) residuals<kKeep>(node, left);
  }

  /// Blocks of the list referred to that are copied and left out in turn; returns how many entries are copied.
  template <bool kKeep>
  int64_t copies(int64_t copied_degree, int64_t degree) {
    const int64_t count = bits_.read(format_.block_counts, copied_degree + 1, "a number of blocks");
    int64_t begin = 0, copied = 0;
    for (int64_t i = 0; i <= count; ++i) {
      int64_t length = copied_degree - begin;  // the last block is the rest, which is not said
      if (i < count) length = bits_.read(format_.blocks, length, "a block") + (i > 0);
      TIERING_EXPECT(length <= copied_degree - begin, "blocks beyond the list that they are of");
      if (i % 2 == 0) {
        copied += length;
        if (kKeep && length > 0) copies_.push_back({begin, length});
      }
      begin += length;
    }
    TIERING_EXPECT(copied <= degree, "more entries copied than the list has");
    return copied;
  }

  /// Runs of consecutive ids; returns how many ids they are.
  template <bool kKeep>
  int64_t intervals(int64_t node, int64_t left) {
    const int64_t count = bits_.read(format_.intervals, left / format_.min_interval, "a number of intervals");
    int64_t next = 0, all = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = i == 0 ? first_id(node, format_.intervals) : next_id(next + 1, format_.intervals);
      const int64_t length = bits_.read(format_.intervals, left - all, "an interval") + format_.min_interval;
      TIERING_EXPECT(length <= left - all, "intervals longer than the list");
      TIERING_EXPECT(length <= format_.num_nodes - begin, past_end());
      if (kKeep) intervals_.push_back({begin, length});
      all += length;
      next = begin + length;
    }
    return all;
  }

  template <bool kKeep>
  void residuals(int64_t node, int64_t left) {
    int64_t id = first_id(node, format_.residuals);
    if (kKeep) residuals_.push_back(id);
    for (int64_t i = 1; i < left; ++i) {
      id = next_id(id + 1, format_.residuals);
      if (kKeep) residuals_.push_back(id);
    }
  }

  /// An id by its distance from the node: even numbers are at or after it, odd ones before.
  int64_t first_id(int64_t node, Code code) {
    const int64_t number = bits_.read(code, 2 * format_.num_nodes, "a distance");
    const int64_t id = node + (number % 2 == 0 ? number / 2 : -(number + 1) / 2);
    TIERING_EXPECT(id >= 0, "a successor below 0");
    TIERING_EXPECT(id < format_.num_nodes, past_end());
    return id;
  }

  int64_t next_id(int64_t least, Code code) {
    const int64_t id = least + bits_.read(code, format_.num_nodes, "a gap");
    TIERING_EXPECT(id < format_.num_nodes, past_end());
    return id;
  }

  std::string past_end() const { return "a successor beyond the last node, " + std::to_string(format_.num_nodes - 1); }

  /// What is copied, intervals and residuals in ascending order.
  template <typename Copied, typename Out>
  void merge(std::span<const Copied> copied_list, std::span<Out> out) {
    auto at = out.begin();
    size_t residual = 0, interval = 0;
    int64_t in_interval = 0;
    const auto put_below = [&](int64_t bound) {  // residuals and intervals, in turn
      while (true) {
        const int64_t one = residual < residuals_.size() ? residuals_[residual] : bound;
        const int64_t other = interval < intervals_.size() ? intervals_[interval].begin + in_interval : bound;
        if (one >= bound && other >= bound) return;
        *at++ = static_cast<Out>(std::min(one, other));
        if (one <= other) {
          ++residual;
        } else if (++in_interval == intervals_[interval].length) {
          ++interval, in_interval = 0;
        }
      }
    };
    for (const auto& run : copies_)
      for (int64_t i = run.begin; i < run.begin + run.length; ++i) {
        const int64_t id = copied_list[static_cast<size_t>(i)];
        put_below(id);
        *at++ = static_cast<Out>(id);
      }
    put_below(format_.num_nodes);
    for (size_t i = 1; i < out.size(); ++i)
      TIERING_EXPECT(out[i - 1] < out[i], "successor " + std::to_string(out[i]) + " twice");
  }

  const BvFormat& format_;
  BitReader bits_;
  std::vector<Run> copies_, intervals_;
  std::vector<int64_t> residuals_;
};

}  // namespace tiering
