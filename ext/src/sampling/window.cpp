// Windows of batches that are sampled together, hop by hop, with lists read from their files. The places that a hop
// draws depend on indptr and times alone: those of all batches of a window are known before any is read, and each page
// is read once. Times, where there are any, are read and searched before. Between two hops a batch keeps its nodes; one
// workspace serves all.

#include <numeric>
#include <optional>

#include "list_reads.hpp"
#include "workspace.hpp"

namespace tiering {

namespace {

/// A batch of a window while it is another's turn.
struct Draft {
  struct Part {
    int64_t place = 0, end = 0, taken = 0, visible = 0;  // in the window's arrays
  };

  uint64_t number = 0;
  int64_t first = 0;                            // what this hop has chosen begins there
  int64_t keys = 0;                             // bound of the tables' keys, of disjoint batches
  int id_bits = 62;                             // as of the workspace, likewise
  std::vector<GrowingArray<int64_t>> nodes;     // per type
  std::vector<std::vector<int64_t>> num_nodes;  // as of the workspace, likewise
  std::vector<Frontiers> frontiers;
  std::vector<int64_t> clocks;                  // likewise
  std::vector<Part> parts;                      // per relation: what this hop has chosen
  std::vector<std::vector<SampledEdges>> hops;  // on request
};

/// Lists of nodes, and the seed times of their instances, where these cut them.
struct Lists {
  std::vector<ListRange> ranges;
  std::vector<int64_t> clocks;
};

/// Goes through the entries of lists by parts that lie in one list.
class Entries {
 public:
  struct Part {
    int64_t list, begin, end;
  };

  explicit Entries(const std::vector<ListRange>& lists) : lists_(lists) {}

  /// The next part, of at most so many entries; none at the end.
  std::optional<Part> next(int64_t most) {
    while (list_ < lists_.size() && done_ == lists_[list_].degree) {
      ++list_;
      done_ = 0;
    }
    if (list_ == lists_.size() || most == 0) return std::nullopt;
    const int64_t begin = lists_[list_].begin + done_, size = std::min(most, lists_[list_].degree - done_);
    done_ += size;
    return Part{static_cast<int64_t>(list_), begin, begin + size};
  }

 private:
  const std::vector<ListRange>& lists_;
  size_t list_ = 0;
  int64_t done_ = 0;  // entries of the list
};

}  // namespace

class Sampler::Window {
 public:
  Window(const SamplerConfig& config, Workspace& work, const ListFiles& files, Wanted wanted)
      : config_(config),
        work_(work),
        wanted_(wanted),
        room_(files.room),
        lists_(config.relations.size()),
        ranges_(config.relations.size()) {
    for (size_t r = 0; r < config.relations.size(); ++r) {
      const RelationView& relation = config.relations[r];
      const auto width = static_cast<int64_t>(relation.indices.wide ? sizeof(int64_t) : sizeof(int32_t));
      reads_.push_back(relation.indices.size == 0
                           ? nullptr
                           : std::make_unique<ListReads>(files.paths[r], relation.indices.size, width,
                                                         config.num_nodes[relation.src_type], files.engine));
      const bool timed = relation.indices.size > 0 && !relation.times.empty();
      times_.push_back(
          timed ? std::make_unique<TimeReads>(files.times.at(r), relation.indices.size, config.time, files.engine)
                : nullptr);
    }
  }

