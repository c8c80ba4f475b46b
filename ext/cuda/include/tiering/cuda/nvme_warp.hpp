// Reads in the middle of a kernel: the lanes of a warp ask for pages, and go on when these are there.
//
// Approach:  a warp takes a pair of queues for itself, by a lock in the memory of the GPU. Lanes that want the same page
//            share a command; all commands of the warp are told of by one doorbell; each of the lanes that wrote one waits
//            for one completion, whoever's it is, and the warp tells each other what came where. The data are used before
//            the pair is given back, because its next user's land in the same places. No warp waits for one that may not
//            be running, but for who holds a lock, who is.
// Bounds:    every wait ends with the patience or the abort word. A pair of which a wait was given up is left alone by
//            all that come later.
// Warp:      how lanes work together; see WholeWarp. Other warps, such as one of threads of the host, are for tests.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <tiering/cuda/nvme_queues.hpp>
#include <tiering/cuda/qualifiers.hpp>

namespace tiering::cuda {

/// What a lane asks for.
struct PageWish {
  uint32_t image = 0;       ///< the same for all lanes
  uint32_t page_bytes = 0;  ///< the same for all lanes: whole blocks, at most a landing place
  bool wanted = false;
  uint64_t page = 0;  ///< of the image
};

/// What became of it.
struct PageResult {
  nvme::Outcome outcome = nvme::Outcome::done;
  uint32_t status = nvme::kSuccess;

  constexpr bool fine() const { return outcome == nvme::Outcome::done && status == nvme::kSuccess; }
  /// 0 where it is fine: status in the low half, outcome in the high one.
  constexpr uint32_t code() const { return (static_cast<uint32_t>(outcome) << 16) | status; }
};

namespace detail {

// Not by <bit> on a GPU: what it is made of there is the host's, which nvcc leaves out without a word.
#ifdef __CUDACC__
TIERING_DEVICE uint32_t lowest(uint32_t lanes) { return static_cast<uint32_t>(__ffs(static_cast<int>(lanes))) - 1; }
TIERING_DEVICE uint32_t count_of(uint32_t lanes) { return static_cast<uint32_t>(__popc(lanes)); }
#else
inline uint32_t lowest(uint32_t lanes) { return static_cast<uint32_t>(std::countr_zero(lanes)); }
inline uint32_t count_of(uint32_t lanes) { return static_cast<uint32_t>(std::popcount(lanes)); }
#endif

/// Gives all lanes the place among `own` of a pair that the warp then holds, or their number: none was to be had.
template <typename Warp>
TIERING_DEVICE uint32_t hold_queue(const Warp& warp, NvmeQueue* own, uint32_t count, const nvme::Patience& patience) {
  uint32_t found = count;
  if (warp.lane() == 0) {
    for (uint32_t tries = 0, spent = 0; spent < count; ++tries) {
      const auto at = static_cast<uint32_t>((warp.number() + tries) % count);
      if (warp.try_lock(own[at].held)) {
        if (own[at].spent == 0) {
          found = at;
          break;
        }
        warp.unlock(own[at].held);
        ++spent;
        continue;
      }
      spent = 0;
      if ((tries & 63) == 63) {
        if (patience.abort != nullptr && Warp::Link::load_acquire(patience.abort) != 0) break;
        if (Warp::Link::nanoseconds() > patience.until) break;
      }
      Warp::Link::pause(tries / count);
    }
  }
  found = static_cast<uint32_t>(warp.shuffle(found, 0));
  warp.sync();  // what was written before the lock was given back is seen by all lanes
  return found;
}

TIERING_DEVICE void write_page(NvmeQueue& queue, uint32_t number, uint32_t request, const PageWish& wish) {
  nvme::BlockRead read;
  const uint32_t blocks = wish.page_bytes / queue.block_bytes;
  read.block = wish.page * blocks;
  const uint64_t there = read.block < queue.blocks ? queue.blocks - read.block : blocks;  // refused if there is none
  read.blocks = there < blocks ? static_cast<uint32_t>(there) : blocks;
  read.into = queue.prps(place_of(queue.pair, queue.books, number), read.blocks * queue.block_bytes);
  write_command(queue.pair, queue.books, number, request, read);
}

/// Lanes that want the same page, of which the lowest speaks for all.
struct Group {
  uint32_t leader = 0;  ///< of this lane's
  bool leads = false;   ///< it is this lane
  uint32_t rank = 0;    ///< among leaders
  uint32_t groups = 0;

