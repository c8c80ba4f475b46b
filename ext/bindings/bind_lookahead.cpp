// Bindings of ext/src/lookahead: the buffer in front of the ssd tier, and the price of its plans.
#include <tiering/lookahead/row_buffer.hpp>

#include "bound_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

namespace {

/// rows, bytes of a row, first page, stride, rows per page
using Tables = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>;
/// bytes of a row, slots
using Pools = std::vector<std::pair<int64_t, int64_t>>;
using RowLists = std::vector<Values<const uint32_t, "batches">>;
using Slots = std::span<uint32_t>;
using IdLists = std::vector<Values<const int64_t, "ids">>;

SsdRows ssd_rows(const Tables& tables, int64_t page_bytes, int64_t num_images) {
  std::vector<SsdTable> made;
  for (const auto& [rows, row_bytes, first_page, stride, rows_per_page] : tables)
    made.push_back({rows, row_bytes, {first_page, stride, rows_per_page, page_bytes, num_images}});
  return SsdRows(std::move(made));
}

std::vector<SlotPool> slot_pools(const Pools& pools) {
  std::vector<SlotPool> made;
  for (const auto& [row_bytes, slots] : pools) made.push_back({row_bytes, slots});
  return made;
}

std::vector<uint32_t> checked_rows(const SsdRows& rows, std::span<const uint32_t> given) {
  std::vector<uint32_t> batch(given.begin(), given.end());
  for (const uint32_t row : batch)
    TIERING_EXPECT(row < rows.count(), "batches: expected rows of 0..", int64_t{rows.count()} - 1, ", found ", row);
  return batch;
}

/// The rows of the ssd tier among the ids of each table; those from `begins` on lie there.
std::vector<uint32_t> rows_among(const SsdRows& rows, const std::vector<std::span<const int64_t>>& ids,
                                 const std::vector<int64_t>& begins) {
  TIERING_EXPECT(ids.size() == rows.tables().size() && begins.size() == ids.size(), "ids: expected some of each table");
  std::vector<uint32_t> found;
  for (size_t t = 0; t < ids.size(); ++t) {
    const int64_t past = begins[t] + rows.tables()[t].rows;
    for (const int64_t& given : ids[t]) {
      const int64_t id = read_once(given);
      TIERING_EXPECT(id >= 0 && id < past, "ids: expected ranks of 0..", past - 1, ", found ", id);
      if (id >= begins[t]) found.push_back(rows.first(t) + static_cast<uint32_t>(id - begins[t]));
    }
  }
  return found;
}

/// Where the rows of one batch belong, table by table. The ids are looked through once, however many parts the batch
/// has.
class BatchRows {
 public:
  BatchRows(const std::vector<const BoundTable*>& tables, const IdLists& ids,
            const std::vector<Argument<RowsTarget, "out">>& outs)
      : tables_(tables), ids_(ids) {
    TIERING_EXPECT(ids.size() == tables.size() && outs.size() == tables.size(),
                   "tables, ids, outs: expected as many of each");
    for (size_t t = 0; t < tables.size(); ++t) {
      const TieredTable& table = tables[t]->table;
      const std::span<const int64_t> wanted = ids[t];
      outs_.push_back(checked_target(table, wanted, outs[t]).data);
      for (size_t i = 0; i < wanted.size(); ++i)
        if (wanted[i] >= table.ranges.cpu_end) on_ssd_.push_back(outs_[t] + static_cast<int64_t>(i) * table.row_bytes);
      ends_.push_back(on_ssd_.size());
    }
  }

