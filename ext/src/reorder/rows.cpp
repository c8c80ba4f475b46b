// Rows of a table in a given order, and to given places. Threads own equal shares of what they read in order. Rows
// whose place lies outside are passed over, so that a table can be streamed past a window of its permutation; rows of
// whole cache lines are written past the caches, as a window is much larger. Rows are summed by node from edges that
// come ordered by node: shares are cut where a node ends, so that a node has one owner, which adds in the order of edges.
#include <tiering/codec/codes.hpp>
#include <tiering/line_writer.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kRowsAhead = 8;    // rows fetched ahead, so that a core waits for several at once
constexpr int64_t kFewestLines = 4;  // rows of so many cache lines are written past the caches

void expect_length(const RowsView& table, const RowsTarget& out) {
  TIERING_EXPECT(out.row_bytes == table.row_bytes, "out: expected 2-D uint8 array with rows as long as the table's, ",
                 table.row_bytes, " bytes");
}

template <typename Id>
void gather_share(const RowsView& table, std::span<const Id> ids, const RowsTarget& out, int64_t begin, int64_t end) {
  const auto rows = static_cast<uint64_t>(table.num_rows);
  for (int64_t i = begin; i < end; ++i) {
    if (i + kRowsAhead < end) {
      const auto ahead = static_cast<uint64_t>(ids[i + kRowsAhead]);
      if (ahead < rows) prefetch_row(table.data + static_cast<int64_t>(ahead) * table.row_bytes, table.row_bytes);
    }
    const int64_t id = ids[i];
    TIERING_EXPECT(static_cast<uint64_t>(id) < rows, "ids[", i, "] is ", id, ", outside the table's ", table.num_rows,
                   " rows");
    std::memcpy(out.data + i * out.stride_bytes, table.data + id * table.row_bytes,
                static_cast<size_t>(table.row_bytes));
  }
}

bool in_lines(const RowsView& table, const RowsTarget& out) {
  const auto line = static_cast<int64_t>(kLineBytes);
  const auto misaligned = reinterpret_cast<uintptr_t>(out.data) | static_cast<uintptr_t>(out.stride_bytes) |
                          static_cast<uintptr_t>(table.row_bytes);
  return table.row_bytes >= kFewestLines * line && misaligned % kLineBytes == 0 &&
         reinterpret_cast<uintptr_t>(table.data) % 16 == 0;
}

/// Calls copy(to, from) for the rows that have a place in `out`.
template <typename Id, typename Copy>
void place_rows(const RowsView& table, std::span<const Id> places, int64_t first, const RowsTarget& out, int threads,
                Copy&& copy) {
  const auto room = static_cast<uint64_t>(out.num_rows);
  for_cuts(threads, table.num_rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = wrapped_difference(places[i], first);
      if (static_cast<uint64_t>(place) < room)
        copy(out.data + place * out.stride_bytes, table.data + i * table.row_bytes);
    }
    stream_fence();
  });
}

constexpr int64_t kEdgesAhead = 4;  // edges fetched ahead

/// A number in the code of a codec.
template <typename Codec>
struct Coded {
  typename Codec::Code code;
  explicit operator float() const { return Codec::decode(code, 1, 0); }
};

template <typename T>
void add_row(float* __restrict total, const T* __restrict row, int64_t dim) {
  for (int64_t k = 0; k < dim; ++k) total[k] += static_cast<float>(row[k]);
}

/// Ends of the edges; both were found to be inside.
template <typename Id>
struct Ends {
  std::span<const Id> nodes, neighbors;
  int64_t node(int64_t edge) const { return read_once(nodes[edge]); }
  int64_t neighbor(int64_t edge) const { return read_once(neighbors[edge]); }
};