  /// Samples batches of these seeds and numbers, as many as memory has room for; returns how many. `deliver` sees the
  /// workspace with each batch, the last first, and its edges, if they are wanted.
  template <typename Deliver>
  int64_t run(const EpochSeeds& seeds, uint64_t epoch, std::span<const int64_t> numbers, Deliver deliver) {
    for (size_t i = 0; i < numbers.size(); ++i)
      start(seeds, static_cast<int64_t>(i), static_cast<uint64_t>(numbers[i]));
    for (size_t hop = 0; hop < config_.fanouts.size(); ++hop) {
      work_.scratch.places.set_size(0);
      work_.scratch.taken.set_size(0);
      for (auto& ranges : ranges_) ranges.clear();
      for (Draft& draft : drafts_) draft.parts.assign(config_.relations.size(), {});
      if (config_.has_times()) find_visible(hop);
      for (size_t i = 0; i < drafts_.size(); ++i) {
        choose(drafts_[i], epoch, hop);
        if (used() > room_) drafts_.resize(i + 1);  // the others come with the next window
      }
      for (Lists& lists : lists_) lists = {};
      if (wanted_ == Wanted::positions) {
        work_.scratch.ids.resize(work_.scratch.places.size());
        std::copy_n(work_.scratch.places.data(), work_.scratch.places.size(), work_.scratch.ids.data());
      }
      for (size_t r = 0; r < reads_.size(); ++r)
        if (!ranges_[r].empty())
          about(config_.relations[r].label(r), [&] { reads_[r]->read(ranges_[r], work_.scratch.places.data()); });
      peak_ = std::max(peak_, used() / std::max<int64_t>(static_cast<int64_t>(drafts_.size()), 1));
      for (size_t i = drafts_.size(); i-- > 0;) {  // from the end, as ids give way to the edges that they become
        Draft& draft = drafts_[i];
        look_up(draft, epoch, hop);
        if (hop + 1 == config_.fanouts.size()) {
          if (config_.induced && wanted_ >= Wanted::edges) induce(draft);
          deliver(work_, draft.hops);
        }
        put_back(draft);
        for (auto* array : {&work_.scratch.places, &work_.scratch.ids})
          array->shrink(std::min(array->size(), draft.first));
      }
    }
    return static_cast<int64_t>(drafts_.size());
  }

  /// Batches of the next window after one of `size`: windows grow as long as memory has room for twice as many.
  int64_t next_size(int64_t size) const {
    return std::clamp<int64_t>(room_ / std::max<int64_t>(peak_, 1), 1, 2 * size);
  }

  void add_reads(SampledWindow& window) const {
    for (const auto& reads : reads_)
      if (reads) reads->add_to(window);
    for (const auto& reads : times_)
      if (reads) reads->add_to(window);
  }

 private:
  void start(const EpochSeeds& epoch, int64_t batch, uint64_t number) {
    Draft& draft = drafts_.emplace_back();
    draft.number = number;
    const BatchSeeds seeds = seeds_of(epoch, batch);
    work_.start(seeds, times_of(epoch, batch));
    for (const auto& ids : seeds) draft.keys += static_cast<int64_t>(ids.size());
    draft.keys <<= work_.id_bits;
    for (auto& table : work_.tables) draft.nodes.push_back(table.take_nodes());
    exchange(draft);
  }

  void exchange(Draft& draft) {
    std::swap(draft.num_nodes, work_.num_nodes);
    std::swap(draft.frontiers, work_.frontiers);
    std::swap(draft.id_bits, work_.id_bits);
    std::swap(draft.clocks, work_.clocks);
  }

  /// Whether the edges that are drawn are wanted.
  bool wants_edges() const { return wanted_ >= Wanted::edges && !config_.induced; }

  /// Puts a batch away for the next hop, or what is left of it.
  void put_back(Draft& draft) {
    for (size_t t = 0; t < draft.nodes.size(); ++t) draft.nodes[t] = work_.tables[t].take_nodes();
    exchange(draft);
  }

  template <typename Body>
  void with_hop(const HopTask& task, size_t relation, Body body) {
    work_.with_draw(relation, [&]<typename Draw>(Draw& draw) {
      if (config_.disjoint)
        body(RelationHop<Draw, true>(task, draw, work_.scratch));
      else
        body(RelationHop<Draw, false>(task, draw, work_.scratch));
    });
  }

  /// Finds what the instances of all batches see of the lists that a hop samples from.
  void find_visible(size_t hop) {
    for (size_t i = 0; i < drafts_.size(); ++i) {
      Draft& draft = drafts_[i];
      exchange(draft);
      work_.begin_hop();
      for (size_t r = 0; r < config_.relations.size(); ++r) {
        if (!times_[r] || !work_.samples(hop, r)) continue;
        HopTask task = work_.task_of(hop, r, 0, 0, false, nullptr);
        task.destinations = &draft.nodes[config_.dst_type(r)];
        draft.parts[r].visible = static_cast<int64_t>(lists_[r].ranges.size());
        add_lists(task, r, lists_[r]);
      }
      work_.frontiers.pop_back();
      exchange(draft);
      if (used() > room_) drafts_.resize(i + 1);
    }
    for (size_t r = 0; r < lists_.size(); ++r) cut_lists(r, lists_[r]);
  }

