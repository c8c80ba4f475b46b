// Rows of the ssd tier, read from NVMe drives by the warps that want them. Each warp has a pair of queues for itself.
//
// Approach:   rows come as a list in the order of their places. Each page belongs to one pair of queues: a warp walks over
//             the whole list, takes the pages that are its own, and asks for each once. It keeps its queue full, and
//             copies the rows of each page that lands to their places in the result.
// Waits:      for the drive alone, never for another warp, so that warps may run in any order, or one after the other.
// Bounds:     a wait ends when no completion has come for `patience`, or with the host's stop word.
// Memory:     none; a queue and the landing places of its commands belong to the pair.
// Source:     Qureshi et al., "GPU-Initiated On-Demand High-Throughput Storage Access in the BaM System Architecture"
//             (ASPLOS'23): queues in GPU memory, doorbells that the GPU rings, pages striped over drives. The list is
//             known before the launch, so none of its caches, tickets and locks is needed. Pages in flight: Park et al.,
//             "Accelerating Sampling and Aggregation Operations in GNN Frameworks with GPU Initiated Direct Storage
//             Accesses" (VLDB'24), section 3.2.
#pragma once

#include <cstddef>
#include <tiering/io/tiers.hpp>
#include <tiering/nvme/commands.hpp>

namespace tiering {

/// A command under way, by its landing place.
struct DriveRead {
  static constexpr uint32_t kNone = ~uint32_t{0};

  uint32_t item = kNone;  ///< first piece of the list that lies in the page
  uint32_t id = 0;
};

/// A pair of queues, and a landing place of a page for each entry. While a kernel runs, one warp owns it.
struct DriveQueue {
  static constexpr int kChunkBits = 16;  ///< places lie in chunks of 64 KiB, each known to the drive by an address

  DriveCommand* commands = nullptr;
  DriveCompletion* completions = nullptr;
  uint32_t *submit_bell = nullptr, *complete_bell = nullptr;
  std::byte* places = nullptr;
  const uint64_t* chunks = nullptr;  ///< the drive's addresses of the chunks of `places`
  uint16_t* free_places = nullptr;   ///< place of the n-th command, at n modulo depth
  DriveRead* reads = nullptr;        ///< by place
  uint32_t submitted = 0, reaped = 0;
};

/// All pairs of queues: queue q is pair q / drives of drive q mod drives. In memory that the device reads.
struct DriveSet {
  DriveQueue* queues = nullptr;
  uint32_t num_drives = 0, pairs = 0;     ///< pairs of queues of each drive
  uint32_t depth = 0;                     ///< entries of a queue, a power of two; one less are in flight
  int block_bits = 9;                     ///< logarithm of the bytes of a drive's block
  uint64_t patience = 0;                  ///< nanoseconds
  const uint32_t* stop = nullptr;         ///< not 0: give up
  unsigned long long* failure = nullptr;  ///< a DriveFailure
};

/// What became of a launch, in one word, the least of all warps': a pair of queues that was given up, with the reason, comes
/// before a read that the drive refused. A drive of which a queue was given up is in an unknown state: it is not used again.
struct DriveFailure {
  static constexpr unsigned long long kNone = ~0ULL;
  static constexpr uint32_t kStopped = 1, kStrange = 2, kLate = 3;  ///< strange: a completion that nobody waits for

  TIERING_SHARED static constexpr unsigned long long given_up(uint32_t queue, uint32_t why) { return queue << 4 | why; }
  TIERING_SHARED static constexpr unsigned long long refused(int64_t page, uint32_t status) {
    return (static_cast<unsigned long long>(page) + 1) << 16 | status;
  }
};

/// Rows of one table that are wanted, ascending, some of them perhaps several times.
struct DriveRowList {
  SsdGeometry geometry;
  int64_t row_bytes = 0;
  const int64_t* rows = nullptr;      ///< numbers within the ssd tier
  const uint32_t* targets = nullptr;  ///< per row: the row of `out` that it becomes
  const uint32_t* count = nullptr;    ///< in memory of the device; an earlier kernel may write it
  std::byte* out = nullptr;           ///< rows lie row_bytes apart

