// Sums of rows by node. The edges come ordered by node; threads own equal shares of them, cut where a node ends, so
// that a node has one owner, which adds its rows in the order of its edges. Rows are widened on the way and prefetched
// a few edges ahead.
#include <bit>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kEdgesAhead = 4;  // edges fetched ahead
constexpr uint32_t kHalfInfinity = 0x0f800000;

/// Bits of float16 as float, by whole numbers and one exact multiplication, so that compilers make vectors of it.
float widened_half(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t bits = magnitude >= kHalfInfinity ? magnitude | 0x7f800000 : finite;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000) << 16);
}

struct Half {
  uint16_t bits;
  explicit operator float() const { return widened_half(bits); }
};

struct Brain {
  uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <typename T>
void add_row(float* __restrict total, const T* __restrict row, int64_t dim) {
  for (int64_t k = 0; k < dim; ++k) total[k] += static_cast<float>(row[k]);
}

/// Ends of the edges; both were found to be inside.
template <typename Id>
struct Ends {
  std::span<const Id> nodes, neighbours;
  int64_t node(int64_t edge) const { return read_once(nodes[static_cast<size_t>(edge)]); }
  int64_t neighbour(int64_t edge) const { return read_once(neighbours[static_cast<size_t>(edge)]); }
};

template <typename T, typename Id>
void add_share(const NumberRows& rows, const Ends<Id>& ends, const RowSums& out, int64_t begin, int64_t end) {
  const T* const table = static_cast<const T*>(rows.data);
  const int64_t dim = rows.dim;
  const auto nodes = static_cast<uint64_t>(out.num_nodes), count = static_cast<uint64_t>(rows.num_rows);
  for (int64_t edge = begin; edge < end; ++edge) {
    if (edge + kEdgesAhead < end) {
      prefetch_row(table + ends.neighbour(edge + kEdgesAhead) * dim, dim * static_cast<int64_t>(sizeof(T)));
      prefetch_row(out.total + ends.node(edge + kEdgesAhead) * dim, dim * static_cast<int64_t>(sizeof(float)));
    }
    const int64_t node = ends.node(edge), neighbour = ends.neighbour(edge);
    if (static_cast<uint64_t>(node) >= nodes || static_cast<uint64_t>(neighbour) >= count) changed_meanwhile();
    add_row(out.total + node * dim, table + neighbour * dim, dim);
    out.degree[node] += 1;
  }
}

/// Everything is looked at before anything is added: where nodes are out of order, two threads might own one.
template <typename Id>
void check_ends(const Ends<Id>& ends, int64_t num_rows, int64_t num_nodes, int64_t begin, int64_t end) {
  const auto refuse = [](const char* name, int64_t edge, int64_t id, const std::string& expected) {
    refuse_input(std::string(name), "[", edge, "] is ", id, ", ", expected);
  };
  for (int64_t edge = begin; edge < end; ++edge) {
    const int64_t node = ends.node(edge), neighbour = ends.neighbour(edge);
    if (static_cast<uint64_t>(node) >= static_cast<uint64_t>(num_nodes))
      refuse("nodes", edge, node, "outside the " + std::to_string(num_nodes) + " nodes of total");
    if (edge > 0 && node < ends.node(edge - 1))
      refuse("nodes", edge, node, "behind " + std::to_string(ends.node(edge - 1)) + ": expected ascending nodes");
    if (static_cast<uint64_t>(neighbour) >= static_cast<uint64_t>(num_rows))
      refuse("neighbours", edge, neighbour, "outside the table's " + std::to_string(num_rows) + " rows");
  }
}

/// The first edge of part `t`: that of its even share, or, where a node began before, that of the next node.
template <typename Id>
int64_t node_cut(std::span<const Id> nodes, int parts, int t) {
  const auto size = static_cast<int64_t>(nodes.size());
  const int64_t edge = t >= parts ? size : even_cut(size, parts, t).first;
  if (edge == 0 || edge == size) return edge;
  return std::upper_bound(nodes.begin() + (edge - 1), nodes.end(), nodes[static_cast<size_t>(edge - 1)]) -
         nodes.begin();
}

template <typename Id>
void add_edges(const NumberRows& rows, const Ends<Id>& ends, const RowSums& out, int threads) {
  const auto size = static_cast<int64_t>(ends.nodes.size());
  for_cuts(threads, size,
           [&](int64_t begin, int64_t end) { check_ends(ends, rows.num_rows, out.num_nodes, begin, end); });
  run_team(threads, [&](int t) {
    const int64_t begin = node_cut(ends.nodes, threads, t), end = node_cut(ends.nodes, threads, t + 1);
    switch (rows.kind) {
      case NumberKind::kFloat16:
        return add_share<Half>(rows, ends, out, begin, end);
      case NumberKind::kBFloat16:
        return add_share<Brain>(rows, ends, out, begin, end);
      case NumberKind::kFloat32:
        return add_share<float>(rows, ends, out, begin, end);
      case NumberKind::kFloat64:
        return add_share<double>(rows, ends, out, begin, end);
    }
  });
}

}  // namespace

void add_rows(const NumberRows& rows, const IdSpan& nodes, const IdSpan& neighbours, const RowSums& out, int threads) {
  TIERING_EXPECT(nodes.size == neighbours.size, "neighbours: expected one for each of ", nodes.size, " nodes, found ",
                 neighbours.size);
  TIERING_EXPECT(nodes.wide == neighbours.wide, "neighbours: expected ids as wide as those of nodes");
  nodes.visit([&](const auto& first) {
    using Id = std::remove_const_t<typename std::remove_cvref_t<decltype(first)>::element_type>;
    const std::span<const Id> second(static_cast<const Id*>(neighbours.data), first.size());
    add_edges(rows, Ends<Id>{first, second}, out, threads);
  });
}

}  // namespace tiering