  /// Those that lead in a batch of `count` groups, from group `begun` on.
  constexpr bool leads_among(uint32_t begun, uint32_t count) const {
    return leads && rank >= begun && rank - begun < count;
  }
};

template <typename Warp>
TIERING_DEVICE Group group_lanes(const Warp& warp, const PageWish& wish) {
  Group group;
  group.leader = lowest(warp.match(wish.page) & warp.ballot(wish.wanted));
  group.leads = wish.wanted && group.leader == warp.lane();
  const uint32_t leaders = warp.ballot(group.leads);
  group.rank = count_of(leaders & ((1U << warp.lane()) - 1));
  group.groups = count_of(leaders);
  return group;
}

/// What a lane has heard of its page.
struct Heard {
  const std::byte* data = nullptr;
  bool answered = false;
  uint32_t status = nvme::kSuccess;
  nvme::Outcome broken = nvme::Outcome::done;  ///< of any lane's wait that was given up
};

/// Submits a page for each lane with `mine`, and waits for as many completions.
template <typename Warp>
TIERING_DEVICE nvme::Reaped read_batch(const Warp& warp, NvmeQueue& queue, const PageWish& wish, bool mine,
                                       uint32_t ahead, uint32_t count, const nvme::Patience& patience) {
  nvme::Reaped reaped;
  const uint32_t number = queue.books.submitted + ahead;  // of the completion, too: nothing else is in flight
  if (mine) write_page(queue, number, warp.lane(), wish);
  warp.sync();
  if (warp.lane() == 0) nvme::ring_submitted<typename Warp::Link>(queue.pair, queue.books, count);
  if (mine) reaped = nvme::await<typename Warp::Link>(queue.pair, queue.books, number, patience);
  return reaped;
}

/// The lanes tell each other what came: each the completion of some command of the batch.
template <typename Warp>
TIERING_DEVICE Heard hear(const Warp& warp, const NvmeQueue& queue, const nvme::Reaped& reaped, uint32_t takers,
                          bool wanted, uint32_t leader) {
  Heard heard;
  for (; takers != 0; takers &= takers - 1) {
    const uint32_t from = lowest(takers);
    const auto outcome = static_cast<nvme::Outcome>(warp.shuffle(static_cast<uint32_t>(reaped.outcome), from));
    const auto request = static_cast<uint32_t>(warp.shuffle(reaped.request, from));
    const auto place = static_cast<uint32_t>(warp.shuffle(reaped.id, from));
    const auto status = static_cast<uint32_t>(warp.shuffle(reaped.status, from));
    if (outcome != nvme::Outcome::done) {
      heard.broken = outcome;
    } else if (wanted && request == leader) {
      heard.answered = true;
      heard.status = status;
      if (status == nvme::kSuccess) heard.data = queue.place(place);
    }
  }
  warp.sync();  // what one lane saw arrive, all see
  return heard;
}

}  // namespace detail

/// Reads the pages that lanes want; called by all lanes of a warp. `use(data)` is called by all lanes, once or, with
/// more pages than a queue has room for, several times: `data` is where the lane's page lies, until the call ends, or
/// null. A lane whose page failed is never given it.
template <typename Warp, typename Use>
TIERING_DEVICE PageResult read_pages(const Warp& warp, const NvmeQueues& queues, const PageWish& wish, Use&& use) {
  PageResult result;
  const detail::Group group = detail::group_lanes(warp, wish);
  if (group.groups == 0) return result;
  const nvme::Patience patience{Warp::Link::nanoseconds() + queues.patience, queues.abort};
  NvmeQueue* const own = queues.queues + wish.image * queues.per_image;
  const uint32_t held = detail::hold_queue(warp, own, queues.per_image, patience);
  nvme::Outcome broken = held == queues.per_image ? nvme::Outcome::late : nvme::Outcome::done;
  bool answered = false;
  for (uint32_t begun = 0; begun < group.groups && broken == nvme::Outcome::done;) {
    NvmeQueue& queue = own[held];
    const uint32_t left = group.groups - begun, room = queue.pair.most_in_flight(), count = left < room ? left : room;
    const bool mine = group.leads_among(begun, count);
    const auto reaped = detail::read_batch(warp, queue, wish, mine, group.rank - begun, count, patience);
    const auto heard = detail::hear(warp, queue, reaped, warp.ballot(mine), wish.wanted, group.leader);
    use(heard.data);
    warp.sync();
    if (heard.answered) result.status = heard.status;
    answered |= heard.answered;
    broken = heard.broken;
    if (warp.lane() == 0 && broken == nvme::Outcome::done)
      nvme::ring_reaped<typename Warp::Link>(queue.pair, queue.books, count);
    warp.sync();
    begun += count;
  }
  if (warp.lane() == 0 && held < queues.per_image) {
    if (broken != nvme::Outcome::done) own[held].spent = 1;
    warp.unlock(own[held].held);
  }
  if (wish.wanted && !answered) result.outcome = broken;
  return result;
}

}  // namespace tiering::cuda