  /// Copies the rows of a part; with the first, those of memory tiers. Returns what it did for each table.
  std::vector<GatherStats> copy(const SlotArena& arena, const RowBuffer::PartSlots& part, bool first,
                                Threads threads) const {
    TIERING_EXPECT(part.batch_rows == on_ssd_.size(), "ids: expected those that the batch was planned with");
    const bool whole = part.places.empty();
    std::vector<GatherStats> stats(tables_.size());
    for (size_t t = 0, at = 0; first && t < tables_.size(); at = ends_[t++]) {
      const auto slots = whole ? part.slots.subspan(at, ends_[t] - at) : std::span<const uint32_t>{};
      stats[t] = tiering::gather(tables_[t]->table, ids_[t], slots, arena, outs_[t], threads);
    }
    if (!whole) {
      std::vector<std::byte*> targets;
      for (const uint32_t place : part.places) targets.push_back(on_ssd_[place]);
      stats.front().copy_nanoseconds += copy_slots(arena, part.slots, targets, threads);
    }
    return stats;
  }

 private:
  const std::vector<const BoundTable*>& tables_;
  const IdLists& ids_;
  std::vector<std::byte*> outs_;    ///< per table
  std::vector<std::byte*> on_ssd_;  ///< of each row of the ssd tier, in the order of the ids
  std::vector<size_t> ends_;        ///< per table: where its rows end among these
};

/// Throws InputError where the slots of a part are not some of `slots`, or its places not some of its batch's.
void check_part(const RowBuffer::PartSlots& part, int64_t slots) {
  TIERING_EXPECT(part.places.empty() ? part.slots.size() == part.batch_rows : part.slots.size() == part.places.size(),
                 "places: expected as many as slots");
  for (const uint32_t slot : part.slots)
    TIERING_EXPECT(slot < slots, "slots: expected some of 0..", slots - 1, ", found ", slot);
  for (const uint32_t place : part.places)
    TIERING_EXPECT(place < part.batch_rows, "places: expected some of 0..", part.batch_rows - 1, ", found ", place);
}

/// Copies rows of a part of a batch in another process, which maps the arena and received the slots; `first`: with
/// those of memory tiers.
std::vector<GatherStats> gather_from_slots(const Values<const std::byte, "arena">& arena, const Pools& pools,
                                           const Values<const uint32_t, "slots">& slots,
                                           const Values<const uint32_t, "places">& places, size_t batch_rows,
                                           bool first, const std::vector<const BoundTable*>& tables, const IdLists& ids,
                                           const std::vector<Argument<RowsTarget, "out">>& outs, Threads threads) {
  const std::span<const std::byte> memory = arena;
  const auto own_slots = copied(slots.get()), own_places = copied(places.get());
  const RowBuffer::PartSlots part{.slots = own_slots.span(), .places = own_places.span(), .batch_rows = batch_rows};
  const SlotArena known(memory.data(), slot_pools(pools));
  TIERING_EXPECT(static_cast<int64_t>(memory.size()) >= known.bytes(), "arena: expected ", known.bytes(),
                 " bytes, found ", memory.size());
  check_part(part, known.slots());
  return BatchRows(tables, ids, outs).copy(known, part, first, threads);
}

/// Writes for each id of each table the slot of its row, counted from the table's first; kNoSlot for rows of the ssd
/// tier, which are those from `begins` on, that other parts have. Ids of memory tiers are left as they are.
void spread(const RowBuffer::PartSlots& part, const std::vector<int64_t>& begins, const std::vector<uint32_t>& firsts,
            const IdLists& ids, const std::vector<Argument<Slots, "out">>& outs) {
  const size_t tables = begins.size();
  TIERING_EXPECT(firsts.size() == tables && ids.size() == tables && outs.size() == tables,
                 "firsts, ids, outs: expected ", tables, " of each");
  std::vector<uint32_t*> targets;  // of each row of the batch that lies on SSD
  std::vector<uint32_t> first_of;
  for (size_t t = 0; t < tables; ++t) {
    const std::span<const int64_t> wanted = ids[t];
    const std::span<uint32_t> out = outs[t];
    TIERING_EXPECT(out.size() == wanted.size(), "outs: expected as many slots as ids");
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] < begins[t]) continue;
      out[i] = kNoSlot;
      targets.push_back(&out[i]);
      first_of.push_back(firsts[t]);
    }
  }
  TIERING_EXPECT(targets.size() == part.batch_rows, "ids: expected those that the batch was planned with");
  for (size_t i = 0; i < part.slots.size(); ++i) {
    const size_t place = part.places.empty() ? i : part.places[i];
    *targets[place] = part.slots[i] - first_of[place];
  }
}

