// Rows of the ssd tier, read from NVMe drives by the warps that want them. Each warp has a pair of queues for itself.
//
// Approach:   rows come as a list in the order of their places. The warps of a drive claim the list piece by piece, take the
//             pages that are the drive's, and ask for each once. Each keeps its queue full, and copies the rows of each page
//             that lands to their places in the result, those of several pages at a time.
// Waits:      for the drive alone, never for another warp, so that warps may run in any order, or one after the other.
// Bounds:     a wait ends when no completion has come for `patience`, or with the host's stop word.
// Memory:     none; a queue and the landing places of its commands belong to the pair.
// Ordering:   where a device does not see a page for certain once it has seen the completion, a launch copies nothing. It ends
//             when as many pages have landed as there are places; another launch copies them, after the host has flushed
//             what drives wrote; and so on, until the list ends.
// Source:     Qureshi et al., "GPU-Initiated On-Demand High-Throughput Storage Access in the BaM System Architecture"
//             (ASPLOS'23): queues in GPU memory, doorbells that the GPU rings, pages striped over drives. The list is
//             known before the launch, so none of its caches, tickets and locks is needed. Pages in flight: Park et al.,
//             "Accelerating Sampling and Aggregation Operations in GNN Frameworks with GPU Initiated Direct Storage
//             Accesses" (VLDB'24), section 3.2.
#pragma once

#include <cstddef>
#include <tiering/device/divisor.hpp>
#include <tiering/io/tiers.hpp>
#include <tiering/nvme/commands.hpp>

namespace tiering {

/// A command, by its landing place.
struct DriveRead {
  static constexpr uint32_t kNone = ~uint32_t{0}, kCompleted = 1 << 16;

  uint32_t item = kNone;  ///< first piece of the list that lies in the page; none where the drive refused it
  uint32_t id = kNone;    ///< kCompleted more with each completion
};

/// A pair of queues, and a landing place of a page for each entry. While a kernel runs, one warp owns it.
struct DriveQueue {
  static constexpr int kChunkBits = 16;  ///< places lie in chunks of 64 KiB, each known to the drive by an address

  DriveCommand* commands = nullptr;
  DriveCompletion* completions = nullptr;
  uint32_t *submit_bell = nullptr, *complete_bell = nullptr;
  std::byte* places = nullptr;
  const uint64_t* chunks = nullptr;  ///< the drive's addresses of the chunks of `places`
  /// At n modulo depth: the place of the n-th command to come, of which the n - depth-th completion told.
  uint16_t* free_places = nullptr;
  DriveRead* reads = nullptr;  ///< by place
  uint32_t submitted = 0, reaped = 0, copied = 0;
};

/// Pairs of queues: queue q is pair q / drives of drive q mod drives. In memory that the device reads.
struct DriveSet {
  DriveQueue* queues = nullptr;
  uint32_t num_drives = 0, pairs = 0;     ///< pairs of queues of each drive
  uint32_t depth = 0;                     ///< entries of a queue, a power of two; one less are in flight
  int block_bits = 9;                     ///< logarithm of the bytes of a drive's block
  uint64_t patience = 0;                  ///< nanoseconds
  const uint32_t* stop = nullptr;         ///< not 0: give up
  unsigned long long* failure = nullptr;  ///< a DriveFailure
  uint32_t* cursors = nullptr;            ///< of each drive: pieces of the list that its warps have claimed; 0 at first
  /// Null: pages are copied by the launch that reads them. Else 0 is written here where the list goes on after a launch.
  unsigned long long* rest = nullptr;
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
};

/// The part of a row that lies in one page; of no bytes where the row has fewer pieces than others.
struct RowPiece {
  int64_t page = 0;  ///< of the drive
  uint32_t drive = 0, in_page = 0, in_row = 0, bytes = 0, row = 0;

  TIERING_SHARED constexpr bool same_page(const RowPiece& other) const {
    return page == other.page && drive == other.drive;
  }
};

/// Where the pieces of a table's rows lie: as SsdGeometry::place, without its divisions.
class RowPieces {
 public:
  RowPieces(const SsdGeometry& geometry, int64_t row_bytes)
      : geometry_(geometry),
        row_bytes_(row_bytes),
        page_(geometry.page_bytes),
        image_(geometry.num_images),
        unit_(geometry.rows_per_unit > 0 ? Divisor(geometry.rows_per_unit) : Divisor()) {
    // Rows of a page that is a unit, or a multiple of rows, do not run into the next.
    if (geometry.rows_per_unit == 0 ||
        (geometry.unit_bytes != geometry.page_bytes && geometry.page_bytes % geometry.stride != 0))
      per_row_ = static_cast<uint32_t>((row_bytes + geometry.page_bytes - 2) / geometry.page_bytes + 1);
  }