template <typename T, typename Id>
void add_share(const NumberRows& rows, const Ends<Id>& ends, const RowSums& out, int64_t begin, int64_t end) {
  const T* const table = static_cast<const T*>(rows.data);
  const int64_t dim = rows.dim;
  const auto nodes = static_cast<uint64_t>(out.num_nodes), count = static_cast<uint64_t>(rows.num_rows);
  for (int64_t edge = begin; edge < end; ++edge) {
    if (edge + kEdgesAhead < end) {
      prefetch_row(table + ends.neighbor(edge + kEdgesAhead) * dim, dim * static_cast<int64_t>(sizeof(T)));
      prefetch_row(out.total + ends.node(edge + kEdgesAhead) * dim, dim * static_cast<int64_t>(sizeof(float)));
    }
    const int64_t node = ends.node(edge), neighbor = ends.neighbor(edge);
    if (static_cast<uint64_t>(node) >= nodes || static_cast<uint64_t>(neighbor) >= count) changed_meanwhile();
    add_row(out.total + node * dim, table + neighbor * dim, dim);
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
    const int64_t node = ends.node(edge), neighbor = ends.neighbor(edge);
    if (static_cast<uint64_t>(node) >= static_cast<uint64_t>(num_nodes))
      refuse("nodes", edge, node, "outside the " + std::to_string(num_nodes) + " nodes of total");
    if (edge > 0 && node < ends.node(edge - 1))
      refuse("nodes", edge, node, "behind " + std::to_string(ends.node(edge - 1)) + ": expected ascending nodes");
    if (static_cast<uint64_t>(neighbor) >= static_cast<uint64_t>(num_rows))
      refuse("neighbors", edge, neighbor, "outside the table's " + std::to_string(num_rows) + " rows");
  }
}

/// The first edge of part `t`: that of its even share, or, where a node began before, that of the next node.
template <typename Id>
int64_t node_cut(std::span<const Id> nodes, int parts, int t) {
  const auto size = static_cast<int64_t>(nodes.size());
  const int64_t edge = t >= parts ? size : even_cut(size, parts, t).first;
  if (edge == 0 || edge == size) return edge;
  return std::upper_bound(nodes.begin() + (edge - 1), nodes.end(), nodes[edge - 1]) - nodes.begin();
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
        return add_share<Coded<codec::Float16>>(rows, ends, out, begin, end);
      case NumberKind::kBFloat16:
        return add_share<Coded<codec::BFloat16>>(rows, ends, out, begin, end);
      case NumberKind::kFloat32:
        return add_share<float>(rows, ends, out, begin, end);
      case NumberKind::kFloat64:
        return add_share<double>(rows, ends, out, begin, end);
    }
  });
}

}  // namespace

void gather_rows(const RowsView& table, const IdSpan& ids, const RowsTarget& out, int threads) {
  TIERING_EXPECT(out.num_rows == ids.size, "out has ", out.num_rows, " rows for ", ids.size, " ids");
  expect_length(table, out);
  ids.visit([&](const auto& span) {
    for_cuts(threads, ids.size, [&](int64_t begin, int64_t end) { gather_share(table, span, out, begin, end); });
  });
}

void scatter_rows(const RowsView& table, const IdSpan& places, int64_t first, const RowsTarget& out, int threads) {
  TIERING_EXPECT(table.num_rows == places.size, "there are ", places.size, " places for ", table.num_rows, " rows");
  expect_length(table, out);
  places.visit([&](const auto& span) {
    with_item_bytes(table.row_bytes, [&](auto bytes) {
      auto place = [&](auto&& copy) { place_rows(table, span, first, out, threads, copy); };
      if (in_lines(table, out))
        place([bytes](std::byte* to, const std::byte* from) { stream_lines(to, from, bytes); });
      else
        place([bytes](std::byte* to, const std::byte* from) { std::memcpy(to, from, bytes); });
    });
  });
}

void add_rows(const NumberRows& rows, const IdSpan& nodes, const IdSpan& neighbors, const RowSums& out, int threads) {
  TIERING_EXPECT(nodes.size == neighbors.size, "neighbors: expected one for each of ", nodes.size, " nodes, found ",
                 neighbors.size);
  TIERING_EXPECT(nodes.wide == neighbors.wide, "neighbors: expected ids as wide as those of nodes");
  nodes.visit([&](const auto& first) {
    using Id = std::remove_const_t<typename std::remove_cvref_t<decltype(first)>::element_type>;
    const std::span<const Id> second(static_cast<const Id*>(neighbors.data), first.size());
    add_edges(rows, Ends<Id>{first, second}, out, threads);
  });
}

}  // namespace tiering