/// The same in a process that received the slots.
void spread_slots(const Values<const uint32_t, "slots">& slots, const Values<const uint32_t, "places">& places,
                  size_t batch_rows, const std::vector<int64_t>& begins, const std::vector<uint32_t>& firsts,
                  const IdLists& ids, const std::vector<Argument<Slots, "out">>& outs) {
  const auto own_slots = copied(slots.get()), own_places = copied(places.get());
  const RowBuffer::PartSlots part{.slots = own_slots.span(), .places = own_places.span(), .batch_rows = batch_rows};
  check_part(part, kNoSlot);
  spread(part, begins, firsts, ids, outs);
}

/// The arrays that a buffer points to.
struct BufferArrays {
  Values<std::byte, "arena"> arena;
  std::vector<Values<const uint32_t, "checksums">> checksums;
};

struct BoundBuffer : BufferArrays, RowBuffer {  // in this order: readers end before the arrays do
  std::vector<int64_t> begins;

  BoundBuffer(const Tables& tables, const std::vector<int64_t>& ssd_begins, int64_t page_bytes,
              const std::vector<std::string>& images, const Pools& pools, const Values<std::byte, "arena">& memory,
              const std::string& engine, const std::string& direct, int depth, int64_t max_read,
              const std::vector<Values<const uint32_t, "checksums">>& sums)
      : BufferArrays{memory, sums},
        RowBuffer(ssd_rows(tables, page_bytes, static_cast<int64_t>(images.size())), slot_pools(pools), images,
                  parse_direct(direct), BufferOptions{engine, depth, max_read}, all(sums), memory.get().data()),
        begins(ssd_begins) {
    TIERING_EXPECT(begins.size() == tables.size(), "begins: expected one of each table");
    const auto bytes = static_cast<int64_t>(memory.get().size());
    TIERING_EXPECT(bytes >= slots().bytes(), "arena: expected ", slots().bytes(), " bytes, found ", bytes);
  }

  bool add_ids(const IdLists& ids) { return add(rows_among(rows(), all(ids), begins)); }

  bool add_rows(const Values<const uint32_t, "rows">& given) { return add(checked_rows(rows(), given)); }

  /// Throws InputError where tables are not those of the rows.
  void check(const std::vector<const BoundTable*>& tables) const {
    const auto& known = rows().tables();
    TIERING_EXPECT(tables.size() == known.size(), "tables: expected ", known.size());
    for (size_t t = 0; t < known.size(); ++t) {
      const TieredTable& table = tables[t]->table;
      TIERING_EXPECT(table.row_bytes == known[t].row_bytes && table.ranges.cpu_end == begins[t] &&
                         table.ranges.num_rows - begins[t] == known[t].rows,
                     "tables: expected those that the buffer was made for, in their order");
    }
  }

  /// Rows of batch `batch`, table by table, as add_ids() got it.
  std::vector<GatherStats> gather(int64_t batch, const std::vector<const BoundTable*>& tables, const IdLists& ids,
                                  const std::vector<Argument<RowsTarget, "out">>& outs, Threads threads) {
    check(tables);
    const BatchRows targets(tables, ids, outs);
    std::vector<GatherStats> stats;
    bool last = false;
    for (int64_t number = 0; !last; ++number) {
      const PartSlots part = wait(batch, number);
      last = part.last;
      const auto copied = targets.copy(slots(), part, number == 0, threads);
      if (number == 0) stats = copied;
      for (size_t t = 0; number > 0 && t < stats.size(); ++t) stats[t].copy_nanoseconds += copied[t].copy_nanoseconds;
      release(batch, number);
    }
    return stats;
  }

  void wait_all(int64_t batch, int64_t part) {
    for (bool last = false; !last; ++part) {
      last = wait(batch, part).last;
      release(batch, part);
    }
  }