  /// Most pages that a row touches; so many pieces each row has, the last of them perhaps empty.
  TIERING_SHARED uint32_t per_row() const { return per_row_; }
  /// An empty piece is at the row's last page: pieces rise with their pages, but for rows that come several times.
  TIERING_SHARED RowPiece find(const DriveRowList& list, uint32_t item) const {
    const uint32_t row = per_row_ == 1 ? item : item / per_row_, number = item - row * per_row_;
    const int64_t local = list.rows[row], of_unit = unit_.divide(local), unit = geometry_.first_unit + of_unit;
    const int64_t of_image = image_.divide(unit);
    const int64_t begin =
        of_image * geometry_.unit_bytes + (local - of_unit * geometry_.rows_per_unit) * geometry_.stride;
    const int64_t page = page_.divide(begin) + number, start = page * geometry_.page_bytes, end = begin + row_bytes_;
    const auto drive = static_cast<uint32_t>(unit - of_image * geometry_.num_images);
    if (start >= end) return {page - 1, drive, 0, 0, 0, row};
    const int64_t first = begin > start ? begin : start;
    const int64_t last = end < start + geometry_.page_bytes ? end : start + geometry_.page_bytes;
    return {page,
            drive,
            static_cast<uint32_t>(first - start),
            static_cast<uint32_t>(first - begin),
            static_cast<uint32_t>(last - first),
            row};
  }

 private:
  SsdGeometry geometry_;
  int64_t row_bytes_;
  Divisor page_, image_, unit_;
  uint32_t per_row_ = 1;
};

/// Bytes to copy; none: nothing.
struct PieceCopy {
  static constexpr int kTogether = 4;  ///< copies that a warp makes at a time

  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint32_t bytes = 0;
};

/// `Warp` gives the lanes' number, votes, shuffles and copies, and by `Warp::Link` what drive and host see of memory.
template <typename Warp>
class DriveReader {
 public:
  TIERING_SHARED DriveReader(const Warp& warp, const DriveSet& drives, const DriveRowList& list,
                             const RowPieces& pieces)
      : warp_(warp),
        drives_(drives),
        list_(list),
        pieces_(pieces),
        queue_(drives.queues[warp.number()]),
        drive_(warp.number() % drives.num_drives),
        total_(*list.count * pieces.per_row()),
        page_bytes_(static_cast<uint32_t>(list.geometry.page_bytes)),
        submitted_(queue_.submitted),
        reaped_(queue_.reaped),
        copied_(queue_.copied) {}

  /// Reads pages, and copies their rows where that is for the same launch.
  TIERING_SHARED void run() {
    uint64_t since = Link::nanoseconds();
    for (uint32_t tries = 0;; ++tries) {
      submit();
      if (submitted_ == reaped_) break;
      const uint32_t came = reap();
      if (came == kGivenUp) break;
      if (came > 0) {
        if (drives_.rest == nullptr) copy_landed();
        tries = 0;
        since = Link::nanoseconds();
        continue;
      }
      if (tries % kTriesPerLook == kTriesPerLook - 1 && give_up(since)) break;
      Link::pause(tries);
    }
    if (drives_.rest != nullptr && !ended_ && warp_.lane() == 0) Link::least(drives_.rest, 0);
    leave();
  }

  /// Copies the rows of the pages that an earlier launch has read.
  TIERING_SHARED void copy() {
    while (copied_ != reaped_) copy_landed();
    leave();
  }

 private:
  using Link = typename Warp::Link;

  static constexpr uint32_t kGivenUp = ~uint32_t{0}, kTriesPerLook = 64;

  TIERING_SHARED uint32_t entry(uint32_t number) const { return number & (drives_.depth - 1); }

  TIERING_SHARED void leave() {
    warp_.sync();
    if (warp_.lane() != 0) return;
    DriveQueue& queue = drives_.queues[warp_.number()];
    queue.submitted = submitted_;
    queue.reaped = reaped_;
    queue.copied = copied_;
  }

  /// Claims pieces of the list, and takes the drive's pages among them, until the queue may overflow or the list ends; rings
  /// once.
  TIERING_SHARED void submit() {
    const uint32_t most = drives_.depth - 1, claim = most < Warp::kLanes ? most : Warp::kLanes;
    const uint32_t before = submitted_;
    while (!ended_ && submitted_ + claim - copied_ <= most) {
      const uint32_t first = warp_.lane() == 0 ? Link::claim(&drives_.cursors[drive_], claim) : 0;
      const uint32_t item = warp_.shuffle(first, 0) + warp_.lane();
      bool mine = false;
      RowPiece piece;
      if (warp_.lane() < claim && item < total_) {
        piece = pieces_.find(list_, item);
        mine = piece.drive == drive_ && (item == 0 || !pieces_.find(list_, item - 1).same_page(piece));
      }
      const uint32_t takers = warp_.ballot(mine);
      if (mine) write(submitted_ + warp_.count(takers & ((uint32_t{1} << warp_.lane()) - 1)), item, piece.page);
      submitted_ += warp_.count(takers);
      ended_ = warp_.ballot(item < total_) == 0;
    }
    if (submitted_ == before) return;
    warp_.sync();
    if (warp_.lane() == 0) Link::ring(queue_.submit_bell, entry(submitted_));
  }

