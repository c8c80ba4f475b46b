#include "list_reads.hpp"

#include "hop_task.hpp"

namespace tiering {

ListReads::ListReads(const std::string& file, int64_t entries, int64_t width, int64_t num_src,
                     const std::string& engine)
    : entries_(entries), width_(width), num_src_(num_src), images_(ImageSet::open({file}, DirectMode::automatic)) {
  TIERING_EXPECT(entries * width / kPage < UINT32_MAX, file, ": at most 2^44 bytes can be read by pages");
  engine_ = EngineChoice(engine).make(images_, {.depth = 128, .max_read = kMaxRead});
}

void ListReads::read(const std::vector<std::pair<int64_t, int64_t>>& ranges, int64_t* places) {
  places_ = places;
  bad_place_ = -1;
  runs_.clear();
  const int64_t per_page = kPage / width_;
  for (const auto& [begin, end] : ranges) {
    for (int64_t j = begin; j < end; ++j) {
      const auto page = static_cast<uint32_t>(places[j] / per_page);
      if (j > begin && runs_.back().page == page)
        ++runs_.back().count;
      else
        runs_.push_back({j, page, 1});
    }
  }
  sort_runs();
  plan();
  const auto begin = std::chrono::steady_clock::now();
  engine_->start(reads_, *this);
  engine_->finish();
  nanoseconds_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  runs_ = other_ = {};
  reads_ = {};
  parts_ = {};
  if (bad_place_ >= 0) throw_bad_index(bad_place_, bad_id_, num_src_);
}

void ListReads::add_to(SampledWindow& window) const {
  window.reads += num_reads_;
  window.read_bytes += read_bytes_;
  window.read_nanoseconds += nanoseconds_;
}

/// Sorts runs by page, the least significant digit first.
void ListReads::sort_runs() {
  constexpr int kBits = 11;
  const auto last = static_cast<uint64_t>(entries_ * width_ / kPage);
  other_.resize(runs_.size());
  for (int shift = 0; shift < 32 && last >> shift != 0; shift += kBits) {
    size_t ends[1 << kBits] = {};
    const auto digit = [&](const Run& run) { return run.page >> shift & ((1U << kBits) - 1); };
    for (const Run& run : runs_) ++ends[digit(run)];
    size_t sum = 0;
    for (size_t& end : ends) sum += std::exchange(end, sum);
    for (const Run& run : runs_) other_[ends[digit(run)]++] = run;
    runs_.swap(other_);
  }
}

/// Makes few reads of the pages of all runs.
void ListReads::plan() {
  reads_.clear();
  parts_.clear();
  const int64_t file_bytes = entries_ * width_;
  for (size_t first = 0, last; first < runs_.size(); first = last) {
    const int64_t begin = runs_[first].page * kPage;
    int64_t end = begin + kPage;
    for (last = first + 1; last < runs_.size(); ++last) {
      const int64_t from = runs_[last].page * kPage;
      if (from > end + kGap || from + kPage - begin > kMaxRead) break;
      end = from + kPage;
    }
    const int64_t need = std::min(end, file_bytes) - begin;
    reads_.push_back({begin, static_cast<uint32_t>(end - begin), static_cast<uint32_t>(need), 0, nullptr});
    parts_.push_back({first, last});
    read_bytes_ += end - begin;
  }
  num_reads_ += static_cast<int64_t>(reads_.size());
}

void ListReads::ready(size_t index, const std::byte* data) noexcept {
  const int64_t first = reads_[index].offset / width_;
  if (width_ == 4)
    look(parts_[index], reinterpret_cast<const int32_t*>(data), first);
  else
    look(parts_[index], reinterpret_cast<const int64_t*>(data), first);
}

template <typename Id>
void ListReads::look(const Part& part, const Id* ids, int64_t first) noexcept {
  constexpr size_t kAhead = 8;  // runs between prefetching places and replacing them
  for (size_t r = part.first; r < part.last; ++r) {
    if (r + kAhead < part.last) __builtin_prefetch(places_ + runs_[r + kAhead].at, 1);
    int64_t* const places = places_ + runs_[r].at;
    for (uint32_t j = 0; j < runs_[r].count; ++j) {
      const auto id = static_cast<int64_t>(ids[places[j] - first]);
      if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(num_src_)) [[unlikely]]
        note_bad(places[j], id);
      places[j] = id;
    }
  }
}

void ListReads::note_bad(int64_t place, int64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  if (bad_place_ >= 0 && bad_place_ <= place) return;
  bad_place_ = place;
  bad_id_ = id;
}

}  // namespace tiering
