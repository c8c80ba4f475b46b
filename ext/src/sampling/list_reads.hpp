// Entries of a relation's lists, read from their files: pages are read once, in the order of the file.
#pragma once

#include "hop_task.hpp"
#include "tiering/io/read_engine.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

/// Reads pages of a file of entries. Not thread-safe.
class PageReads : private ReadSink {
 public:
  /// Adds the reads so far to the totals of a window.
  void add_to(SampledWindow& window) const;

 protected:
  static constexpr int64_t kPage = 4096, kGap = 4096;  // bytes read at least; between pages that are read, too
  static constexpr uint32_t kMaxRead = 64 << 10;

  /// What is looked for in one page.
  struct Run {
    int64_t at;  // for derived classes
    uint32_t page, count;
  };

  /// `file` holds `entries` of `width` bytes.
  PageReads(const std::string& file, int64_t entries, int64_t width, const std::string& engine);

  /// Reads the pages of `runs`, which are gone afterwards. Throws IoError.
  void read_pages(std::vector<Run>& runs);

  /// Sees entries from `first` on, and the runs in their pages; from several threads at once.
  virtual void look(std::span<const Run> runs, const std::byte* entries, int64_t first) noexcept = 0;

  int64_t width() const { return width_; }
  int64_t per_page() const { return kPage / width_; }

 private:
  void sort(std::vector<Run>& runs) const;
  void plan(const std::vector<Run>& runs);
  void ready(size_t index, const std::byte* data) noexcept override { look(parts_[index], data, first_of(index)); }
  int64_t first_of(size_t read) const { return reads_[read].offset / width_; }

  int64_t entries_, width_;
  int64_t num_reads_ = 0, read_bytes_ = 0, nanoseconds_ = 0;
  ImageSet images_;
  std::unique_ptr<ReadEngine> engine_;
  std::vector<Read> reads_;
  std::vector<std::span<const Run>> parts_;  // of each read
};

/// Replaces places in a file of ids by the ids that stand there.
class ListReads final : public PageReads {
 public:
  /// `file` holds `entries` ids of `width` bytes, each in [0, num_src).
  ListReads(const std::string& file, int64_t entries, int64_t width, int64_t num_src, const std::string& engine)
      : PageReads(file, entries, width, engine), num_src_(num_src) {}

  /// Replaces the places [begin, end) of each range of `places`. Throws IoError, or that an id is no node.
  void read(const std::vector<std::pair<int64_t, int64_t>>& ranges, int64_t* places);

 private:
  void look(std::span<const Run> runs, const std::byte* entries, int64_t first) noexcept override;
  template <typename Id>
  void replace(std::span<const Run> runs, const Id* ids, int64_t first) noexcept;
  void note_bad(int64_t place, int64_t id) noexcept;

  int64_t num_src_;
  int64_t* places_ = nullptr;
  std::mutex mutex_;
  int64_t bad_place_ = -1, bad_id_ = 0;  // the lowest place of an id that is no node; guarded by mutex_
};

/// Cuts lists to what instances see by the times in a file, which ascend in each list. Searches narrow page by page: a
/// list of up to a page takes one or two.
class TimeReads final : public PageReads {
 public:
  static constexpr int64_t kBytesOfList = 80;  ///< in addition to the list and its clock, while lists are cut

  /// `file` holds `entries` times, words of `rule`.
  TimeReads(const std::string& file, int64_t entries, const TimeRule& rule, const std::string& engine)
      : PageReads(file, entries, sizeof(int64_t), engine), rule_(rule) {}

  /// Cuts each list to what an instance sees whose seed time is the word in `clocks`. Throws IoError.
  void cut(std::vector<ListRange>& lists, const std::vector<int64_t>& clocks);

 private:
  void look(std::span<const Run> runs, const std::byte* entries, int64_t first) noexcept override;
  template <typename Time>
  void narrow(std::span<const Run> runs, const int64_t* words, int64_t first) noexcept;

  TimeRule rule_;
  const std::vector<int64_t>* clocks_ = nullptr;
  std::vector<ListRange> open_;  // where the end of each visible part may lie, then where its begin may
};

}  // namespace tiering
