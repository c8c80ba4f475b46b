#include "list_reads.hpp"

#include "relation_hop.hpp"

namespace tiering {

PageReads::PageReads(const std::string& file, int64_t entries, int64_t width, const std::string& engine)
    : entries_(entries), width_(width), images_(ImageSet::open({file}, DirectMode::automatic)) {
  TIERING_EXPECT(entries * width / kPage < UINT32_MAX, file, ": at most 2^44 bytes can be read by pages");
  engine_ = EngineChoice(engine).make(images_, {.depth = 128, .max_read = kMaxRead});
}

void PageReads::read_pages(std::vector<Run>& runs) {
  sort(runs);
  plan(runs);
  const auto begin = std::chrono::steady_clock::now();
  engine_->start(reads_, *this);
  engine_->finish();
  nanoseconds_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  runs = {};
  reads_ = {};
  parts_ = {};
}

void PageReads::add_to(SampledWindow& window) const {
  window.reads += num_reads_;
  window.read_bytes += read_bytes_;
  window.read_nanoseconds += nanoseconds_;
}

/// Sorts runs by page, the least significant digit first.
void PageReads::sort(std::vector<Run>& runs) const {
  constexpr int kBits = 11;
  const auto last = static_cast<uint64_t>(entries_ * width_ / kPage);
  std::vector<Run> other(runs.size());
  for (int shift = 0; shift < 32 && last >> shift != 0; shift += kBits) {
    size_t ends[1 << kBits] = {};
    const auto digit = [&](const Run& run) { return run.page >> shift & ((1U << kBits) - 1); };
    for (const Run& run : runs) ++ends[digit(run)];
    size_t sum = 0;
    for (size_t& end : ends) sum += std::exchange(end, sum);
    for (const Run& run : runs) other[ends[digit(run)]++] = run;
    runs.swap(other);
  }
}

/// Makes few reads of the pages of all runs.
void PageReads::plan(const std::vector<Run>& runs) {
  const int64_t file_bytes = entries_ * width_;
  for (size_t first = 0, last; first < runs.size(); first = last) {
    const int64_t begin = runs[first].page * kPage;
    int64_t end = begin + kPage;
    for (last = first + 1; last < runs.size(); ++last) {
      const int64_t from = runs[last].page * kPage;
      if (from > end + kGap || from + kPage - begin > kMaxRead) break;
      end = from + kPage;
    }
    const int64_t need = std::min(end, file_bytes) - begin;
    reads_.push_back({begin, static_cast<uint32_t>(end - begin), static_cast<uint32_t>(need), 0, nullptr});
    parts_.emplace_back(runs.data() + first, last - first);
    read_bytes_ += end - begin;
  }
  num_reads_ += static_cast<int64_t>(reads_.size());
}

void ListReads::read(const std::vector<std::pair<int64_t, int64_t>>& ranges, int64_t* places) {
  places_ = places;
  bad_place_ = -1;
  std::vector<Run> runs;  // consecutive places that lie in one page
  for (const auto& [begin, end] : ranges) {
    for (int64_t j = begin; j < end; ++j) {
      const auto page = static_cast<uint32_t>(places[j] / per_page());
      if (j > begin && runs.back().page == page)
        ++runs.back().count;
      else
        runs.push_back({j, page, 1});
    }
  }
  read_pages(runs);
  if (bad_place_ >= 0) throw_bad_index(bad_place_, bad_id_, num_src_);
}

void ListReads::look(std::span<const Run> runs, const std::byte* entries, int64_t first) noexcept {
  if (width() == 4)
    replace(runs, reinterpret_cast<const int32_t*>(entries), first);
  else
    replace(runs, reinterpret_cast<const int64_t*>(entries), first);
}

template <typename Id>
void ListReads::replace(std::span<const Run> runs, const Id* ids, int64_t first) noexcept {
  constexpr size_t kAhead = 8;  // runs between prefetching places and replacing them
  for (size_t r = 0; r < runs.size(); ++r) {
    if (r + kAhead < runs.size()) __builtin_prefetch(places_ + runs[r + kAhead].at, 1);
    int64_t* const places = places_ + runs[r].at;
    for (uint32_t j = 0; j < runs[r].count; ++j) {
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

void TimeReads::cut(std::vector<ListRange>& lists, const std::vector<int64_t>& clocks) {
  clocks_ = &clocks;
  open_ = lists;
  if (rule_.window != -1) open_.insert(open_.end(), lists.begin(), lists.end());
  for (;;) {
    std::vector<Run> runs;
    for (size_t i = 0; i < open_.size(); ++i) {
      const auto& [begin, size] = open_[i];
      if (size > 0)
        runs.push_back({static_cast<int64_t>(i), static_cast<uint32_t>((begin + size / 2) / per_page()), 1});
    }
    if (runs.empty()) break;
    read_pages(runs);
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    const int64_t begin = rule_.window == -1 ? lists[i].begin : open_[lists.size() + i].begin;
    lists[i] = {begin, open_[i].begin - begin};
  }
  open_ = {};
}

void TimeReads::look(std::span<const Run> runs, const std::byte* entries, int64_t first) noexcept {
  const auto* const words = reinterpret_cast<const int64_t*>(entries);
  if (rule_.real)
    narrow<double>(runs, words, first);
  else
    narrow<int64_t>(runs, words, first);
}

/// Narrows each search by one page: to nothing, or to what lies before or after that page.
template <typename Time>
void TimeReads::narrow(std::span<const Run> runs, const int64_t* words, int64_t first) noexcept {
  const Visibility<Time> visibility{std::bit_cast<Time>(rule_.window)};
  const auto lists = static_cast<int64_t>(clocks_->size());
  for (const Run& run : runs) {
    ListRange& open = open_[static_cast<size_t>(run.at)];
    const bool ends = run.at < lists;
    const auto now = std::bit_cast<Time>((*clocks_)[static_cast<size_t>(ends ? run.at : run.at - lists)]);
    const auto before = [&](int64_t word) {
      const auto time = std::bit_cast<Time>(word);
      return ends ? visibility.before_end(time, now) : visibility.before_begin(time, now);
    };
    const int64_t page = run.page * per_page(), open_end = open.begin + open.degree;
    const int64_t begin = std::max(open.begin, page), end = std::min(open_end, page + per_page());
    const int64_t found = std::partition_point(words + begin - first, words + end - first, before) - words + first;
    if (found == begin && begin > open.begin)
      open.degree = begin - open.begin;
    else
      open = {found, found == end ? open_end - end : 0};
  }
}

}  // namespace tiering