  /// Adds the whole lists of a task's frontier.
  void add_lists(const HopTask& task, size_t relation, Lists& lists) {
    about(config_.relations[relation].label(relation), [&] {
      for (int64_t i = task.frontier_begin; i < task.frontier_end; ++i) {
        const int64_t key = (*task.destinations)[i];
        lists.ranges.push_back(checked_list(*task.relation, config_.disjoint ? task.node_of(key) : key));
        if (times_[relation]) lists.clocks.push_back(task.clocks[task.instance_of(key)]);
      }
    });
  }

  void cut_lists(size_t relation, Lists& lists) {
    if (!times_[relation] || lists.ranges.empty()) return;
    about(config_.relations[relation].label(relation), [&] { times_[relation]->cut(lists.ranges, lists.clocks); });
  }

  void choose(Draft& draft, uint64_t epoch, size_t hop) {
    exchange(draft);
    work_.begin_hop();
    draft.first = work_.scratch.places.size();
    for (size_t r = 0; r < config_.relations.size(); ++r) {
      if (!work_.samples(hop, r)) continue;
      HopTask task = work_.task_of(hop, r, epoch, draft.number, false, nullptr);
      task.destinations = &draft.nodes[config_.dst_type(r)];
      Draft::Part& part = draft.parts[r];
      if (times_[r]) task.visible = lists_[r].ranges.data() + part.visible;
      part = {work_.scratch.places.size(), 0, work_.scratch.taken.size()};
      about(config_.relations[r].label(r), [&] {
        with_hop(task, r, [&](auto&& of_hop) { of_hop.choose(task.frontier_begin, INT64_MAX, [](auto...) {}); });
      });
      part.end = work_.scratch.places.size();
      if (part.end > part.place) ranges_[r].emplace_back(part.place, part.end);
    }
    exchange(draft);
  }

  void look_up(Draft& draft, uint64_t epoch, size_t hop) {
    exchange(draft);
    for (size_t t = 0; t < draft.nodes.size(); ++t) {
      NodeTable& table = work_.tables[t];
      table.start(config_.disjoint ? draft.keys : config_.num_nodes[t]);
      const auto& nodes = draft.nodes[t];
      table.make_room(nodes.size());
      for (int64_t i = 0; i < nodes.size(); ++i) {
        if (i + kAhead < nodes.size()) table.prefetch(nodes[i + kAhead]);
        table.insert(nodes[i]);
      }
      draft.nodes[t] = {};
    }
    if (wants_edges()) draft.hops.emplace_back(config_.relations.size());
    for (size_t r = 0; r < config_.relations.size(); ++r) {
      const Draft::Part& part = draft.parts[r];
      if (part.end == part.place) continue;
      SampledEdges* const edges = wants_edges() ? &draft.hops[hop][r] : nullptr;
      const HopTask task = work_.task_of(hop, r, epoch, draft.number, wanted_ == Wanted::positions, edges);
      int64_t* const ids = work_.scratch.places.data() + part.place;
      const int32_t* const taken = work_.scratch.taken.data() + part.taken;
      with_hop(task, r, [&](auto&& of_hop) {
        of_hop.add_instances(task.frontier_begin, task.frontier_end, taken, ids);
        of_hop.look_up(task.frontier_begin, task.frontier_end, work_.scratch.ids.data() + part.place, ids,
                       part.end - part.place, taken);
      });
    }
    work_.num_nodes.push_back(work_.sizes());
  }

  /// Adds the edges among a batch's nodes, whose lists are read in pieces.
  void induce(Draft& draft) {
    constexpr int64_t kPiece = 1 << 20;  // entries
    auto& edges = draft.hops.emplace_back(config_.relations.size());
    for (size_t r = 0; r < reads_.size(); ++r) {
      if (!reads_[r]) continue;
      HopTask task = work_.task_of(r, wanted_ == Wanted::positions, &edges[r]);
      task.frontier_end = task.destinations->size();
      Lists lists;
      add_lists(task, r, lists);
      cut_lists(r, lists);
      GrowingArray<int64_t> ids;
      for (Entries entries(lists.ranges);;) {
        ids.set_size(0);
        Entries again = entries;
        while (const auto part = entries.next(kPiece - ids.size())) {
          const int64_t at = ids.size();
          ids.resize(at + part->end - part->begin);
          std::iota(ids.data() + at, ids.data() + ids.size(), part->begin);
        }
        if (ids.size() == 0) break;
        about(config_.relations[r].label(r), [&] { reads_[r]->read({{0, ids.size()}}, ids.data()); });
        const int64_t* found = ids.data();
        while (const auto part = again.next(ids.data() + ids.size() - found)) {
          write_known_edges(task, part->list, part->begin, part->end, found);
          found += part->end - part->begin;
        }
      }
    }
  }

