// One successor list of a BVGraph taken apart: what it copies from another list, runs of consecutive ids, and the rest.
#pragma once

#include <span>
#include <tiering/webgraph.hpp>
#include <vector>

#include "bit_writer.hpp"

namespace tiering {

class ListParts {
 public:
  /// Takes apart the list of `node`, which copies from the list `reference` nodes before, `copied`; 0 and an empty one
  /// for none.
  void split(const BvFormat& format, int64_t node, std::span<const int64_t> list, int64_t reference,
             std::span<const int64_t> copied) {
    node_ = node, degree_ = static_cast<int64_t>(list.size()), reference_ = reference;
    take_copies(list, copied);
    take_intervals(format.min_interval);
  }

  template <typename Sink>
  void put(const BvFormat& format, Sink& sink) const {
    put_gamma(sink, degree_);
    if (degree_ == 0) return;
    if (format.window > 0) put_unary(sink, reference_);
    if (reference_ > 0) {
      put_gamma(sink, static_cast<int64_t>(blocks_.size()));
      for (size_t i = 0; i < blocks_.size(); ++i) put_gamma(sink, blocks_[i] - (i > 0));  // later ones are not empty
    }
    if (copied_arcs() < degree_ && format.min_interval > 0) put_intervals(format.min_interval, sink);
    for (size_t i = 0; i < residuals_.size(); ++i) {
      const int64_t number = i == 0 ? distance(residuals_[0]) : residuals_[i] - residuals_[i - 1] - 1;
      put_zeta(sink, number, format.zeta_k);
    }
  }

  int64_t reference() const { return reference_; }
  int64_t copied_arcs() const { return degree_ - interval_arcs_ - residual_arcs(); }
  int64_t interval_arcs() const { return interval_arcs_; }
  int64_t residual_arcs() const { return static_cast<int64_t>(residuals_.size()); }

 private:
  struct Run {
    int64_t begin, length;
  };

  /// Blocks of `copied` that are in the list and that are not, in turn. The last is not said: it is what is left.
  void take_copies(std::span<const int64_t> list, std::span<const int64_t> copied) {
    blocks_.clear(), rest_.clear();
    size_t at = 0;
    bool copying = true;
    int64_t length = 0;
    for (const int64_t id : copied) {
      for (; at < list.size() && list[at] < id; ++at) rest_.push_back(list[at]);
      const bool held = at < list.size() && list[at] == id;
      at += held;
      if (held != copying) {
        blocks_.push_back(length);
        copying = held, length = 0;
      }
      ++length;
    }
    rest_.insert(rest_.end(), list.begin() + static_cast<ptrdiff_t>(at), list.end());
  }

  void take_intervals(int64_t shortest) {
    intervals_.clear(), residuals_.clear();
    interval_arcs_ = 0;
    for (size_t begin = 0, end = 0; begin < rest_.size(); begin = end) {
      for (end = begin + 1; end < rest_.size() && rest_[end] == rest_[end - 1] + 1;) ++end;
      const auto length = static_cast<int64_t>(end - begin);
      if (shortest > 0 && length >= shortest) {
        intervals_.push_back({rest_[begin], length});
        interval_arcs_ += length;
      } else {
        residuals_.insert(residuals_.end(), rest_.begin() + static_cast<ptrdiff_t>(begin),
                          rest_.begin() + static_cast<ptrdiff_t>(end));
      }
    }
  }

  template <typename Sink>
  void put_intervals(int64_t shortest, Sink& sink) const {
    put_gamma(sink, static_cast<int64_t>(intervals_.size()));
    int64_t least = 0;  // between two intervals is an id that is in none
    for (size_t i = 0; i < intervals_.size(); ++i) {
      const auto [begin, length] = intervals_[i];
      put_gamma(sink, i == 0 ? distance(begin) : begin - least);
      put_gamma(sink, length - shortest);
      least = begin + length + 1;
    }
  }

  /// Of an id from the node: even numbers are at or after it, odd ones before.
  int64_t distance(int64_t id) const { return id >= node_ ? 2 * (id - node_) : 2 * (node_ - id) - 1; }

  int64_t node_ = 0, degree_ = 0, reference_ = 0, interval_arcs_ = 0;
  std::vector<int64_t> blocks_, rest_, residuals_;
  std::vector<Run> intervals_;
};

}  // namespace tiering
