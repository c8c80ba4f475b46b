// Random walks with restart and the most visited nodes (Ying et al., KDD 2018). Every frontier node starts num_walks
// walks against the edges; where a round over the metapath ends, its node counts as visited. A walk's random numbers
// are the entries [walk * stride, (walk + 1) * stride) of its frontier node's stream: one per step, and one per round
// for the restart. Compiled with the sampler's other rules it would take a sixth longer.
#include "walk_hop.hpp"

namespace tiering {

void WalkHop::run(const HopTask& task) {
  task_ = &task;
  most_visits_ = task.config->walks.num_walks * task.config->walks.walk_length;
  const int64_t nodes = std::max<int64_t>(1, kBlockWalks / task.config->walks.num_walks);
  const auto end_of = [&](int64_t first) { return std::min(first + nodes, task.frontier_end); };
  chosen_.taken.set_size(0);
  prefetch_starts(task.frontier_begin, end_of(task.frontier_begin));
  for (int64_t first = task.frontier_begin; first < task.frontier_end; first += nodes) {
    start_block(first, end_of(first));
    prefetch_starts(end_of(first), end_of(end_of(first)));
    walk();
    emit();
    select();
  }
  emit();
}

void WalkHop::prefetch_starts(int64_t first, int64_t last) const {
  const int64_t* indptr = task_->config->relations[task_->metapath->front()].indptr;
  for (int64_t i = first; i < last; ++i) {
    const int64_t node = (*task_->destinations)[i];
    __builtin_prefetch(indptr + node);
    __builtin_prefetch(indptr + node + 1);
    task_->destination_keys.prefetch(node);
  }
}

void WalkHop::start_block(int64_t first, int64_t last) {
  const WalkRule& rule = task_->config->walks;
  const uint64_t stride = static_cast<uint64_t>(rule.walk_length) * (task_->metapath->size() + 1);
  first_ = first;
  nodes_ = last - first;
  live_ = nodes_ * rule.num_walks;
  at_.resize(live_);
  owner_.resize(live_);
  random_.resize(live_);
  visits_.resize(nodes_ * most_visits_);
  num_visits_.resize(nodes_);
  std::fill_n(num_visits_.data(), nodes_, 0);
  for (int64_t i = 0, walk = 0; i < nodes_; ++i) {
    const int64_t node = (*task_->destinations)[first + i];
    Stream random(task_->stream, task_->destination_keys.key_of(node));
    for (int64_t w = 0; w < rule.num_walks; ++w, ++walk) {
      at_[walk] = node;
      owner_[walk] = static_cast<int32_t>(i);
      random_[walk] = random;
      random.skip(stride);
    }
  }
}

void WalkHop::walk() {
  const auto& path = *task_->metapath;
  for (int64_t round = 0; round < task_->config->walks.walk_length && live_ > 0; ++round)
    for (size_t step = 0; step < path.size(); ++step) {
      const auto r = static_cast<size_t>(path[step]);
      const RelationView& relation = task_->config->relations[r];
      about(relation.label(r), [&] {
        choose(r);
        relation.indices.visit([&](const auto& indices) { follow(relation, indices.data()); });
      });
      const bool last_round = round + 1 == task_->config->walks.walk_length, last_step = step + 1 == path.size();
      if (last_step) arrive(last_round);
      if (!(last_step && last_round)) prefetch_lists(static_cast<size_t>(path[last_step ? 0 : step + 1]));
    }
}

/// Picks a place of the list where each walk is. A walk at an empty list ends.
void WalkHop::choose(size_t r) {
  const RelationView& relation = task_->config->relations[r];
  const IdSpan indices = relation.indices;
  int64_t kept = 0, run = 0;
  for (int64_t i = 0; i < live_; ++i) {
    const int64_t node = at_[i];
    const auto [begin, degree] = checked_list(relation, node);
    ++run;  // walks that start together read the same list: count them at once
    if (task_->reads != nullptr && (i + 1 == live_ || at_[i + 1] != node)) {
      count_read(r, node, run);
      run = 0;
    }
    Stream random = random_[i];
    const int64_t place = begin + static_cast<int64_t>(random.below(static_cast<uint64_t>(degree)));
    __builtin_prefetch(indices.at(place), 0, 2);
    at_[kept] = place;
    owner_[kept] = owner_[i];
    random_[kept] = random;
    kept += degree > 0;
  }
  live_ = kept;
}

void WalkHop::count_read(size_t relation, int64_t node, int64_t times) const {
  int64_t* const counts = (*task_->reads)[relation];
  if (counts == nullptr) return;
  if (task_->shared_reads)
    std::atomic_ref<int64_t>(counts[node]).fetch_add(times, std::memory_order_relaxed);
  else
    counts[node] += times;
}

/// Moves each walk to the node at its place.
template <typename Index>
void WalkHop::follow(const RelationView& relation, const Index* indices) {
  const int64_t num_src = task_->config->num_nodes[relation.src_type];
  for (int64_t i = 0; i < live_; ++i) {
    const auto id = static_cast<int64_t>(indices[at_[i]]);
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(num_src)) [[unlikely]]
      throw_bad_index(at_[i], id, num_src);
    at_[i] = id;
  }
}