  /// Memory of the window's batches: what they keep, and in addition the larger of what choosing and reading take, and
  /// what looking up adds at most.
  int64_t used() const {
    constexpr int64_t kReadOfList = 48;  // two runs, and the share of a read
    int64_t bytes = 0;
    for (const Draft& draft : drafts_) {
      for (const auto& nodes : draft.nodes) bytes += nodes.bytes();
      for (const auto& hop : draft.hops)
        for (const auto& edges : hop) bytes += edges.src.bytes() + edges.dst.bytes() + edges.positions.bytes();
    }
    constexpr int64_t kBytesOfList = sizeof(ListRange) + sizeof(int64_t) + TimeReads::kBytesOfList;
    for (const Lists& lists : lists_) bytes += kBytesOfList * static_cast<int64_t>(lists.ranges.size());
    const HopScratch& scratch = work_.scratch;
    const int64_t copies = wanted_ == Wanted::positions ? 2 : 1;
    const int64_t chosen = copies * scratch.places.bytes() + scratch.taken.bytes() + kReadOfList * scratch.taken.size();
    const int64_t nodes = wanted_ == Wanted::nothing ? 0 : 8, edges = wants_edges() ? 8 * copies : 0;
    return bytes + std::max(chosen, (nodes + edges) * scratch.places.size() + scratch.taken.bytes());
  }

  const SamplerConfig& config_;
  Workspace& work_;
  const Wanted wanted_;
  int64_t room_, peak_ = 0;  // bytes; bytes of a batch
  std::vector<std::unique_ptr<ListReads>> reads_;
  std::vector<std::unique_ptr<TimeReads>> times_;  // of relations with times
  std::vector<Lists> lists_;                       // per relation with times: of the frontiers of this hop
  std::vector<std::vector<std::pair<int64_t, int64_t>>> ranges_;  // per relation: places that this hop reads
  std::vector<Draft> drafts_;
};

SampledWindow Sampler::sample_window(const EpochSeeds& seeds, uint64_t epoch, std::span<const int64_t> numbers,
                                     int64_t size, const AccessCounts* counts, const ListFiles& files, Wanted wanted) {
  check_epoch(seeds, config_, 0, static_cast<int64_t>(numbers.size()));
  TIERING_EXPECT(config_.rule < Rule::pinsage, "windows: expected the rule uniform, replacement or weighted");
  TIERING_EXPECT(files.paths.size() == config_.relations.size(), "files: expected one per relation");
  TIERING_EXPECT(!config_.has_times() || files.times.size() == files.paths.size(), "files of times: likewise");
  if (config_.induced && wanted >= Wanted::edges) size = std::min<int64_t>(size, 1);  // its edges know no bound
  const auto workspace = borrow();
  workspace->reads = nullptr;
  Window window(config_, *workspace, files, wanted);
  SampledWindow result;
  numbers = numbers.first(std::min(numbers.size(), static_cast<size_t>(std::max<int64_t>(size, 0))));
  result.size = window.run(seeds, epoch, numbers, [&](Workspace& work, auto& hops) {
    if (config_.disjoint) work.split_keys();
    if (counts != nullptr) work.add_counts(*counts, false);
    if (wanted == Wanted::nothing) return;
    SampledBatch& batch = result.batches.emplace_back();
    if (wanted == Wanted::unique_nodes) {
      batch.nodes = work.take_unique();
    } else {
      batch = work.take_batch();
      batch.hops = std::move(hops);
    }
  });
  std::reverse(result.batches.begin(), result.batches.end());
  result.next_size = window.next_size(result.size);
  window.add_reads(result);
  return result;
}

}  // namespace tiering
