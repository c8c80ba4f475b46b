// Bindings of ext/src/io: readers of files, the tiered gather, checksums of pages.
#include <nanobind/stl/array.h>
#include <nanobind/stl/unique_ptr.h>

#include <tiering/io/stream.hpp>

#include "bound_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

DirectMode tiering::bind::parse_direct(const std::string& text) {
  if (text == "auto") return DirectMode::automatic;
  if (text == "on") return DirectMode::on;
  TIERING_EXPECT(text == "off", "direct: expected auto, on or off, found '" + text + "'");
  return DirectMode::off;
}

void tiering::bind::expect_target(const TieredTable& table, std::span<const int64_t> ids, const RowsTarget& out) {
  const auto wanted = static_cast<int64_t>(ids.size());
  TIERING_EXPECT(out.num_rows == wanted && out.row_bytes == table.rows.out_bytes &&
                     (out.num_rows <= 1 || out.stride_bytes == out.row_bytes),
                 "out: expected shape (", wanted, ", ", table.rows.out_bytes, ") in bytes, contiguous, found (",
                 out.num_rows, ", ", out.row_bytes, ")");
}

namespace {

constexpr int64_t kMaxRead = 64 << 10;  // reads of neighboring pages are merged up to this
constexpr int64_t kSector = 4096;

std::unique_ptr<SsdReader> open_reader(const std::vector<std::string>& paths, int64_t page_bytes,
                                       const std::string& engine, int depth, const std::string& direct,
                                       int64_t row_bytes, bool map) {
  TIERING_EXPECT(!paths.empty(), "paths: expected at least one image");
  TIERING_EXPECT(page_bytes >= 512 && page_bytes <= (64 << 20) && (page_bytes & (page_bytes - 1)) == 0,
                 "page_bytes: expected a power of two from 512 to 64 Mi, found ", page_bytes);
  auto images = ImageSet::open(paths, parse_direct(direct));
  TIERING_EXPECT(row_bytes >= 1 && row_bytes <= (1 << 30), "row_bytes: expected 1 to 1 Gi, found ", row_bytes);
  // A row rounded to pages or sectors at both ends must fit one read.
  const EngineOptions options{.depth = depth,
                              .max_read = static_cast<uint32_t>(std::max(
                                  kMaxRead, round_up(row_bytes, kSector) + 2 * std::max(page_bytes, kSector)))};
  return std::make_unique<SsdReader>(std::move(images), options, engine, map);
}

std::string fallback_of(SsdReader& reader) {
  const std::lock_guard turn(reader.turn);
  return reader.fallback();
}

using Bytes = Array<std::span<const std::byte>>;

void init_table(BoundTable* self, int64_t row_bytes, const std::vector<int64_t>& ends, const std::optional<Bytes>& gpu,
                const std::vector<Bytes>& peers, const std::optional<Bytes>& cpu, SsdReader* reader, int64_t first_unit,
                int64_t stride, int64_t rows_per_unit, int64_t unit_bytes, int64_t page_bytes,
                const std::vector<Array<std::span<const uint32_t>>>& checksums, const std::optional<Bytes>& ssd,
                const BoundCodec* codec) {
  TIERING_EXPECT(codec == nullptr || codec->codec.fits(row_bytes), "row_bytes: expected those of the codec, ",
                 codec->codec.stored_bytes(), ", found ", row_bytes);
  TIERING_EXPECT(row_bytes >= 1, "row_bytes: expected at least 1, found ", row_bytes);
  TIERING_EXPECT(ends.size() == 4 && ends[0] >= 0 && std::is_sorted(ends.begin(), ends.end()),
                 "ends: expected four ascending ranks (gpu, peer, cpu, ssd)");
  const int64_t images = reader == nullptr ? 1 : static_cast<int64_t>(reader->images.images.size());
  TieredTable table{.rows = codec == nullptr ? RowWriter(row_bytes) : RowWriter(codec->codec, row_bytes),
                    .ranges = {ends[0], ends[1], ends[2], ends[3]},
                    .memory = {},
                    .ssd = {first_unit, stride, rows_per_unit, unit_bytes, page_bytes, images},
                    .reader = reader,
                    .checksums = {}};
  std::vector<AnyArray> arrays;
  const auto rows_of = [&](const Bytes* given, int64_t rows, const char* what) {  // where those of an array begin
    const auto array = given == nullptr ? std::span<const std::byte>() : given->get(what);
    TIERING_EXPECT(static_cast<int64_t>(array.size()) >= rows * row_bytes, what, ": expected ", rows * row_bytes,
                   " bytes (", rows, " rows of ", row_bytes, "), found ", array.size());
    if (given != nullptr) arrays.push_back(given->array);
    return array.data();
  };
  table.memory.gpu = rows_of(gpu ? &*gpu : nullptr, ends[0], "gpu");
  table.memory.cpu = rows_of(cpu ? &*cpu : nullptr, ends[2] - ends[1], "cpu");
  const int64_t peer_rows = ends[1] - ends[0], num_peers = static_cast<int64_t>(peers.size());
  TIERING_EXPECT(peer_rows == 0 || num_peers > 0, "peers: expected at least one array, found none");
  for (int64_t k = 0; k < num_peers; ++k)
    table.memory.peers.push_back(rows_of(&peers[k], (peer_rows - k + num_peers - 1) / num_peers, "peers"));
  const int64_t ssd_rows = ends[3] - ends[2];
  if (ssd) table.memory.ssd = rows_of(&*ssd, ssd_rows, "ssd");
  if (ssd_rows > 0 && !ssd) {
    TIERING_EXPECT(reader != nullptr, "reader: expected one, because the ssd tier has rows");
    TIERING_EXPECT(table.ssd.sound(row_bytes), "ssd rows: stride, rows per unit, unit, page and images do not match");
  }
  for (const auto& each : checksums) {
    table.checksums.push_back(each.get("checksums"));
    arrays.push_back(each.array);
  }
  if (ssd_rows > 0 && !checksums.empty()) expect_checksums(table.checksums, table.ssd, table.ssd.end_unit(ssd_rows));
  new (self) BoundTable{std::move(table), std::move(arrays), nb::find(reader), nb::find(codec)};
}

GatherStats gather_into(const BoundTable& self, std::span<const int64_t> ids, RowsTarget out, int threads) {
  expect_target(self.table, ids, out);
  return gather(self.table, ids, out.data, threads);
}

bool in_page_cache(const std::vector<std::string>& paths) {
  return std::all_of(paths.begin(), paths.end(),
                     [](const auto& path) { return MappedImage(ImageFile(path, DirectMode::off)).cached(); });
}

Buffer<uint32_t> hashes_of(std::span<const std::byte> data, int64_t page_bytes) {
  const auto size = static_cast<int64_t>(data.size());
  TIERING_EXPECT(page_bytes >= 1 && size % page_bytes == 0, "data: expected whole pages of ", page_bytes,
                 " bytes, found ", size, " bytes");
  Buffer<uint32_t> hashes(size / page_bytes);
  page_hashes(data, static_cast<size_t>(page_bytes), hashes.span());
  return hashes;
}

using Wanted = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>;

using Memories = std::vector<Array<std::span<std::byte>>>;

/// A reader together with the buffers that it reads into.
struct BoundStream {
  Memories arrays;
  std::vector<std::span<std::byte>> buffers;
  StreamReader reader;
  std::vector<const std::byte*> begins;  ///< per range that is read, of its buffer

