// The BVGraph decoder: a stream that another encoder wrote, each bit of it changed, cut anywhere, and random bits. What
// comes back is the graph, another valid one, or InputError; the sanitizers see nothing else. The encoder: what it makes of
// random lists is read back, and takes no more bits than the other encoder's choices do.
#include <random>
#include <string>
#include <tiering/webgraph.hpp>
#include <vector>

#include "check.hpp"

using namespace tiering;

namespace {

/// What tests/support/webgraph.py makes of crawl_like(1, 60) in tests/datasets/test_webgraph.py.
constexpr const char* kStream =
    "ad749b1a551ad6c82f9131ebd0167ca7aa1254201d6d78a1d03268b173c8dc8b65a0249eb22ab83cd8115e9a290c03635e19"
    "2e98b412acd40ba515150d0b1541e14f6881188b5cbc4506c4b32dd0489228621082e09b9c520e99ab824134508bb5279298"
    "82009a2cef6c4f253140b01117151141712e0e1254c9b848f78e9453ab3231902fbe2f985bdfb881798144be2930baba083b"
    "62621de90125c8024bde9aeb6423a48f220902ad816b10f0be802a2f43872bb26e3a50a56eb5e18049d02a31060b04e4a8a5"
    "2292778804d2c84924481517a078d7252760248ac824450424ba240c80ba4090c4792d48bcf458294903c21280";
constexpr int64_t kNodes = 60, kArcs = 463, kSum = 720468;

std::vector<std::byte> stream() {
  const std::string text = kStream;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

struct Lists {
  std::vector<int64_t> offsets, indptr, indices;
};

void check_valid(const Lists& lists, int64_t num_nodes) {
  for (size_t v = 0; v + 1 < lists.indptr.size(); ++v)
    for (int64_t i = lists.indptr[v]; i < lists.indptr[v + 1]; ++i) {
      const auto k = static_cast<size_t>(i);
      CHECK(lists.indices[k] >= 0 && lists.indices[k] < num_nodes);
      CHECK(i == lists.indptr[v] || lists.indices[k - 1] < lists.indices[k]);
    }
}

/// Lists by offsets that the stream tells, decoded in steps of so many nodes.
template <typename Id>
Lists decoded(const std::vector<std::byte>& bits, const BvFormat& format, int threads, int64_t step) {
  const BvGraph graph(bits, format);
  const auto entries = static_cast<size_t>(format.num_nodes) + 1;
  Lists lists{std::vector<int64_t>(entries), std::vector<int64_t>(entries), {}};
  graph.find_lists(0, format.num_nodes, lists.offsets, lists.indptr);
  std::vector<int64_t> degrees(entries);
  graph.read_degrees(0, format.num_nodes, lists.offsets, degrees, threads);
  CHECK(degrees == lists.indptr);
  std::vector<Id> indices(static_cast<size_t>(lists.indptr.back()));
  for (int64_t first = 0; first < format.num_nodes; first += step)
    graph.decode(first, std::min(format.num_nodes, first + step), lists.offsets, lists.indptr, std::span<Id>(indices),
                 threads);
  lists.indices.assign(indices.begin(), indices.end());
  check_valid(lists, format.num_nodes);
  return lists;
}

/// Whether the stream is refused; the message names the node.
bool refused(const std::vector<std::byte>& bits, const BvFormat& format, int threads, int64_t step) {
  try {
    decoded<int32_t>(bits, format, threads, step);
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).starts_with("node "));
    return true;
  }
  return false;
}

template <typename Id>
void test_known_stream() {
  for (const int threads : {1, 2, 5})
    for (const int64_t step : {1, 7, 60}) {
      const Lists lists = decoded<Id>(stream(), {kNodes, kArcs}, threads, step);
      CHECK(lists.indptr.back() == kArcs);
      int64_t sum = 0;
      for (int64_t u = 0; u < kNodes; ++u)
        for (int64_t i = lists.indptr[static_cast<size_t>(u)]; i < lists.indptr[static_cast<size_t>(u) + 1]; ++i) {
          const int64_t v = lists.indices[static_cast<size_t>(i)];
          sum += u * 31 + v * 17 + (u * v) % 101;
        }
      CHECK(sum == kSum);
    }
}

