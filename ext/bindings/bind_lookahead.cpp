// Bindings of ext/src/lookahead: the buffer in front of the ssd tier, and the price of its plans.
#include <tiering/lookahead/row_buffer.hpp>

#include "bound_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

namespace {

/// rows, bytes of a row, first unit, stride, rows per unit
using Tables = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>;
/// bytes of a row, slots
using Pools = std::vector<std::pair<int64_t, int64_t>>;
using Places = std::span<const uint32_t>;
using RowLists = std::vector<Places>;
using IdLists = std::vector<std::span<const int64_t>>;

/// bytes of a unit, of a page
using Shape = std::pair<int64_t, int64_t>;

SsdRows ssd_rows(const Tables& tables, const Shape& shape, int64_t num_images) {
  std::vector<SsdTable> made;
  for (const auto& [rows, row_bytes, first_unit, stride, rows_per_unit] : tables)
    made.push_back({rows, row_bytes, {first_unit, stride, rows_per_unit, shape.first, shape.second, num_images}});
  return SsdRows(std::move(made));
}

std::vector<SlotPool> slot_pools(const Pools& pools) {
  std::vector<SlotPool> made;
  for (const auto& [row_bytes, slots] : pools) made.push_back({row_bytes, slots});
  return made;
}

std::vector<uint32_t> checked_rows(const SsdRows& rows, Places given) {
  std::vector<uint32_t> batch(given.begin(), given.end());
  for (const uint32_t row : batch)
    TIERING_EXPECT(row < rows.count(), "batches: expected rows of 0..", int64_t{rows.count()} - 1, ", found ", row);
  return batch;
}

/// The rows of the ssd tier among the ids of each table; those from `begins` on lie there.
std::vector<uint32_t> rows_among(const SsdRows& rows, const IdLists& ids, const std::vector<int64_t>& begins) {
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

/// Throws InputError where the slots that a caller took are not some of `most`, or their places not some of its batch's.
void check_part(Places slots, Places places, size_t batch_rows, int64_t most) {
  TIERING_EXPECT(slots.size() == (places.empty() ? batch_rows : places.size()), "places: expected as many as slots");
  uint32_t last_slot = 0, last_place = 0;
  for (const uint32_t slot : slots) last_slot = std::max(last_slot, slot);
  for (const uint32_t place : places) last_place = std::max(last_place, place);
  TIERING_EXPECT(slots.empty() || last_slot < most, "slots: expected some of 0..", most - 1, ", found ", last_slot);
  TIERING_EXPECT(places.empty() || last_place < batch_rows, "places: expected some of 0..", batch_rows - 1, ", found ",
                 last_place);
}

/// Copies the rows of a part of a batch, table by table, from a mapped arena; `first`: with those of memory tiers.
/// Returns the counters of each table.
std::vector<GatherStats> gather_from_slots(std::span<const std::byte> arena, const Pools& pools, Places slots,
                                           Places places, size_t batch_rows, bool first,
                                           const std::vector<const BoundTable*>& tables, const IdLists& ids,
                                           const std::vector<RowsTarget>& outs, int threads) {
  const SlotArena known(arena.data(), slot_pools(pools));
  TIERING_EXPECT(static_cast<int64_t>(arena.size()) >= known.bytes(), "arena: expected ", known.bytes(),
                 " bytes, found ", arena.size());
  check_part(slots, places, batch_rows, known.slots());
  TIERING_EXPECT(ids.size() == tables.size() && outs.size() == tables.size(),
                 "tables, ids, outs: expected as many of each");
  std::vector<size_t> ends{0};  // of each table's rows among those of the ssd tier, in the order of the ids
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto cold = [first_cold = tables[t]->table.ranges.cpu_end](int64_t id) { return id >= first_cold; };
    expect_target(tables[t]->table, ids[t], outs[t]);
    ends.push_back(ends.back() + static_cast<size_t>(std::count_if(ids[t].begin(), ids[t].end(), cold)));
  }
  TIERING_EXPECT(batch_rows == ends.back(), "ids: expected those that the batch was planned with");
  const bool whole = places.empty();
  std::vector<GatherStats> stats(tables.size());
  for (size_t t = 0; first && t < tables.size(); ++t) {
    const SlotRows own{known, whole ? slots.subspan(ends[t], ends[t + 1] - ends[t]) : Places{}};
    stats[t] = tiering::gather(tables[t]->table, ids[t], outs[t].data, threads, &own);
  }
  if (whole) return stats;
  std::vector<RowPlace> on_ssd(batch_rows), into;
  for (size_t t = 0, at = 0; t < tables.size(); at = ends[++t]) {
    const TieredTable& table = tables[t]->table;
    for (size_t i = 0; i < ids[t].size() && at < ends[t + 1]; ++i)
      if (ids[t][i] >= table.ranges.cpu_end)
        on_ssd[at++] = {outs[t].data + static_cast<int64_t>(i) * table.rows.out_bytes, &table.rows};
    if (at < ends[t + 1]) changed_meanwhile();
  }
  for (const uint32_t place : places) into.push_back(on_ssd[place]);
  stats.front().copy_nanoseconds += copy_slots(known, slots, into, threads);
  return stats;
}

/// Writes for each id of each table the slot of its row, counted from the table's first; kNoSlot for rows of the ssd
/// tier, which are those from `begins` on, that other parts have. Ids of memory tiers are left as they are.
void spread_slots(Places slots, Places places, size_t batch_rows, const std::vector<int64_t>& begins,
                  const std::vector<uint32_t>& firsts, const IdLists& ids,
                  const std::vector<std::span<uint32_t>>& outs) {
  check_part(slots, places, batch_rows, kNoSlot);
  const size_t tables = begins.size();
  TIERING_EXPECT(firsts.size() == tables && ids.size() == tables && outs.size() == tables,
                 "firsts, ids, outs: expected ", tables, " of each");
  std::vector<uint32_t*> targets;  // of each row of the batch that lies on SSD
  std::vector<uint32_t> first_of;
  for (size_t t = 0; t < tables; ++t) {
    TIERING_EXPECT(outs[t].size() == ids[t].size(), "outs: expected as many slots as ids");
    for (size_t i = 0; i < ids[t].size(); ++i) {
      if (ids[t][i] < begins[t]) continue;
      outs[t][i] = kNoSlot;
      targets.push_back(&outs[t][i]);
      first_of.push_back(firsts[t]);
    }
  }
  TIERING_EXPECT(targets.size() == batch_rows, "ids: expected those that the batch was planned with");
  for (size_t i = 0; i < slots.size(); ++i) {
    const size_t place = places.empty() ? i : places[i];
    *targets[place] = slots[i] - first_of[place];
  }
}

using Arena = Array<std::span<std::byte>>;
using Checksums = std::vector<Array<Places>>;

/// The arrays that a buffer points to.
struct BufferArrays {
  Arena arena;
  Checksums checksums;
};

struct BoundBuffer : BufferArrays, RowBuffer {  // in this order: readers end before the arrays do
  std::vector<int64_t> begins;