  BoundStream(const std::vector<std::string>& paths, const Memories& into, const std::string& engine,
              const std::string& direct)
      : arrays(into),
        buffers(value_of<std::vector<std::span<std::byte>>>(into, "buffers")),
        reader(paths, engine, parse_direct(direct)) {
    reader.register_buffers(buffers);
  }

  /// A range: file, offset, bytes, buffer, place in it.
  void start(const Wanted& wanted) {
    std::vector<StreamRange> ranges;
    std::vector<const std::byte*> memories;
    for (const auto& [file, offset, size, buffer, place] : wanted) {
      TIERING_EXPECT(buffer >= 0 && buffer < static_cast<int64_t>(buffers.size()), "no buffer has the number ", buffer);
      const auto memory = buffers[buffer];
      const int64_t room = static_cast<int64_t>(memory.size()) - place;
      TIERING_EXPECT(place >= 0 && room >= 0 && place % StreamReader::kAlignment == 0,
                     "a range begins at a multiple of 4096 within its buffer");
      memories.push_back(memory.data());
      ranges.push_back({static_cast<uint32_t>(file), offset, size, memory.data() + place, room});
    }
    reader.start(ranges);
    begins = std::move(memories);
  }

  std::vector<int64_t> finish() {
    const auto read = reader.finish();
    std::vector<int64_t> places;
    for (size_t i = 0; i < read.size(); ++i) places.push_back(read[i] - begins[i]);
    return places;
  }
};

}  // namespace

