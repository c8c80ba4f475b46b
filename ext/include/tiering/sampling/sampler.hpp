// Deterministic neighbor sampling over one or more relations.
#pragma once

#include <string>
#include <tiering/parallel.hpp>
#include <vector>

#include "tiering/buffer.hpp"
#include "tiering/device/draws.hpp"
#include "tiering/sampling/growing_array.hpp"
#include "tiering/views.hpp"

namespace tiering {

/// Read-only array of float32 or float64 weights that somebody else owns.
struct WeightArray {
  const void* data = nullptr;  ///< null: there are none
  int64_t size = 0;
  bool wide = false;  ///< double instead of float

  double operator[](int64_t i) const {
    return wide ? static_cast<const double*>(data)[i] : static_cast<double>(static_cast<const float*>(data)[i]);
  }
};

/// One relation's adjacency as CSC: column = destination, indices = its in-neighbors.
struct RelationView {
  int src_type = 0;
  int dst_type = 0;
  const int64_t* indptr = nullptr;      // num_nodes[dst_type] + 1
  IdSpan indices;                       // values in [0, num_nodes[src_type])
  WeightArray weights = {};             // along indices; only the weighted rule reads them
  std::span<const int64_t> times = {};  // words along indices (TimeRule), ascending in each list; empty: always visible
  std::string name = {};                // for messages

  /// The name of relation number `place` in messages.
  std::string label(size_t place) const { return "relation " + (name.empty() ? std::to_string(place) : name); }
};

/// Which nodes sample at hop h: all found so far (DGL, GraphBolt), or only those first found at hop h - 1 (PyG).
enum class Frontier { all, only_new };

/// The rule of a name, one of the first `count`.
Rule parse_rule(const std::string& name, size_t count);

/// Random walks with restart (PinSAGE): every frontier node starts `num_walks` walks of at most `walk_length`
/// rounds over the metapath. After each round but the last a walk ends with probability restart / 2^53, and at
/// once where a list is empty.
struct WalkRule {
  static constexpr int64_t kMostVisits = int64_t{1} << 24;  // exact in the float32 of the weights
  static constexpr uint64_t kCertain = uint64_t{1} << 53;

  int64_t num_walks = 0;
  int64_t walk_length = 0;
  uint64_t restart = 0;                     // in 2^-53
  std::vector<std::vector<int>> metapaths;  // relations, in the order walked
};

/// Time in disjoint batches: an instance sees the entries of time t with t <= T, its seed's time, and T - t <= window.
/// Times are words of 64 bits: int64, or where `real` the bits of a double.
struct TimeRule {
  bool real = false;    // doubles
  bool last = false;    // only the newest visible entries, as many as the fanout
  int64_t window = -1;  // a word; -1: none
};

struct SamplerConfig {
  std::vector<int64_t> num_nodes;             // per node type
  std::vector<RelationView> relations;        //
  std::vector<std::vector<int64_t>> fanouts;  // hop x edge group; -1 = all neighbors, 0 = skip
  Frontier frontier = Frontier::all;
  Rule rule = Rule::uniform;
  WalkRule walks;                 // for Rule::pinsage
  std::vector<IdSpan> node_keys;  // per node type: random key of node v, v itself where absent
  uint64_t seed = 0;
  std::vector<std::string> type_names;  // for messages; numbers where absent
  bool disjoint = false;  // each seed is an instance with a subgraph of its own; for draws from a node's own list
  bool induced = false;   // the edges are all visible ones among the nodes of an instance, as one hop
  TimeRule time = {};     // for relations with times, in disjoint batches

  std::string type_name(size_t type) const {
    return type < type_names.size() ? type_names[type] : std::to_string(type);
  }
  /// Edges come in groups: one per relation; with random walks one per metapath.
  size_t num_groups() const { return rule == Rule::pinsage ? walks.metapaths.size() : relations.size(); }
  /// Node types that the edges of a group come from and go to.
  size_t src_type(size_t group) const { return static_cast<size_t>(step(group, true).src_type); }
  size_t dst_type(size_t group) const { return static_cast<size_t>(step(group, false).dst_type); }
  /// Whether some entries have times.
  bool has_times() const {
    return std::any_of(relations.begin(), relations.end(), [](const auto& r) { return !r.times.empty(); });
  }
  /// Whether edges come with weights.
  bool weighs_edges() const { return rule == Rule::pinsage || rule == Rule::ladies; }

 private:
  /// The first or last relation of a group.
  const RelationView& step(size_t group, bool last) const {
    if (rule != Rule::pinsage) return relations[group];
    const auto& path = walks.metapaths[group];
    return relations[last ? path.back() : path.front()];
  }
};

/// Edges sampled at one hop of one group, sorted by destination in frontier order.
struct SampledEdges {
  GrowingArray<int32_t> src;        // place in nodes[src_type]
  GrowingArray<int32_t> dst;        // place in nodes[dst_type]
  GrowingArray<int64_t> positions;  // place in the relation's indices; filled on request
  GrowingArray<float> weights;      // filled by rules that weigh their edges

