// Sampling by many threads at once, under TSan, and the parts that no test in Python reaches. tests/sampling compares
// batches with verifiers by another method.
#include <cmath>
#include <fstream>
#include <thread>

#include "check.hpp"
#include "lists.hpp"
#include "sampling/layer_hop.hpp"
#include "temp_dir.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

std::vector<int64_t> flat(const SampledBatch& batch) {
  std::vector<int64_t> all;
  for (const auto& nodes : batch.nodes) all.insert(all.end(), nodes.begin(), nodes.end());
  for (const auto& hop : batch.hops)
    for (const auto& edges : hop) {
      all.insert(all.end(), edges.src.begin(), edges.src.end());
      all.insert(all.end(), edges.dst.begin(), edges.dst.end());
    }
  return all;
}

template <typename T>
bool same(const GrowingArray<T>& one, const GrowingArray<T>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end());
}

void check_equal(const SampledBatch& one, const SampledBatch& other) {
  CHECK(one.num_nodes == other.num_nodes && one.hops.size() == other.hops.size());
  CHECK(one.instances.size() == other.instances.size());
  for (size_t t = 0; t < one.nodes.size(); ++t) CHECK(same(one.nodes[t], other.nodes[t]));
  for (size_t t = 0; t < one.instances.size(); ++t) CHECK(same(one.instances[t], other.instances[t]));
  for (size_t h = 0; h < one.hops.size(); ++h)
    for (size_t g = 0; g < one.hops[h].size(); ++g) {
      const SampledEdges &mine = one.hops[h][g], &theirs = other.hops[h][g];
      CHECK(same(mine.src, theirs.src) && same(mine.dst, theirs.dst) && same(mine.positions, theirs.positions));
    }
}

void test_many_callers(const SamplerConfig& config) {
  Sampler sampler(config);
  std::vector<int64_t> papers(900);
  std::iota(papers.begin(), papers.end(), 0);
  const auto sample = [&](int64_t b) {
    return flat(sampler.sample({{papers.data() + 40 * b, 40}, {}}, 1, static_cast<uint64_t>(b), false));
  };
  std::vector<std::vector<int64_t>> alone, together(20);
  for (int64_t b = 0; b < 20; ++b) alone.push_back(sample(b));
  std::vector<std::thread> callers;
  for (int64_t t = 0; t < 4; ++t)
    callers.emplace_back([&, t] {
      for (int64_t b = t; b < 20; b += 4) together[static_cast<size_t>(b)] = sample(b);
    });
  for (auto& caller : callers) caller.join();
  CHECK(alone == together);
}