  BoundBuffer(const Tables& tables, const std::vector<int64_t>& ssd_begins, const Shape& shape,
              const std::vector<std::string>& images, const Pools& pools, const Arena& memory,
              const std::string& engine, const std::string& direct, int depth, int64_t max_read, const Checksums& sums)
      : BufferArrays{memory, sums},
        RowBuffer(ssd_rows(tables, shape, static_cast<int64_t>(images.size())), slot_pools(pools), images,
                  parse_direct(direct), BufferOptions{engine, depth, max_read},
                  value_of<PageChecksums>(sums, "checksums"), memory.get("arena").data()),
        begins(ssd_begins) {
    TIERING_EXPECT(begins.size() == tables.size(), "begins: expected one of each table");
    const auto bytes = static_cast<int64_t>(memory.get("arena").size());
    TIERING_EXPECT(filled_by_caller() || bytes >= slots().bytes(), "arena: expected ", slots().bytes(),
                   " bytes, found ", bytes);
  }

  bool add_ids(const IdLists& ids) { return add(rows_among(rows(), ids, begins)); }

  bool add_rows(Places given) { return add(checked_rows(rows(), given)); }

  /// Table, rows and slots to fill; see next_fill().
  auto fill() {
    const Fill next = next_fill();
    return std::make_tuple(next.table, copied<const int64_t>(next.rows), copied<const uint32_t>(next.slots));
  }

  void wait_all(int64_t batch, int64_t part) {
    for (bool last = false; !last; ++part) {
      last = wait(batch, part).last;
      release(batch, part);
    }
  }