void test_each_bit() {
  int64_t count = 0;
  for (size_t bit = 0; bit < 8 * stream().size(); ++bit) {
    auto bits = stream();
    bits[bit / 8] ^= std::byte{0x80} >> (bit % 8);
    count += refused(bits, {kNodes, 10 * kArcs}, 1 + static_cast<int>(bit % 3), 1 + static_cast<int64_t>(bit % 60));
  }
  CHECK(count > 200);
}

void test_each_cut() {
  for (size_t size = 0; size + 1 < stream().size(); ++size) {
    auto bits = stream();
    bits.resize(size);
    bits.shrink_to_fit();  // so that a read beyond the end is seen
    CHECK(refused(bits, {kNodes, kArcs}, 2, 60));
  }
}

void test_wrong_offsets() {
  const Lists lists = decoded<int64_t>(stream(), {kNodes, kArcs}, 1, 60);
  const auto bits = stream();
  const BvGraph graph(bits, {kNodes, kArcs});
  for (size_t at = 0; at <= kNodes; ++at)
    for (const int64_t by : {int64_t{-9}, int64_t{-1}, int64_t{1}, int64_t{300}, int64_t{1} << 40}) {
      auto offsets = lists.offsets;
      offsets[at] += by;
      auto indices = lists.indices;
      check_refused("node ", [&] { graph.decode(0, kNodes, offsets, lists.indptr, std::span(indices), 3); });
    }
}

void test_random_bits() {
  std::mt19937_64 random(5);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
  const auto any_code = [&] { return static_cast<Code>(below(5)); };
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::byte> bits(static_cast<size_t>(below(40)));
    const int64_t sparse = below(4);  // long runs of zeros ask for huge numbers
    for (auto& one : bits) one = static_cast<std::byte>(below(4) < sparse ? 0 : below(256));
    const int64_t num_nodes = 1 + below(trial % 2 == 0 ? 20 : uint64_t{1} << 12);
    refused(bits,
            {num_nodes, below(1 << 12), below(9), below(5), 1 + static_cast<int>(below(31)), any_code(), any_code(),
             any_code(), any_code(), any_code(), any_code()},
            1 + trial % 3, 1 + below(static_cast<uint64_t>(num_nodes)));
    std::vector<int64_t> offsets(static_cast<size_t>(below(30)));
    try {
      read_bv_offsets(bits, any_code(), below(100), 0, static_cast<int64_t>(offsets.size()), 200, offsets);
    } catch (const InputError&) {
    }
  }
}

void test_formats() {
  const auto bits = stream();
  check_refused("zeta", [&] { BvGraph(bits, {.num_nodes = 1, .zeta_k = 0}); });
  check_refused("2^48", [&] { BvGraph(bits, {.num_nodes = -1}); });
  check_refused("window", [&] { BvGraph(bits, {.window = -1}); });
  check_refused("intervals", [&] { BvGraph(bits, {.min_interval = -1}); });
}

using Rows = std::vector<std::vector<int64_t>>;

/// Lists that share much with those before, with runs of ids, and some empty.
Rows random_rows(std::mt19937_64& random, int64_t num_nodes) {
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  Rows rows;
  for (int64_t node = 0; node < num_nodes; ++node) {
    std::vector<bool> held(static_cast<size_t>(num_nodes));
    if (node > 0 && below(3) > 0)
      for (const int64_t id : rows[static_cast<size_t>(node - 1 - below(std::min<int64_t>(node, 9)))])
        held[static_cast<size_t>(id)] = below(8) > 0;
    if (below(2) == 0)
      for (int64_t id = below(num_nodes), left = below(20); id < num_nodes && left > 0; ++id, --left)
        held[static_cast<size_t>(id)] = true;
    for (int64_t i = below(4); i > 0; --i) held[static_cast<size_t>(below(num_nodes))] = true;
    rows.emplace_back();
    for (int64_t id = 0; id < num_nodes && node % 7 != 3; ++id)
      if (held[static_cast<size_t>(id)]) rows.back().push_back(id);
  }
  return rows;
}

struct Encoded {
  std::vector<std::byte> graph, offsets;
  BvCounts counts;
  int64_t num_arcs = 0;
};

