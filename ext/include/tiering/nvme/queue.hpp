// A pair of NVMe queues from the side of those who read: a thread of the host, or the lanes of a warp.
//
// Approach:  who reads numbers its commands and completions from 0 on. Command n lies in entry n % depth of the
//            submission queue and completion n in that of the completion queue, so that places follow from numbers and
//            many lanes may write at once without a lock. Completions come in any order; the n-th frees the id that
//            command n + depth takes. No more than depth - 1 commands are in flight, so that neither queue runs over.
// Ordering:  entries and doorbells are shared with the controller, at the other end of a link on which only loads and
//            stores are atomic: each word has one writer. A doorbell is stored with release after the entries before
//            it; the last word of a completion is loaded with acquire before the data is looked at. What a GPU's
//            threads share among themselves (the books) never crosses the link.
// Link:      how to load, store and wait; see HostLink and, for GPUs, DeviceLink.
#pragma once

#include <cstdint>
#include <tiering/nvme/commands.hpp>

#ifdef __CUDACC__
#define TIERING_NVME_FUNCTION __host__ __device__ inline
#else
#define TIERING_NVME_FUNCTION inline
#endif

namespace tiering::nvme {

/// Where a pair of queues lies. Owns nothing; passed to kernels by value.
struct QueuePair {
  Command* commands = nullptr;
  Completion* completions = nullptr;
  uint32_t* submit_bell = nullptr;    ///< doorbell: entries of the submission queue that were written, modulo depth
  uint32_t* complete_bell = nullptr;  ///< doorbell: entries of the completion queue that were taken, modulo depth
  uint32_t depth = 0;                 ///< entries of either: a power of two, 2 to kMostEntries

  constexpr uint32_t entry(uint32_t number) const { return number & (depth - 1); }
  /// The phase of a completion that has arrived; what lies in its entry before has the other.
  constexpr uint32_t phase(uint32_t number) const { return (number / depth + 1) & 1; }
  constexpr uint32_t most_in_flight() const { return depth - 1; }
};

/// A command in flight, by the low bits of its id.
struct InFlight {
  uint32_t request = 0;  ///< what the reader calls it
  uint32_t id = kIdle;   ///< all bits

  static constexpr uint32_t kIdle = ~uint32_t{0};
};

/// What the reader keeps of a pair, in memory of its own.
struct QueueBooks {
  uint16_t* free_ids = nullptr;   ///< depth of them: at n % depth, low bits of the id for command n
  InFlight* in_flight = nullptr;  ///< depth of them
  uint32_t submitted = 0;         ///< commands whose doorbell was rung
  uint32_t reaped = 0;            ///< completions taken

  constexpr uint32_t flying() const { return submitted - reaped; }
};

/// Who waits gives up at a time of its link's clock, or when a word is no longer 0.
struct Patience {
  uint64_t until = ~uint64_t{0};    ///< nanoseconds
  const uint32_t* abort = nullptr;  ///< null: nobody aborts
};

enum class Outcome : uint32_t {
  done,
  late,     ///< nothing came in time
  aborted,  ///< somebody said so
  strange,  ///< a completion of a command that is not in flight
};

/// What a completion said.
struct Reaped {
  Outcome outcome = Outcome::done;
  uint32_t request = 0;
  uint32_t id = 0;  ///< low bits: place among the commands in flight
  uint32_t status = kSuccess;
};

/// Puts books and completion queue in order for the first command; nothing else may use the pair meanwhile.
TIERING_NVME_FUNCTION void reset(const QueuePair& pair, QueueBooks& books) {
  for (uint32_t i = 0; i < pair.depth; ++i) {
    books.free_ids[i] = static_cast<uint16_t>(i);
    books.in_flight[i] = InFlight{};
    pair.completions[i] = Completion{};
  }
  books.submitted = books.reaped = 0;
}

/// The id of command n without the bits that tell its use from those before: its place among commands in flight.
TIERING_NVME_FUNCTION uint32_t place_of(const QueuePair& pair, const QueueBooks& books, uint32_t number) {
  return books.free_ids[pair.entry(number)];
}

/// Writes command `number`, which may be one of several after books.submitted that fit, without ringing. Different lanes
/// may write different numbers at once.
TIERING_NVME_FUNCTION void write_command(const QueuePair& pair, QueueBooks& books, uint32_t number, uint32_t request,
                                         const BlockRead& read) {
  const uint32_t place = place_of(pair, books, number);
  // The bits above a place count the queue's rounds: a completion of an earlier use of the place is not taken for this.
  const uint32_t id = (place | (number / pair.depth * pair.depth)) & 0xffff;
  books.in_flight[place] = InFlight{request, id};
  pair.commands[pair.entry(number)] = read_command(static_cast<uint16_t>(id), read);
}

/// Tells the controller of `count` commands that were written: by one lane, after all others wrote theirs.
template <typename Link>
TIERING_NVME_FUNCTION void ring_submitted(const QueuePair& pair, QueueBooks& books, uint32_t count) {
  books.submitted += count;
  Link::store_release(pair.submit_bell, pair.entry(books.submitted));
}

/// Whether completion `number` is there; `word` is then its last.
template <typename Link>
TIERING_NVME_FUNCTION bool arrived(const QueuePair& pair, uint32_t number, uint32_t& word) {
  word = Link::load_acquire(&pair.completions[pair.entry(number)].words[3]);
  return phase_of(word) == pair.phase(number);
}

/// Takes completion `number`, which has arrived, without ringing. Different lanes may take different numbers at once.
TIERING_NVME_FUNCTION Reaped take(const QueuePair& pair, QueueBooks& books, uint32_t number, uint32_t word) {
  const uint32_t id = completed_id(word), place = pair.entry(id);
  InFlight& command = books.in_flight[place];
  if (command.id != id) return {Outcome::strange, 0, place, status_of(word)};
  command.id = InFlight::kIdle;
  books.free_ids[pair.entry(number)] = static_cast<uint16_t>(place);
  return {Outcome::done, command.request, place, status_of(word)};
}

/// Waits for completion `number` and takes it.
template <typename Link>
TIERING_NVME_FUNCTION Reaped await(const QueuePair& pair, QueueBooks& books, uint32_t number,
                                   const Patience& patience) {
  uint32_t word;
  for (uint32_t tries = 0; !arrived<Link>(pair, number, word); ++tries) {
    if ((tries & 63) == 63) {  // seldom: the word may be at the other end of the link, too
      if (patience.abort != nullptr && Link::load_acquire(patience.abort) != 0) return {Outcome::aborted};
      if (Link::nanoseconds() > patience.until) return {Outcome::late};
    }
    Link::pause(tries);
  }
  return take(pair, books, number, word);
}

/// Tells the controller of `count` completions that were taken: by one lane, after all others took theirs.
template <typename Link>
TIERING_NVME_FUNCTION void ring_reaped(const QueuePair& pair, QueueBooks& books, uint32_t count) {
  books.reaped += count;
  Link::store_release(pair.complete_bell, pair.entry(books.reaped));
}

}  // namespace tiering::nvme