  TIERING_SHARED void write(uint32_t number, uint32_t item, int64_t page) {
    const uint32_t place = queue_.free_places[entry(number)];
    // Another id each time that a place is used: a completion of an earlier command is known as such.
    const uint32_t id = (place | (number & ~(drives_.depth - 1))) & 0xffff;
    queue_.reads[place] = {item, id};
    const uint32_t at = place * page_bytes_, within = at & ((uint32_t{1} << DriveQueue::kChunkBits) - 1);
    const uint64_t first = queue_.chunks[at >> DriveQueue::kChunkBits] + within;
    queue_.commands[entry(number)] =
        read_command(id, static_cast<uint64_t>(page) * page_bytes_ >> drives_.block_bits,
                     page_bytes_ >> drives_.block_bits, first, page_bytes_ > kDrivePage ? first + kDrivePage : 0);
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
    bool strange = false;
    if (warp_.lane() < count) {
      const uint32_t id = DriveCompletion::id(word), status = DriveCompletion::status(word), place = entry(id);
      DriveRead& read = queue_.reads[place];
      strange = Link::claim(&read.id, DriveRead::kCompleted) != id;
      if (!strange && status != 0) {
        const RowPiece piece = pieces_.find(list_, read.item);
        Link::least(drives_.failure, DriveFailure::refused(piece.page * drives_.num_drives + drive_, status));
        read.item = DriveRead::kNone;
      }
      queue_.free_places[entry(number)] = static_cast<uint16_t>(place);
    }
    if (warp_.ballot(strange) != 0) {
      fail(DriveFailure::given_up(warp_.number(), DriveFailure::kStrange));
      return kGivenUp;
    }
    reaped_ += count;
    warp_.sync();  // votes and shuffles order no memory: the pages that one lane saw arrive, all see
    if (warp_.lane() == 0) Link::ring(queue_.complete_bell, entry(reaped_));
    return count;
  }

  /// Copies the rows of the next pages that have landed, at most one for each lane, and frees their places: a row of each page
  /// in turn, as many as a warp copies together.
  TIERING_SHARED void copy_landed() {
    const uint32_t landed = reaped_ - copied_, count = landed < Warp::kLanes ? landed : Warp::kLanes;
    uint32_t item = DriveRead::kNone, place = 0, target = 0;
    if (warp_.lane() < count) {
      place = queue_.free_places[entry(copied_ + warp_.lane())];
      item = queue_.reads[place].item;
    }
    RowPiece first, piece;
    for (bool begins = true;; begins = false) {
      bool wanted = item < total_;
      if (wanted) {
        piece = pieces_.find(list_, item);
        if (begins) first = piece;
        wanted = piece.same_page(first);
        if (wanted) target = list_.targets[piece.row];
      }
      item = wanted ? item + 1 : DriveRead::kNone;
      uint32_t lanes = warp_.ballot(wanted);
      if (lanes == 0) break;
      const uint32_t from = place * page_bytes_ + piece.in_page;
      while (lanes != 0) {
        PieceCopy copies[PieceCopy::kTogether];
        TIERING_UNROLL
        for (int i = 0; i < PieceCopy::kTogether; ++i) {
          const uint32_t lane = lanes != 0 ? warp_.lowest(lanes) : 0, bytes = warp_.shuffle(piece.bytes, lane);
          copies[i] = {
              list_.out + int64_t{warp_.shuffle(target, lane)} * list_.row_bytes + warp_.shuffle(piece.in_row, lane),
              queue_.places + warp_.shuffle(from, lane), lanes != 0 ? bytes : 0};
          lanes &= lanes - 1;
        }
        warp_.copy(copies);
      }
    }
    copied_ += count;
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
  const RowPieces& pieces_;
  const DriveQueue queue_;  // as the launch finds it
  const uint32_t drive_;
  const uint32_t total_;  // pieces of the list
  const uint32_t page_bytes_;
  bool ended_ = false;  // no piece is left to claim
  uint32_t submitted_, reaped_, copied_;
};

/// Reads pages of `list`, through the warp's pair of queues; all warps together read all, or until no place is free where a
/// later launch copies.
template <typename Warp>
TIERING_SHARED void drive_rows(const Warp& warp, const DriveSet& drives, const DriveRowList& list,
                               const RowPieces& pieces) {
  DriveReader<Warp>(warp, drives, list, pieces).run();
}

/// Copies the rows of the pages that the warp's pair has read in an earlier launch.
template <typename Warp>
TIERING_SHARED void copy_drive_rows(const Warp& warp, const DriveSet& drives, const DriveRowList& list,
                                    const RowPieces& pieces) {
  DriveReader<Warp>(warp, drives, list, pieces).copy();
}

}  // namespace tiering