  void make_room(int64_t extra, bool with_positions, bool with_weights) {
    src.make_room(extra);
    dst.make_room(extra);
    if (with_positions) positions.make_room(extra);
    if (with_weights) weights.make_room(extra);
  }
  /// Adds edges that are not set yet; returns the place of the first.
  int64_t extend(int64_t extra, bool with_positions, bool with_weights) {
    make_room(extra, with_positions, with_weights);
    const int64_t at = src.size();
    set_size(at + extra, with_positions);
    if (with_weights) weights.set_size(at + extra);
    return at;
  }
  /// Sets the number of edges, for which there must be room.
  void set_size(int64_t size, bool with_positions) {
    src.set_size(size);
    dst.set_size(size);
    if (with_positions) positions.set_size(size);
  }
};

struct SampledBatch {
  std::vector<GrowingArray<int64_t>> nodes;      // per type: ids in order of discovery, seeds first
  std::vector<std::vector<int64_t>> num_nodes;   // (hops + 1) x type: nodes known after 0, 1, ... hops
  std::vector<std::vector<SampledEdges>> hops;   // hop x edge group
  std::vector<GrowingArray<int64_t>> instances;  // per type, of disjoint batches: the instance of each node
};

/// Seeds of one batch, per node type.
using BatchSeeds = std::vector<std::span<const int64_t>>;

/// Times of the seeds, as words of TimeRule, per node type; empty: nothing has times.
using SeedTimes = std::vector<std::span<const int64_t>>;

/// All batches of an epoch: seeds of type t in batch b are ids[t][offsets[t][b] .. offsets[t][b + 1]).
struct EpochSeeds {
  std::vector<std::span<const int64_t>> ids, offsets;
  SeedTimes times = {};
};

/// Counters that count_accesses() adds to, one array for each type and each relation; a null pointer is not counted.
struct AccessCounts {
  std::vector<int64_t*> features;   // per type: +1 for every unique node of a batch
  std::vector<int64_t*> adjacency;  // per relation: +1 for every time a node's list is read
};

/// The files of relations' indices and times, from which windows of batches read lists instead of from memory.
struct ListFiles {
  std::vector<std::string> paths;  // per relation: a file that holds its indices and no more
  std::vector<std::string> times;  // and one of its times, where it has times
  std::string engine = "auto";
  int64_t room = 0;  // bytes that the batches of a window may take together; one batch is sampled in any case
};

/// What a window of batches returns, in addition to counts.
enum class Wanted { nothing, unique_nodes, edges, positions };  // positions: edges, too

/// A window of batches that were sampled together.
struct SampledWindow {
  int64_t size = 0, next_size = 0;                          // batches; batches that the next window has room for
  int64_t reads = 0, read_bytes = 0, read_nanoseconds = 0;  // of lists
  std::vector<SampledBatch> batches;                        // what is wanted of each: unique nodes alone, or all
};

/// Edge weights as running sums in whole numbers, so that no rounding can take an edge of weight 0 or one that is taken
/// already. The heaviest edge of a column of d edges counts 2^(62 - bits of d), a positive weight at least 1. Throws
/// where a weight is negative, infinite or NaN, where there are edges but no positive weight, or where indptr leads
/// outside. `what` names the relation in messages.
Buffer<uint64_t> cumulative_weights(const RelationView& relation, int64_t num_columns, const std::string& what,
                                    int threads);

class Sampler {
 public:
  /// `threads` work on what the rule prepares (weighted: sums over all edges).
  explicit Sampler(SamplerConfig config, int threads = 1);
  ~Sampler();

  /// Samples one batch. A seed that comes twice counts once, where it came first; in disjoint batches it is two
  /// instances. Safe to call from many threads at once: each call takes a workspace of its own.
  SampledBatch sample(const BatchSeeds& seeds, uint64_t epoch, uint64_t batch, bool want_positions,
                      const SeedTimes& times = {});

  /// Returns the unique nodes of one batch, per type, without its edges, and adds its accesses to `counts`, if given.
  /// Safe to call from many threads at once, with the same counters.
  std::vector<GrowingArray<int64_t>> sample_nodes(const BatchSeeds& seeds, uint64_t epoch, uint64_t batch,
                                                  const AccessCounts* counts, const SeedTimes& times = {});

  /// Samples batches [first, last) of an epoch and adds their accesses to `counts`; whole batches run in parallel.
  void count_accesses(const EpochSeeds& seeds, uint64_t epoch, int64_t first, int64_t last, const AccessCounts& counts,
                      int threads);

  /// Samples a window: the first `size` of the batches with these seeds and numbers, or as many as memory has room for.
  /// Each page of the files' lists is read once a hop. Adds to `counts`, if given. For rules by which nodes draw from
  /// their own lists. Windows of induced edges are one batch.
  SampledWindow sample_window(const EpochSeeds& seeds, uint64_t epoch, std::span<const int64_t> numbers, int64_t size,
                              const AccessCounts* counts, const ListFiles& files, Wanted wanted);

  const SamplerConfig& config() const { return config_; }

 private:
  struct Workspace;
  class Window;
  struct GiveBack {
    Sampler* sampler;
    void operator()(Workspace* workspace) const;
  };
  /// An idle workspace, or a new one; it is given back at the end of the scope.
  std::unique_ptr<Workspace, GiveBack> borrow();

  SamplerConfig config_;
  std::vector<Buffer<uint64_t>> sums_;  // per relation; empty unless the rule is weighted
  ForkMutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;  // guarded by mutex_
};

/// Different ids in order of appearance, and the place of each id among them.
struct UniqueIds {
  GrowingArray<int64_t> ids, positions;
};
UniqueIds unique_ids(std::span<const int64_t> ids, int64_t num_nodes);

/// Deterministic permutation of 0 .. n - 1 (Fisher-Yates) for one epoch.
Buffer<int64_t> epoch_order(int64_t n, uint64_t seed, uint64_t epoch);

/// The numbers 0 .. n - 1 in the order of ``torch.randperm(n)`` on a CPU after ``torch.manual_seed(seed)``: a
/// Fisher-Yates shuffle from the front, the remainders of 32-bit numbers of the Mersenne Twister. Any torch gives this
/// for sizes below 2^32 / 20; later ones draw 64 bits for larger ones.
Buffer<int64_t> torch_permutation(int64_t n, uint32_t seed);

}  // namespace tiering