/// Gives the encoder so many lists at a time.
Encoded encoded(const Rows& rows, BvFormat format, int64_t max_chain, size_t step) {
  format.num_nodes = static_cast<int64_t>(rows.size());
  BvEncoder encoder(format, max_chain);
  Encoded all;
  const auto append = [&](const BvBytes& bytes) {
    for (const uint8_t one : bytes.graph) all.graph.push_back(std::byte{one});
    for (const uint8_t one : bytes.offsets) all.offsets.push_back(std::byte{one});
  };
  for (size_t first = 0; first < rows.size(); first += step) {
    std::vector<int64_t> indptr{0}, indices;
    for (size_t v = first; v < std::min(rows.size(), first + step); ++v) {
      indices.insert(indices.end(), rows[v].begin(), rows[v].end());
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
    encoder.add(indptr, indices);
    if (first % 3 == 0) append(encoder.take());
    all.num_arcs += indptr.back();
  }
  append(encoder.finish());
  all.counts = encoder.counts();
  return all;
}

void test_encoder_round_trips() {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
    const Rows rows = random_rows(random, 1 + below(trial % 10 == 0 ? 400 : 60));
    BvFormat format;
    format.window = below(9), format.min_interval = below(5), format.zeta_k = 1 + static_cast<int>(below(7));
    const Encoded whole = encoded(rows, format, below(4), rows.size());
    format.num_nodes = static_cast<int64_t>(rows.size()), format.num_arcs = whole.num_arcs;
    const Lists lists = decoded<int64_t>(whole.graph, format, 1 + trial % 3, format.num_nodes);
    for (size_t v = 0; v < rows.size(); ++v)
      CHECK(std::vector<int64_t>(lists.indices.begin() + lists.indptr[v],
                                 lists.indices.begin() + lists.indptr[v + 1]) == rows[v]);
    CHECK(lists.offsets.back() == whole.counts.bits);
    CHECK(static_cast<int64_t>(whole.graph.size()) == (whole.counts.bits + 7) / 8);
    CHECK(whole.counts.copied + whole.counts.intervals + whole.counts.residuals == whole.num_arcs);
    std::vector<int64_t> offsets(rows.size() + 1);
    read_bv_offsets(whole.offsets, Code::gamma, 0, 0, static_cast<int64_t>(offsets.size()), whole.counts.bits, offsets);
    CHECK(offsets == lists.offsets);
  }
}

void test_encoder_in_steps() {
  std::mt19937_64 random(12);
  const Rows rows = random_rows(random, 300);
  const Encoded whole = encoded(rows, {}, 3, 300);
  CHECK(whole.counts.copied > 100 && whole.counts.intervals > 100 && whole.counts.residuals > 100);
  for (const size_t step : {1, 2, 100}) {
    const Encoded parts = encoded(rows, {}, 3, step);
    CHECK(parts.graph == whole.graph && parts.offsets == whole.offsets);
  }
  CHECK(encoded(rows, {}, 0, 300).counts.copied == 0);
}

void test_encoder_takes_no_more_bits() {
  const Lists lists = decoded<int64_t>(stream(), {kNodes, kArcs}, 1, kNodes);
  Rows rows;
  for (size_t v = 0; v < kNodes; ++v)
    rows.emplace_back(lists.indices.begin() + lists.indptr[v], lists.indices.begin() + lists.indptr[v + 1]);
  CHECK(encoded(rows, {}, 1 << 20, kNodes).counts.bits <= lists.offsets.back());
}

void test_encoder_refuses() {
  const std::vector<int64_t> one{0, 1}, both{0, 2};
  BvFormat format{.num_nodes = 5};
  BvEncoder encoder(format, 3);
  check_refused("must rise", [&] { encoder.add(both, std::vector<int64_t>{2, 2}); });
  check_refused("found 5", [&] { encoder.add(one, std::vector<int64_t>{5}); });
  check_refused("nodes, found 0", [&] { encoder.finish(); });
  check_refused("the number of indices", [&] { encoder.add(both, std::vector<int64_t>{2}); });
  format.residuals = Code::gamma;
  check_refused("usual codes", [&] { BvEncoder(format, 3); });
  check_refused("window", [&] { BvEncoder({.window = -1}, 3); });
  check_refused("zeta", [&] { BvEncoder({.zeta_k = 8}, 3); });
  check_refused("chains", [&] { BvEncoder({}, -1); });
}

}  // namespace

int main() {
  test_known_stream<int32_t>();
  test_known_stream<int64_t>();
  test_each_bit();
  test_each_cut();
  test_wrong_offsets();
  test_random_bits();
  test_formats();
  test_encoder_round_trips();
  test_encoder_in_steps();
  test_encoder_takes_no_more_bits();
  test_encoder_refuses();
}