  /// Waits for a part of a batch, as add_ids() got it: the slots of its rows, the places of these among the batch's rows
  /// of the ssd tier (none: all of them), how many the batch has, whether the part is its last. It is to be released.
  auto take(int64_t batch, int64_t part) {
    const PartSlots given = wait(batch, part);
    return std::make_tuple(copied(given.slots), copied(given.places), given.batch_rows, given.last);
  }
};

/// Per round of a plan: first and last batch, rows needed, rows to read, then reads and bytes for each gap.
/// Epochs end before the batches `epoch_ends`: no round has batches of two, or knows of the next epoch.
Shaped<Buffer<int64_t>, 2> simulate_rounds(const Tables& tables, const Shape& shape, int64_t num_images,
                                           const Pools& pools, int64_t window, int64_t horizon, const RowLists& batches,
                                           const std::vector<int64_t>& gaps, int64_t align, int64_t max_read,
                                           const std::vector<int64_t>& epoch_ends) {
  const SsdRows rows = ssd_rows(tables, shape, num_images);
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
  int64_t number = 0;
  for (const auto& batch : batches) {
    if (std::ranges::count(epoch_ends, number++) > 0) {
      plan.end();
      take();
    }
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
std::vector<Buffer<uint32_t>> cut_rows(const Tables& tables, const Shape& shape, const Pools& pools, Places batch) {
  const SsdRows rows = ssd_rows(tables, shape, 1);
  std::vector<Buffer<uint32_t>> parts;
  for (const BatchPart& part : cut_batch(rows, slot_pools(pools), checked_rows(rows, batch)))
    parts.push_back(copied<const uint32_t>(part.rows));
  return parts;
}

Buffer<uint32_t> ssd_rows_among(const Tables& tables, const Shape& shape, const std::vector<int64_t>& begins,
                                const IdLists& ids) {
  return copied<const uint32_t>(rows_among(ssd_rows(tables, shape, 1), ids, begins));
}

}  // namespace

void bind_lookahead(nb::module_& m) {
  m.def(
      "buffer_staging_bytes",
      [](const Tables& tables, const Shape& shape, int64_t num_images, int depth, int64_t max_read) {
        return RowBuffer::staging_bytes(ssd_rows(tables, shape, num_images), {.depth = depth, .max_read = max_read});
      },
      "tables"_a, "shape"_a, "num_images"_a, "depth"_a, "max_read"_a);
  m.def("lookahead_state_bytes", &LookaheadPlan::state_bytes, "rows"_a, "slots"_a);
  define(m, "ssd_rows_among", &ssd_rows_among, "tables"_a, "shape"_a, "begins"_a, "ids"_a);
  define(m, "cut_batch", &cut_rows, "tables"_a, "shape"_a, "pools"_a, "batch"_a);
  define(m, "gather_from_slots", &gather_from_slots, "arena"_a, "pools"_a, "slots"_a, "places"_a, "batch_rows"_a,
         "first"_a, "tables"_a, "ids"_a, "outs"_a, "threads"_a = 1);
  define(m, "spread_slots", &spread_slots, "slots"_a, "places"_a, "batch_rows"_a, "begins"_a, "firsts"_a, "ids"_a,
         "outs"_a);
  m.attr("NO_SLOT") = kNoSlot;
  define(m, "simulate_rounds", &simulate_rounds, "tables"_a, "shape"_a, "num_images"_a, "pools"_a, "window"_a,
         "horizon"_a, "batches"_a, "gaps"_a, "align"_a = 4096, "max_read"_a = BufferOptions{}.max_read,
         "epoch_ends"_a = std::vector<int64_t>());

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

  nb::class_<BoundBuffer> buffer(m, "RowBuffer");
  buffer
      .def(nb::init<const Tables&, const std::vector<int64_t>&, const Shape&, const std::vector<std::string>&,
                    const Pools&, const Arena&, const std::string&, const std::string&, int, int64_t,
                    const Checksums&>(),
           "tables"_a, "begins"_a, "shape"_a, "images"_a, "pools"_a, "arena"_a, "engine"_a = "auto",
           "direct"_a = "auto", "depth"_a = BufferOptions{}.depth, "max_read"_a = BufferOptions{}.max_read,
           "checksums"_a = nb::make_tuple())
      .def("begin", &BoundBuffer::begin, "window"_a, "horizon"_a, "gap"_a, "growing"_a = false, Release())
      .def("end", &BoundBuffer::end, Release())
      .def("stop", &BoundBuffer::stop, Release())
      .def("cancel", &BoundBuffer::cancel, Release())
      .def("wait", &BoundBuffer::wait_all, "batch"_a, "part"_a = 0, Release())
      .def("release", &BoundBuffer::release, "batch"_a, "part"_a = 0, Release())
      .def("fill", &BoundBuffer::fill, Release())
      .def("take", &BoundBuffer::take, "batch"_a, "part"_a, Release())
      .def("reset_counters", &BoundBuffer::reset_counters, Release())
      .def_prop_ro("counters", &BoundBuffer::counters, Release())
      .def_prop_ro("engine", &BoundBuffer::engine_name, Release())
      .def_prop_ro("fallback", &BoundBuffer::fallback, Release())
      .def_prop_ro("direct", &BoundBuffer::direct)
      .def_prop_ro("note", &BoundBuffer::note)
      .def_prop_ro("bad_page", &BoundBuffer::bad_page, Release());
  define(buffer, "add", &BoundBuffer::add_ids, "ids"_a);
  define(buffer, "add_rows", &BoundBuffer::add_rows, "rows"_a);
}