void bind_io(nb::module_& m) {
  m.attr("ALIGNMENT") = kSector;
  m.attr("DEFAULT_DEPTH") = EngineOptions{}.depth;
  m.def("uring_unavailable", &uring_unavailable, Release());
  m.def("in_page_cache", &in_page_cache, "paths"_a, Release());
  define(m, "page_hashes", &hashes_of, "data"_a, "page_bytes"_a);

  nb::class_<SsdReader>(m, "SsdReader")
      .def(nb::new_(&open_reader), "paths"_a, "page_bytes"_a, "engine"_a, "depth"_a, "direct"_a = "auto",
           "row_bytes"_a = 1, "map"_a = false, Release())
      .def_prop_ro("engine", [](const SsdReader& r) { return std::string(r.engine_name()); })
      .def_prop_ro("fallback", &fallback_of, Release())
      .def_prop_ro("depth", [](const SsdReader& r) { return r.options.depth; })
      .def_prop_ro("direct", [](const SsdReader& r) { return r.images.direct(); })
      .def_prop_ro("note", [](const SsdReader& r) { return r.images.note(); })
      .def_prop_ro("offset_alignment", [](const SsdReader& r) { return r.images.offset_alignment; });

  nb::class_<BoundStream>(m, "StreamReader")
      .def(nb::init<const std::vector<std::string>&, const Memories&, const std::string&, const std::string&>(),
           "paths"_a, "buffers"_a, "engine"_a, "direct"_a = "auto")
      .def("start", &BoundStream::start, "ranges"_a, Release())
      .def("finish", &BoundStream::finish, Release())
      .def_prop_ro("engine", [](const BoundStream& s) { return std::string(s.reader.engine()); })
      .def_prop_ro("direct", [](const BoundStream& s) { return s.reader.files().direct(); })
      .def_prop_ro("note", [](const BoundStream& s) { return s.reader.files().note(); });

  nb::class_<GatherStats>(m, "GatherStats")
      .def_ro("rows", &GatherStats::rows)
      .def_ro("bytes", &GatherStats::bytes)
      .def_ro("copy_nanoseconds", &GatherStats::copy_nanoseconds)
      .def_ro("read_nanoseconds", &GatherStats::read_nanoseconds)
      .def_ro("reads", &GatherStats::reads)
      .def_ro("read_bytes", &GatherStats::read_bytes)
      .def_ro("direct_reads", &GatherStats::direct_reads)
      .def_ro("bad_page", &GatherStats::bad_page)
      .def_ro("fallback", &GatherStats::fallback);

  nb::class_<BoundTable> table(m, "TieredTable");
  table.def("__init__", &init_table, "row_bytes"_a, "ends"_a, "gpu"_a.none(), "peers"_a, "cpu"_a.none(),
            "reader"_a.none(), "first_unit"_a = 0, "stride"_a = 0, "rows_per_unit"_a = 0, "unit_bytes"_a = 0,
            "page_bytes"_a = 0, "checksums"_a = nb::make_tuple(), "ssd"_a = nb::none(), "codec"_a = nb::none());
  define(table, "gather", &gather_into, "ids"_a, "out"_a, "threads"_a = 1);
}