/// The end of a round: the nodes count as visited, and walks end by chance.
void WalkHop::arrive(bool last_round) {
  for (int64_t i = 0; i < live_; ++i) visits_[owner_[i] * most_visits_ + num_visits_[owner_[i]]++] = at_[i];
  const uint64_t restart = task_->config->walks.restart;
  if (last_round || restart == 0) return;
  int64_t kept = 0;
  for (int64_t i = 0; i < live_; ++i) {
    Stream random = random_[i];
    const bool goes_on = random.next() >> 11 >= restart;
    at_[kept] = at_[i];
    owner_[kept] = owner_[i];
    random_[kept] = random;
    kept += goes_on;
  }
  live_ = kept;
}

void WalkHop::prefetch_lists(size_t relation) const {
  const int64_t* indptr = task_->config->relations[relation].indptr;
  const int64_t* counts = task_->reads == nullptr ? nullptr : (*task_->reads)[relation];
  for (int64_t i = 0; i < live_; ++i) {
    __builtin_prefetch(indptr + at_[i]);
    __builtin_prefetch(indptr + at_[i] + 1);
    if (counts != nullptr) __builtin_prefetch(counts + at_[i], 1);
  }
}

/// Keeps the most visited nodes of every frontier node of the block.
void WalkHop::select() {
  chosen_.first = first_;
  chosen_.taken.resize(nodes_);
  chosen_.ids.set_size(0);
  chosen_.counts.set_size(0);
  for (int64_t i = 0; i < nodes_; ++i) {
    counter_.run(visits_.data() + i * most_visits_, num_visits_[i], task_->fanout, task_->source_keys);
    const auto& top = counter_.top();
    int64_t size = chosen_.ids.size();
    chosen_.taken[i] = top.size();
    chosen_.ids.make_room(top.size());
    chosen_.counts.make_room(top.size());
    for (const Visited& visited : top) {
      chosen_.ids[size] = visited.id;
      chosen_.counts[size++] = visited.count;
      task_->sources->prefetch(visited.id);
    }
    chosen_.ids.set_size(size);
    chosen_.counts.set_size(size);
  }
}

/// Looks up what select() has kept of the last block, and writes its edges.
void WalkHop::emit() {
  if (chosen_.taken.size() == 0) return;
  const int64_t total = chosen_.ids.size();
  check_room(task_->sources->size(), total);
  task_->sources->make_room(total);
  if (task_->edges == nullptr) {
    for (const int64_t id : chosen_.ids) task_->sources->insert(id);
  } else {
    SampledEdges& edges = *task_->edges;
    const int64_t at = edges.extend(total, false, true);
    for (int64_t j = 0; j < total; ++j) {
      edges.src[at + j] = task_->sources->insert(chosen_.ids[j]);
      edges.weights[at + j] = static_cast<float>(chosen_.counts[j]);
    }
    int32_t* dst = edges.dst.data() + at;
    for (int64_t i = 0; i < chosen_.taken.size(); ++i)
      dst = std::fill_n(dst, chosen_.taken[i], static_cast<int32_t>(chosen_.first + i));
  }
  chosen_.taken.set_size(0);
}

}  // namespace tiering