  /// Waits for a part of a batch, as add_ids() got it, and writes its slots; see spread(). The part is to be released.
  /// Returns whether it was the last.
  bool write_slots(int64_t batch, int64_t part, const IdLists& ids, const std::vector<Argument<Slots, "out">>& outs) {
    std::vector<uint32_t> firsts;
    for (size_t t = 0; t < begins.size(); ++t) firsts.push_back(plan().first_slot(t));
    const PartSlots given = wait(batch, part);
    spread(given, begins, firsts, ids, outs);
    return given.last;
  }

  auto take(int64_t batch, int64_t part) {
    const PartSlots given = wait(batch, part);
    return std::make_tuple(copied(given.slots), copied(given.places), given.batch_rows, given.last);
  }

  /// Per table, the address of its first slot in the arena.
  std::vector<int64_t> origins() const {
    std::vector<int64_t> found;
    for (size_t t = 0; t < rows().tables().size(); ++t) found.push_back(slots().offset(plan().first_slot(t)));
    return found;
  }
};

/// Per round of a plan: first and last batch, rows needed, rows to read, then reads and bytes for each gap.
Shaped<Buffer<int64_t>, 2> simulate_rounds(const Tables& tables, int64_t page_bytes, int64_t num_images,
                                           const Pools& pools, int64_t window, int64_t horizon, const RowLists& batches,
                                           const std::vector<int64_t>& gaps, int64_t align, int64_t max_read) {
  const SsdRows rows = ssd_rows(tables, page_bytes, num_images);
  LookaheadPlan plan(rows, slot_pools(pools));
  plan.set_window(window, horizon);
  std::vector<int64_t> found;
  auto take = [&] {
    while (plan.ready()) {
      const Round round = plan.next();
      found.insert(found.end(), {round.first, round.last, round.needed, static_cast<int64_t>(round.rows.size())});
      for (const int64_t gap : gaps) {
        const ReadCount count =
            count_reads(rows, round.rows, num_images, {.align = align, .gap = gap, .max_read = max_read});
        found.insert(found.end(), {count.reads, count.bytes});
      }
    }
  };
  for (const auto& batch : batches) {
    plan.add(checked_rows(rows, batch));
    take();
  }
  plan.end();
  take();
  Buffer<int64_t> table(static_cast<int64_t>(found.size()));
  std::copy(found.begin(), found.end(), table.data());
  const size_t columns = 4 + 2 * gaps.size();
  return {std::move(table), {found.size() / columns, columns}};
}

/// The parts in which a buffer with such slots takes a batch.
std::vector<Buffer<uint32_t>> cut_rows(const Tables& tables, int64_t page_bytes, const Pools& pools,
                                       const Values<const uint32_t, "batch">& batch) {
  const SsdRows rows = ssd_rows(tables, page_bytes, 1);
  std::vector<Buffer<uint32_t>> parts;
  for (const BatchPart& part : cut_batch(rows, slot_pools(pools), checked_rows(rows, batch)))
    parts.push_back(copied<const uint32_t>(part.rows));
  return parts;
}

Buffer<uint32_t> ssd_rows_among(const Tables& tables, int64_t page_bytes, const std::vector<int64_t>& begins,
                                const IdLists& ids) {
  return copied<const uint32_t>(rows_among(ssd_rows(tables, page_bytes, 1), all(ids), begins));
}

}  // namespace