/// Counts of 20 batches by 1, 2 and 7 threads, and by windows whose lists threads read from files; features are those
/// of the batches sampled one by one.
void test_counts(const SamplerConfig& config) {
  Sampler sampler(config);
  std::vector<int64_t> offsets, none(21, 0);
  const Buffer<int64_t> papers = epoch_order(600, 4, 2);
  for (int64_t b = 0; b <= 20; ++b) offsets.push_back(30 * b);
  std::vector<int64_t> clocks(600);
  for (int64_t i = 0; i < 600; ++i) clocks[static_cast<size_t>(i)] = 7919 * i % 6100 - 50;
  const auto cut = [&](int64_t begin, size_t size) {
    const auto times = std::span<const int64_t>(clocks).subspan(static_cast<size_t>(begin), size);
    return config.has_times() ? SeedTimes{times, {}} : SeedTimes{};
  };
  const SeedTimes times = cut(0, 600);
  const auto count = [&](int threads) {
    std::vector<int64_t> counts(900 + 200 + 900 + 900 + 200, 0);
    int64_t* c = counts.data();
    sampler.count_accesses({{papers.span(), {}}, {offsets, none}, times}, 2, 0, 20,
                           {{c, c + 900}, {c + 1100, c + 2000, c + 2900}}, threads);
    return counts;
  };
  const auto one = count(1);
  CHECK(one == count(2) && one == count(7));
  if (config.rule < Rule::pinsage) {
    const TempDir folder;
    ListFiles files{.paths = {}, .times = {}, .engine = "threads"};
    for (const RelationView& relation : config.relations) {
      files.paths.push_back(folder.path() / std::to_string(files.paths.size()));
      const auto bytes = static_cast<std::streamsize>(relation.indices.size * (relation.indices.wide ? 8 : 4));
      std::ofstream(files.paths.back(), std::ios::binary).write(static_cast<const char*>(relation.indices.data), bytes);
      files.times.push_back(files.paths.back() + "-times");
      std::ofstream(files.times.back(), std::ios::binary)
          .write(reinterpret_cast<const char*>(relation.times.data()),
                 static_cast<std::streamsize>(relation.times.size_bytes()));
    }
    const bool few = config.induced || config.has_times();  // windows, each of which makes its engines
    for (const int64_t room : few ? std::vector<int64_t>{100'000} : std::vector<int64_t>{0, 100'000, 1 << 30}) {
      files.room = room;
      std::vector<int64_t> counts(one.size(), 0);
      int64_t* c = counts.data();
      const AccessCounts counters{{c, c + 900}, {c + 1100, c + 2000, c + 2900}};
      for (int64_t b = 0, size = 1; b < 20;) {
        const std::span<const int64_t> from = std::span(offsets).subspan(static_cast<size_t>(b));
        std::vector<int64_t> numbers;
        for (int64_t n = b; n < 20; ++n) numbers.push_back(n);
        const SampledWindow window =
            sampler.sample_window({{papers.span(), {}}, {from, std::span(none).subspan(static_cast<size_t>(b))}, times},
                                  2, numbers, size, &counters, files, Wanted::positions);
        CHECK(window.size >= 1 && window.size <= size && window.next_size <= 2 * window.size);
        CHECK(window.reads > 0 && window.read_bytes >= 4096 * window.reads);
        for (int64_t i = 0; i < window.size; ++i) {
          const int64_t number = b + i;
          const auto alone = sampler.sample({{papers.data() + 30 * number, 30}, {}}, 2, static_cast<uint64_t>(number),
                                            true, cut(30 * number, 30));
          check_equal(window.batches[static_cast<size_t>(i)], alone);
        }
        b += window.size;
        size = window.next_size;
      }
      CHECK(counts == one);
    }
  }
  std::vector<int64_t> features(1100, 0);
  for (int64_t b = 0; b < 20; ++b) {
    const auto nodes =
        sampler.sample_nodes({{papers.data() + 30 * b, 30}, {}}, 2, static_cast<uint64_t>(b), nullptr, cut(30 * b, 30));
    for (const int64_t v : nodes[0]) ++features[static_cast<size_t>(v)];
    for (const int64_t v : nodes[1]) ++features[static_cast<size_t>(900 + v)];
  }
  CHECK(std::equal(features.begin(), features.end(), one.begin()));
}

void test_rules() {
  const Example example;
  for (const Rule rule : {Rule::uniform, Rule::replacement, Rule::ladies}) {
    SamplerConfig config = example.config(rule);
    config.fanouts = {{30, 4, 0}, {20, 0, 5}, {-1, 10, 10}};
    config.frontier = rule == Rule::uniform ? Frontier::all : Frontier::only_new;
    test_many_callers(config);
    test_counts(config);
    if (rule == Rule::ladies) continue;
    config.disjoint = true;
    test_many_callers(config);
    config.induced = true;
    test_many_callers(config);
    std::vector<int64_t> times(6000);
    std::iota(times.begin(), times.end(), 0);
    config.relations[0].times = times;
    config.time.window = 3000;
    test_counts(config);
    config.induced = false;
    test_counts(config);
  }
  SamplerConfig walks = example.config(Rule::pinsage);
  walks.walks = {12, 3, uint64_t{1} << 51, {{0}, {1, 2}}};
  walks.fanouts = {{3, 4}, {2, 0}, {0, 2}};
  test_many_callers(walks);
  test_counts(walks);
}

/// Ids that agree in their low 32 bits must stay apart, also when the table grows.
void test_table_of_wide_ids() {
  NodeTable table;
  for (int round = 0; round < 2; ++round) {
    table.start(int64_t{1} << 40);
    for (int64_t i = 0; i < 5000; ++i) {
      table.make_room(2);
      CHECK(table.insert(i % 5 << 32 | i / 5) == i);
      CHECK(table.insert(i % 5 << 32 | i / 5) == i);
    }
    CHECK(table.size() == 5000);
  }
}

void test_exponential() {
  std::mt19937_64 random(3);
  double sum = 0.0;
  for (int i = 0; i < 200000; ++i) {
    const uint64_t bits = i < 64 ? ~uint64_t{0} << i : i < 128 ? ~uint64_t{0} >> (i - 64) : random();
    const double u = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
    CHECK(std::abs(exponential(bits) + std::log(u)) <= 2e-15 * -std::log(u));
    sum += i < 128 ? 1.0 : exponential(bits);
  }
  CHECK(std::abs(sum / 200000 - 1.0) < 0.01);
  CHECK(exponential(0) < 37.0 && exponential(~uint64_t{0}) > 0.0);
}

}  // namespace

int main() {
  test_rules();
  test_table_of_wide_ids();
  test_exponential();
  std::cout << "test_sampling: ok\n";
  return 0;
}
