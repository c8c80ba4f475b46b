// Sums of weights by several threads, and draws by weight against a linear scan over what is left. tests/sampling compares
// how often places are drawn, at the extremes of weights too, with exact chances.
#include <cmath>

#include "check.hpp"
#include "graphs.hpp"
#include "tiering/sampling/draw.hpp"
#include "tiering/sampling/sampler.hpp"

using namespace tiering;
using tiering::test::kThreads;

namespace {

using Sums = std::vector<uint64_t>;
using Places = std::vector<int64_t>;

/// A relation with weights; the sums never read its indices.
template <typename T>
struct Columns {
  std::vector<int64_t> indptr;
  std::vector<T> weights;

  RelationView view() const {
    RelationView relation;
    relation.indptr = indptr.data();
    relation.indices.size = size();
    relation.weights = {weights.data(), size(), sizeof(T) == 8};
    return relation;
  }
  int64_t size() const { return static_cast<int64_t>(weights.size()); }

  Sums sums(int threads = 1) const {
    const auto made = cumulative_weights(view(), static_cast<int64_t>(indptr.size()) - 1, "relation 0", threads);
    return {made.data(), made.data() + size()};
  }
};

template <typename T>
Columns<T> column(const std::vector<T>& weights) {
  return {{0, static_cast<int64_t>(weights.size())}, weights};
}

/// Random columns, some empty and some of zeros alone.
template <typename T>
Columns<T> random_columns(int64_t columns, unsigned seed) {
  std::mt19937_64 random(seed);
  Columns<T> out{{0}, {}};
  for (int64_t v = 0; v < columns; ++v) {
    const int64_t degree = v % 9 == 4 ? 0 : static_cast<int64_t>(random() % 40);
    for (int64_t e = 0; e < degree; ++e) {
      const auto x = static_cast<double>(random() % 1000) - 200;
      out.weights.push_back(static_cast<T>(v % 7 == 3 ? 0 : std::max(0.0, x * x * x)));
    }
    out.indptr.push_back(out.size());
  }
  return out;
}

void test_sums_for_any_number_of_threads() {
  const auto wide = random_columns<double>(500, 1);
  const auto narrow = random_columns<float>(500, 1);  // whole numbers up to 2^29, rounded
  const Sums one = wide.sums(1);
  for (const int threads : kThreads) {
    CHECK(wide.sums(threads) == one);
    CHECK(narrow.sums(threads) == narrow.sums(1));
  }
  for (size_t v = 0; v + 1 < wide.indptr.size(); ++v) {  // each column by itself gives the same
    const auto begin = wide.weights.begin() + wide.indptr[v], end = wide.weights.begin() + wide.indptr[v + 1];
    if (std::none_of(begin, end, [](double w) { return w > 0; })) continue;
    const Sums alone = column(std::vector<double>(begin, end)).sums();
    CHECK(std::equal(alone.begin(), alone.end(), one.begin() + wide.indptr[v]));
  }
}

/// Places that `draw` takes; the room is no more than it says it needs, so that the sanitizer sees any overrun.
template <typename Draw>
Places taken_by(Draw& draw, int64_t first, int64_t degree, int64_t fanout, uint64_t key) {
  const int64_t most = Draw::most(degree, fanout);
  const auto out = std::make_unique<int64_t[]>(static_cast<size_t>(most));
  const int64_t taken = draw(first, degree, fanout, Stream(3, key), out.get());
  CHECK(taken >= 0 && taken <= most);
  return {out.get(), out.get() + taken};
}

Places in_order(int64_t first, int64_t degree) {
  Places all(static_cast<size_t>(degree));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// The draws of WeightedDraw by another method: after every draw, a scan over what is left.
Places by_scanning(const Sums& counts, int64_t first, int64_t degree, int64_t fanout, uint64_t key) {
  Sums left(counts.begin() + first, counts.begin() + first + degree);
  Stream random(3, key);
  Places taken;
  while (static_cast<int64_t>(taken.size()) < fanout) {
    const uint64_t total = std::accumulate(left.begin(), left.end(), uint64_t{0});
    if (total == 0) break;
    uint64_t point = random.below(total);
    size_t at = 0;
    for (; point >= left[at]; ++at) point -= left[at];
    taken.push_back(first + static_cast<int64_t>(at));
    left[at] = 0;
  }
  return taken;
}

void test_weighted_against_a_scan() {
  const auto columns = random_columns<double>(300, 5);
  const Sums sums = columns.sums(2);
  Sums counts = sums;
  for (size_t v = 0; v + 1 < columns.indptr.size(); ++v)
    std::adjacent_difference(sums.begin() + columns.indptr[v], sums.begin() + columns.indptr[v + 1],
                             counts.begin() + columns.indptr[v]);
  WeightedDraw draw;
  draw.use(sums.data());
  for (size_t v = 0; v + 1 < columns.indptr.size(); ++v) {
    const int64_t first = columns.indptr[v], degree = columns.indptr[v + 1] - first;
    Places positive = in_order(first, degree);
    std::erase_if(positive, [&](int64_t e) { return columns.weights[static_cast<size_t>(e)] == 0; });
    for (const int64_t fanout : {degree, degree + 1, int64_t{1} << 40, int64_t{-1}})
      CHECK(taken_by(draw, first, degree, fanout, v) == positive);
    for (const int64_t fanout : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, degree - 1})
      if (fanout >= 0 && fanout < degree) {
        const Places taken = taken_by(draw, first, degree, fanout, v);
        CHECK(taken == by_scanning(counts, first, degree, fanout, v));
        CHECK(taken.size() == std::min(positive.size(), static_cast<size_t>(fanout)));
        for (const int64_t e : taken) CHECK(columns.weights[static_cast<size_t>(e)] > 0);
      }
  }
}

/// A draw by itself takes the place that it has among all draws of its list, however often places collide.
void test_draws_by_themselves() {
  std::mt19937_64 random(7);
  for (int64_t degree = 1; degree < 40; ++degree)
    for (int64_t taken = 0; taken < degree; ++taken) {
      const Stream stream(random(), random());
      Places places(static_cast<size_t>(taken));
      draw_distinct(100, degree, taken, stream, places.data());
      for (int64_t number = 0; number < taken; ++number)
        CHECK(distinct_place(100, degree, taken, stream, number) == places[static_cast<size_t>(number)]);
    }
}

}  // namespace

int main() {
  test_draws_by_themselves();
  test_sums_for_any_number_of_threads();
  test_weighted_against_a_scan();
  std::cout << "test_draws: ok\n";
  return 0;
}