  /// Most pages that a row touches; so many pieces each row has, the last of them perhaps empty.
  TIERING_SHARED constexpr uint32_t pieces() const {
    // Rows of a page that is a unit, or a multiple of rows, do not run into the next.
    if (geometry.rows_per_unit > 0 &&
        (geometry.unit_bytes == geometry.page_bytes || geometry.page_bytes % geometry.stride == 0))
      return 1;
    return static_cast<uint32_t>((row_bytes + geometry.page_bytes - 2) / geometry.page_bytes + 1);
  }
};

/// The part of a row that lies in one page.
struct RowPiece {
  int64_t page = 0;
  uint32_t in_page = 0, in_row = 0, bytes = 0, row = 0;
};

/// An empty piece is at the row's last page: pieces rise with their pages, but for rows that come several times.
TIERING_SHARED constexpr RowPiece piece_of(const DriveRowList& list, uint32_t item) {
  const uint32_t pieces = list.pieces();
  const uint32_t row = item / pieces, number = item % pieces;
  const int64_t page_bytes = list.geometry.page_bytes;
  const auto [image, begin] = list.geometry.place(list.rows[row]);
  const int64_t end = begin + list.row_bytes, of_image = begin / page_bytes + number, start = of_image * page_bytes;
  if (start >= end) return {(end - 1) / page_bytes * list.geometry.num_images + image, 0, 0, 0, row};
  const int64_t first = begin > start ? begin : start, last = end < start + page_bytes ? end : start + page_bytes;
  return {of_image * list.geometry.num_images + image, static_cast<uint32_t>(first - start),
          static_cast<uint32_t>(first - begin), static_cast<uint32_t>(last - first), row};
}

/// The pair of queues that a page is read through: one of the drive that has it.
TIERING_SHARED constexpr int64_t queue_of(const SsdGeometry& geometry, uint32_t pairs, int64_t page) {
  const int64_t of_drive = geometry.image_offset(page) / geometry.page_bytes;
  return of_drive % pairs * geometry.num_images + geometry.image_of(page);
}

/// `Warp` gives the lanes' number, votes, shuffles and copies, and by `Warp::Link` what drive and host see of memory.
template <typename Warp>
class DriveReader {
 public:
  TIERING_SHARED DriveReader(const Warp& warp, const DriveSet& drives, const DriveRowList& list)
      : warp_(warp),
        drives_(drives),
        list_(list),
        queue_(drives.queues[warp.number()]),
        total_(*list.count * list.pieces()),
        submitted_(queue_.submitted),
        reaped_(queue_.reaped) {}

  TIERING_SHARED void run() {
    uint64_t since = Link::nanoseconds();
    for (uint32_t tries = 0;; ++tries) {
      submit();
      if (submitted_ == reaped_) break;
      const uint32_t came = reap();
      if (came == kGivenUp) break;
      if (came > 0) {
        tries = 0;
        since = Link::nanoseconds();
        continue;
      }
      if (tries % kTriesPerLook == kTriesPerLook - 1 && give_up(since)) break;
      Link::pause(tries);
    }
    warp_.sync();
    if (warp_.lane() != 0) return;
    queue_.submitted = submitted_;
    queue_.reaped = reaped_;
  }

 private:
  using Link = typename Warp::Link;

  static constexpr uint32_t kGivenUp = ~uint32_t{0}, kTriesPerLook = 64;

  TIERING_SHARED uint32_t entry(uint32_t number) const { return number & (drives_.depth - 1); }

  /// Takes own pages of the list until the queue is full or the list ends, and rings once.
  TIERING_SHARED void submit() {
    const uint32_t room = drives_.depth - 1 - (submitted_ - reaped_);
    uint32_t written = 0;
    while (next_ < total_ && written < room) {
      const uint32_t item = next_ + warp_.lane();
      bool mine = false;
      int64_t page = 0;
      if (item < total_) {
        page = piece_of(list_, item).page;
        mine = queue_of(list_.geometry, drives_.pairs, page) == warp_.number() &&
               (item == 0 || piece_of(list_, item - 1).page != page);
      }
      const uint32_t takers = warp_.ballot(mine), some = warp_.count(takers), fits = room - written;
      const uint32_t rank = warp_.count(takers & ((uint32_t{1} << warp_.lane()) - 1));
      if (mine && rank < fits) write(submitted_ + written + rank, item, page);
      if (some > fits) {  // go on with the first that found no room
        next_ += warp_.lowest(warp_.ballot(mine && rank == fits));
        written = room;
      } else {
        next_ += Warp::kLanes;
        written += some;
      }
    }
    if (written == 0) return;
    submitted_ += written;
    warp_.sync();
    if (warp_.lane() == 0) Link::ring(queue_.submit_bell, entry(submitted_));
  }