void bind_lookahead(nb::module_& m) {
  m.def(
      "buffer_staging_bytes",
      [](const Tables& tables, int64_t page_bytes, int64_t num_images, int depth, int64_t max_read) {
        return RowBuffer::staging_bytes(ssd_rows(tables, page_bytes, num_images),
                                        {.depth = depth, .max_read = max_read});
      },
      "tables"_a, "page_bytes"_a, "num_images"_a, "depth"_a, "max_read"_a);
  m.def("lookahead_state_bytes", &LookaheadPlan::state_bytes, "rows"_a, "slots"_a);
  m.def("ssd_rows_among", &ssd_rows_among, "tables"_a, "page_bytes"_a, "begins"_a, "ids"_a, Release());
  m.def("cut_batch", &cut_rows, "tables"_a, "page_bytes"_a, "pools"_a, "batch"_a, Release());
  m.def("gather_from_slots", &gather_from_slots, "arena"_a, "pools"_a, "slots"_a, "places"_a, "batch_rows"_a, "first"_a,
        "tables"_a, "ids"_a, "outs"_a, "threads"_a = 1, Release());
  m.def("spread_slots", &spread_slots, "slots"_a, "places"_a, "batch_rows"_a, "begins"_a, "firsts"_a, "ids"_a, "outs"_a,
        Release());
  m.attr("NO_SLOT") = kNoSlot;
  m.def("simulate_rounds", &simulate_rounds, "tables"_a, "page_bytes"_a, "num_images"_a, "pools"_a, "window"_a,
        "horizon"_a, "batches"_a, "gaps"_a, "align"_a = 4096, "max_read"_a = BufferOptions{}.max_read, Release());

  nb::class_<BufferCounters>(m, "BufferCounters")
      .def_ro("batches", &BufferCounters::batches)
      .def_ro("rounds", &BufferCounters::rounds)
      .def_ro("rows", &BufferCounters::rows)
      .def_ro("needed", &BufferCounters::needed)
      .def_ro("missed", &BufferCounters::missed)
      .def_ro("reads", &BufferCounters::reads)
      .def_ro("read_bytes", &BufferCounters::read_bytes)
      .def_ro("used_bytes", &BufferCounters::used_bytes)
      .def_ro("wait_nanoseconds", &BufferCounters::wait_nanoseconds)
      .def_ro("idle_nanoseconds", &BufferCounters::idle_nanoseconds);

  nb::class_<BoundBuffer>(m, "RowBuffer")
      .def(nb::init<const Tables&, const std::vector<int64_t>&, int64_t, const std::vector<std::string>&, const Pools&,
                    const Values<std::byte, "arena">&, const std::string&, const std::string&, int, int64_t,
                    const std::vector<Values<const uint32_t, "checksums">>&>(),
           "tables"_a, "begins"_a, "page_bytes"_a, "images"_a, "pools"_a, "arena"_a, "engine"_a = "auto",
           "direct"_a = "auto", "depth"_a = BufferOptions{}.depth, "max_read"_a = BufferOptions{}.max_read,
           "checksums"_a = nb::make_tuple())
      .def("begin", &BoundBuffer::begin, "window"_a, "horizon"_a, "gap"_a, "growing"_a = false, Release())
      .def("add", &BoundBuffer::add_ids, "ids"_a, Release())
      .def("add_rows", &BoundBuffer::add_rows, "rows"_a, Release())
      .def("end", &BoundBuffer::end, Release())
      .def("stop", &BoundBuffer::stop, Release())
      .def("cancel", &BoundBuffer::cancel, Release())
      .def("wait", &BoundBuffer::wait_all, "batch"_a, "part"_a = 0, Release())
      .def("slots", &BoundBuffer::write_slots, "batch"_a, "part"_a, "ids"_a, "outs"_a, Release())
      .def("release", &BoundBuffer::release, "batch"_a, "part"_a = 0, Release())
      .def_prop_ro("origins", &BoundBuffer::origins)
      .def("take", &BoundBuffer::take, "batch"_a, "part"_a, Release())
      .def("gather", &BoundBuffer::gather, "batch"_a, "tables"_a, "ids"_a, "outs"_a, "threads"_a = 1, Release())
      .def("reset_counters", &BoundBuffer::reset_counters, Release())
      .def_prop_ro("counters", &BoundBuffer::counters, Release())
      .def_prop_ro("engine", &BoundBuffer::engine_name, Release())
      .def_prop_ro("fallback", &BoundBuffer::fallback, Release())
      .def_prop_ro("direct", &BoundBuffer::direct)
      .def_prop_ro("note", &BoundBuffer::note)
      .def_prop_ro("bad_page", &BoundBuffer::bad_page, Release());
}
