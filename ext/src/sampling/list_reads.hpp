// Entries of a relation's lists, read from their file: pages are read once, in the order of the file.
#pragma once

#include "tiering/io/read_engine.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

/// Replaces places in a file of ids by the ids that stand there. Not thread-safe.
class ListReads final : private ReadSink {
 public:
  /// `file` holds `entries` ids of `width` bytes, each in [0, num_src).
  ListReads(const std::string& file, int64_t entries, int64_t width, int64_t num_src, const std::string& engine);

  /// Replaces the places [begin, end) of each range of `places`. Throws IoError, or that an id is no node.
  void read(const std::vector<std::pair<int64_t, int64_t>>& ranges, int64_t* places);

  /// Adds the reads so far to the totals of a window.
  void add_to(SampledWindow& window) const;

 private:
  static constexpr int64_t kPage = 4096, kGap = 4096;  // bytes read at least; between pages that are read, too
  static constexpr uint32_t kMaxRead = 64 << 10;

  /// Consecutive places that lie in one page.
  struct Run {
    int64_t at;
    uint32_t page, count;
  };
  /// A read's runs.
  struct Part {
    size_t first, last;
  };

  void sort_runs();
  void plan();
  void ready(size_t index, const std::byte* data) noexcept override;
  template <typename Id>
  void look(const Part& part, const Id* ids, int64_t first) noexcept;
  void note_bad(int64_t place, int64_t id) noexcept;

  int64_t entries_, width_, num_src_;
  int64_t num_reads_ = 0, read_bytes_ = 0, nanoseconds_ = 0;
  ImageSet images_;
  std::unique_ptr<ReadEngine> engine_;
  int64_t* places_ = nullptr;
  std::vector<Run> runs_, other_;
  std::vector<Read> reads_;
  std::vector<Part> parts_;
  std::mutex mutex_;
  int64_t bad_place_ = -1, bad_id_ = 0;  // the lowest place of an id that is no node; guarded by mutex_
};

}  // namespace tiering