  TIERING_SHARED void write(uint32_t number, uint32_t item, int64_t page) {
    const SsdGeometry& geometry = list_.geometry;
    const uint32_t place = queue_.free_places[entry(number)];
    // Another id each time that a place is used: a completion of an earlier command is known as such.
    const uint32_t id = (place | number / drives_.depth * drives_.depth) & 0xffff;
    queue_.reads[place] = {item, id};
    const uint64_t at = uint64_t{place} * static_cast<uint64_t>(geometry.page_bytes);
    const uint64_t within = at & ((uint64_t{1} << DriveQueue::kChunkBits) - 1);
    const uint64_t first = queue_.chunks[at >> DriveQueue::kChunkBits] + within;
    queue_.commands[entry(number)] =
        read_command(id, static_cast<uint64_t>(geometry.image_offset(page)) >> drives_.block_bits,
                     static_cast<uint32_t>(geometry.page_bytes) >> drives_.block_bits, first,
                     geometry.page_bytes > kDrivePage ? first + kDrivePage : 0);
  }

  /// Takes the completions that have come, at most one for each lane: how many, or kGivenUp.
  TIERING_SHARED uint32_t reap() {
    const uint32_t number = reaped_ + warp_.lane();
    uint32_t word = 0;
    bool here = false;
    if (number - reaped_ < submitted_ - reaped_) {
      word = Link::load_acquire(&queue_.completions[entry(number)].words[3]);
      here = DriveCompletion::phase(word) == phase_of(number, drives_.depth);
    }
    const uint32_t count = warp_.lowest(~warp_.ballot(here));  // they come in the order of the queue
    if (count == 0) return 0;
    warp_.sync();  // a shuffle orders no memory: the pages that one lane saw arrive, all see
    for (uint32_t k = 0; k < count; ++k) {
      const uint32_t came = warp_.shuffle(word, k), place = entry(DriveCompletion::id(came));
      const DriveRead read = queue_.reads[place];
      if (read.item == DriveRead::kNone || read.id != DriveCompletion::id(came)) {
        fail(DriveFailure::given_up(warp_.number(), DriveFailure::kStrange));
        return kGivenUp;
      }
      if (const uint32_t status = DriveCompletion::status(came); status != 0)
        fail(DriveFailure::refused(piece_of(list_, read.item).page, status));
      else
        copy_rows(read.item, place);
      warp_.sync();
      if (warp_.lane() == 0) {
        queue_.reads[place].item = DriveRead::kNone;
        queue_.free_places[entry(reaped_ + k)] = static_cast<uint16_t>(place);
      }
    }
    reaped_ += count;
    warp_.sync();
    if (warp_.lane() == 0) Link::ring(queue_.complete_bell, entry(reaped_));
    return count;
  }

  TIERING_SHARED void copy_rows(uint32_t item, uint32_t place) const {
    const std::byte* const data = queue_.places + size_t{place} * static_cast<size_t>(list_.geometry.page_bytes);
    const int64_t page = piece_of(list_, item).page;
    for (; item < total_; ++item) {
      const RowPiece piece = piece_of(list_, item);
      if (piece.page != page) break;
      std::byte* const row = list_.out + int64_t{list_.targets[piece.row]} * list_.row_bytes;
      warp_.copy(row + piece.in_row, data + piece.in_page, piece.bytes);
    }
  }

  TIERING_SHARED void fail(unsigned long long failure) const {
    if (warp_.lane() == 0) Link::least(drives_.failure, failure);
  }

  /// Whether the host says so, or nothing has come for too long.
  TIERING_SHARED bool give_up(uint64_t since) const {
    uint32_t why = 0;
    if (warp_.lane() == 0) {
      if (Link::load_acquire(drives_.stop) != 0)
        why = DriveFailure::kStopped;
      else if (Link::nanoseconds() - since > drives_.patience)
        why = DriveFailure::kLate;
    }
    why = warp_.shuffle(why, 0);
    if (why != 0) fail(DriveFailure::given_up(warp_.number(), why));
    return why != 0;
  }

  const Warp& warp_;
  const DriveSet& drives_;
  const DriveRowList& list_;
  DriveQueue& queue_;
  const uint32_t total_;  // pieces of the list
  uint32_t next_ = 0;     // the first piece that was not looked at
  uint32_t submitted_, reaped_;
};

/// Reads the pages of `list` that belong to the warp's queue; all warps together read all.
template <typename Warp>
TIERING_SHARED void drive_rows(const Warp& warp, const DriveSet& drives, const DriveRowList& list) {
  DriveReader<Warp>(warp, drives, list).run();
}

}  // namespace tiering
