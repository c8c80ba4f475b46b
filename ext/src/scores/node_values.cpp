#include <tiering/parallel.hpp>
#include <tiering/scores.hpp>

namespace tiering {

void NodeValues::check(int64_t num_nodes, const std::string& who) const {
  if (!each.empty()) {
    TIERING_EXPECT(static_cast<int64_t>(each.size()) == num_nodes && ids.empty(), who, " ", num_nodes,
                   " values, found ", each.size());
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    TIERING_EXPECT(ids[i] >= 0 && ids[i] < num_nodes, who, " ids, found ", ids[i], ", outside 0..", num_nodes - 1);
    TIERING_EXPECT(i == 0 || ids[i - 1] < ids[i], who, " ascending ids, found ", ids[i], " behind ",
                   i == 0 ? 0 : ids[i - 1]);
  }
}

void NodeValues::write(int64_t first, std::span<double> values) const {
  if (!each.empty()) {
    std::copy_n(each.begin() + first, values.size(), values.begin());
    return;
  }
  std::fill(values.begin(), values.end(), rest);
  const int64_t end = first + static_cast<int64_t>(values.size());
  for (auto at = std::lower_bound(ids.begin(), ids.end(), first); at != ids.end(); ++at) {
    const int64_t id = read_once(*at);
    if (id >= end) break;
    if (id < first) changed_meanwhile();
    values[static_cast<size_t>(id - first)] = chosen;
  }
}

Buffer<double> NodeValues::to_vector(int64_t num_nodes, int threads) const {
  Buffer<double> values(num_nodes);
  for_cuts(threads, num_nodes, [&](int64_t begin, int64_t end) {
    write(begin, values.span().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  });
  return values;
}

}  // namespace tiering
