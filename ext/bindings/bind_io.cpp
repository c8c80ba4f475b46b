// Bindings of ext/src/io: readers of SSD images and the tiered gather.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tiering/io/gather.hpp>
#include <tiering/io/stream_reader.hpp>
#include <utility>
#include <vector>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using tiering::DirectMode;
using tiering::Tier;

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Checksums = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr int64_t kMaxRead = 64 << 10;  // reads of neighbouring pages are merged up to this
constexpr int64_t kSector = 4096;

DirectMode parse_direct(const std::string& text) {
  if (text == "auto") return DirectMode::automatic;
  if (text == "on") return DirectMode::on;
  TIERING_EXPECT(text == "off", "direct: expected auto, on or off, found '" + text + "'");
  return DirectMode::off;
}

std::unique_ptr<tiering::SsdReader> open_reader(const std::vector<std::string>& paths, int64_t page_bytes,
                                                const std::string& engine, int depth,
                                                const std::string& direct) {
  TIERING_EXPECT(!paths.empty(), "paths: expected at least one image");
  TIERING_EXPECT(
      page_bytes >= 512 && page_bytes <= (64 << 20) && (page_bytes & (page_bytes - 1)) == 0,
      "page_bytes: expected a power of two from 512 to 64 Mi, found " + std::to_string(page_bytes));
  // A mapping always goes through the page cache.
  auto images = tiering::ImageSet::open(paths, engine == "mmap" ? DirectMode::off : parse_direct(direct));
  // A page rounded to sectors at both ends must fit one read.
  const tiering::EngineOptions options{
      .depth = depth, .max_read = static_cast<uint32_t>(std::max(kMaxRead, page_bytes + 2 * kSector))};
  return std::make_unique<tiering::SsdReader>(std::move(images), options, engine);
}

std::string fallback_of(tiering::SsdReader& reader) {
  nb::gil_scoped_release release;
  const std::lock_guard turn(reader.turn);
  return reader.fallback();
}

/// A tiered table together with the arrays and the reader it points to.
struct BoundTable {
  tiering::TieredTable table;
  std::optional<Bytes> gpu;
  std::vector<Bytes> peers;
  std::optional<Bytes> cpu;
  nb::object reader;
  std::vector<Checksums> checksums;
};

void expect_bytes(const std::optional<Bytes>& array, int64_t rows, int64_t row_bytes, const char* what) {
  const auto found = array ? static_cast<int64_t>(array->size()) : 0;
  TIERING_EXPECT(found >= rows * row_bytes,
                 std::string(what) + ": expected " + std::to_string(rows * row_bytes) + " bytes (" +
                     std::to_string(rows) + " rows of " + std::to_string(row_bytes) + "), found " +
                     std::to_string(found));
}

const std::byte* address(const std::optional<Bytes>& array) {
  return array ? reinterpret_cast<const std::byte*>(array->data()) : nullptr;
}

/// Every page of the table has a checksum, where there are any.
void expect_checksums(const tiering::TieredTable& table) {
  const int64_t rows = table.ranges.num_rows - table.ranges.cpu_end;
  if (table.checksums.empty() || rows == 0) return;
  const tiering::SsdGeometry& ssd = table.ssd;
  TIERING_EXPECT(static_cast<int64_t>(table.checksums.size()) == ssd.num_images,
                 "checksums: expected an array for each of " + std::to_string(ssd.num_images) +
                     " images, found " + std::to_string(table.checksums.size()));
  const int64_t pages = (ssd.address(rows - 1) + table.row_bytes - 1) / ssd.page_bytes + 1;
  for (int64_t page = std::max(pages - ssd.num_images, int64_t{0}); page < pages; ++page) {
    const auto found = static_cast<int64_t>(table.checksums[size_t(ssd.image_of(page))].size());
    TIERING_EXPECT(page / ssd.num_images < found, "checksums: expected one for page " +
                                                      std::to_string(page / ssd.num_images) + " of image " +
                                                      std::to_string(ssd.image_of(page)) + ", found " +
                                                      std::to_string(found));
  }
}

void init_table(BoundTable* self, int64_t row_bytes, const std::vector<int64_t>& ends,
                std::optional<Bytes> gpu, std::vector<Bytes> peers, std::optional<Bytes> cpu,
                tiering::SsdReader* reader, nb::object owner, const tiering::SsdGeometry& ssd,
                std::vector<Checksums> checksums) {
  TIERING_EXPECT(row_bytes >= 1, "row_bytes: expected at least 1, found " + std::to_string(row_bytes));
  TIERING_EXPECT(ends.size() == 4 && ends[0] >= 0 && std::is_sorted(ends.begin(), ends.end()),
                 "ends: expected four ascending ranks (gpu, peer, cpu, ssd)");
  tiering::TieredTable table;
  table.row_bytes = row_bytes;
  table.ranges = {ends[0], ends[1], ends[2], ends[3]};
  expect_bytes(gpu, ends[0], row_bytes, "gpu");
  expect_bytes(cpu, ends[2] - ends[1], row_bytes, "cpu");
  const int64_t peer_rows = ends[1] - ends[0], num_peers = static_cast<int64_t>(peers.size());
  TIERING_EXPECT(peer_rows == 0 || num_peers > 0, "peers: expected at least one array, found none");
  for (int64_t k = 0; k < num_peers; ++k)
    expect_bytes(peers[k], (peer_rows - k + num_peers - 1) / num_peers, row_bytes, "peers");
  if (ends[3] > ends[2]) {
    TIERING_EXPECT(reader != nullptr, "reader: expected one, because the ssd tier has rows");
    TIERING_EXPECT(ssd.first_page >= 0 && ssd.stride >= row_bytes && ssd.rows_per_page >= 0 &&
                       ssd.rows_per_page * ssd.stride <= ssd.page_bytes &&
                       ssd.num_images == static_cast<int64_t>(reader->images.images.size()),
                   "ssd rows: stride, rows per page and page size do not fit together");
  }
  table.memory.gpu = address(gpu);
  table.memory.cpu = address(cpu);
  for (const auto& peer : peers) table.memory.peers.push_back(address(peer));
  table.ssd = ssd;
  table.reader = reader;
  for (const auto& each : checksums) table.checksums.emplace_back(each.data(), each.size());
  expect_checksums(table);
  new (self) BoundTable{std::move(table), std::move(gpu),   std::move(peers),
                        std::move(cpu),   std::move(owner), std::move(checksums)};
}

tiering::GatherStats gather(const BoundTable& self, const Ids& ids, const Rows& out, int threads) {
  TIERING_EXPECT(threads >= 1, "threads: expected at least 1, found " + std::to_string(threads));
  TIERING_EXPECT(out.shape(0) == ids.shape(0) && static_cast<int64_t>(out.shape(1)) == self.table.row_bytes,
                 "out: expected shape (" + std::to_string(ids.shape(0)) + ", " +
                     std::to_string(self.table.row_bytes) + ") in bytes, found (" +
                     std::to_string(out.shape(0)) + ", " + std::to_string(out.shape(1)) + ")");
  const std::span<const int64_t> wanted(ids.data(), ids.shape(0));
  auto* target = reinterpret_cast<std::byte*>(out.data());
  nb::gil_scoped_release release;
  return tiering::gather(self.table, wanted, target, threads);
}

using Buffer = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Wanted = std::vector<std::array<int64_t, 5>>;  ///< ranges: file, offset, bytes, buffer, place in it

/// A reader together with the buffers that it reads into.
struct BoundStream {
  std::vector<Buffer> buffers;
  tiering::StreamReader reader;
  bool registered = false;
  Wanted started;

  BoundStream(const std::vector<std::string>& paths, std::vector<Buffer> into, const std::string& engine,
              const std::string& direct)
      : buffers(std::move(into)), reader(paths, engine, parse_direct(direct)) {
    std::vector<std::span<std::byte>> memory;
    for (const auto& buffer : buffers) memory.push_back(bytes(buffer));
    registered = reader.register_buffers(memory);
  }

  static std::span<std::byte> bytes(const Buffer& buffer) {
    return {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()};
  }

  void start(const Wanted& wanted) {
    std::vector<tiering::StreamRange> ranges;
    for (const auto& [file, offset, size, buffer, place] : wanted) {
      TIERING_EXPECT(buffer >= 0 && buffer < static_cast<int64_t>(buffers.size()),
                     "no buffer has the number " + std::to_string(buffer));
      auto memory = bytes(buffers[static_cast<size_t>(buffer)]);
      TIERING_EXPECT(place >= 0 && place <= static_cast<int64_t>(memory.size()) &&
                         place % tiering::StreamReader::kAlignment == 0,
                     "a range begins at a multiple of 4096 within its buffer");
      memory = memory.subspan(static_cast<size_t>(place));
      ranges.push_back(
          {static_cast<uint32_t>(file), offset, size, memory.data(), static_cast<int64_t>(memory.size())});
    }
    reader.start(ranges);
    started = wanted;
  }

  std::vector<int64_t> finish() {
    const auto begins = reader.finish();
    std::vector<int64_t> places;
    for (size_t i = 0; i < begins.size(); ++i)
      places.push_back(begins[i] - bytes(buffers[static_cast<size_t>(started[i][3])]).data());
    return places;
  }
};

template <size_t N>
std::vector<int64_t> listed(const std::array<int64_t, N>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void bind_io(nb::module_& m) {
  m.attr("ALIGNMENT") = kSector;
  m.attr("DEFAULT_DEPTH") = tiering::EngineOptions{}.depth;
  m.def("uring_unavailable", &tiering::uring_unavailable, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<tiering::SsdReader>(m, "SsdReader")
      .def(nb::new_(&open_reader), "paths"_a, "page_bytes"_a, "engine"_a, "depth"_a, "direct"_a = "auto",
           nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("engine", [](const tiering::SsdReader& r) { return std::string(r.engine_name()); })
      .def_prop_ro("fallback", &fallback_of)
      .def_prop_ro("depth", [](const tiering::SsdReader& r) { return r.options.depth; })
      .def_prop_ro("direct", [](const tiering::SsdReader& r) { return r.images.direct(); })
      .def_prop_ro("note", [](const tiering::SsdReader& r) { return r.images.note(); })
      .def_prop_ro("offset_alignment", [](const tiering::SsdReader& r) { return r.images.offset_alignment; })
      .def_prop_ro("memory_alignment", [](const tiering::SsdReader& r) { return r.images.memory_alignment; });

  nb::class_<BoundStream>(m, "StreamReader")
      .def(nb::init<const std::vector<std::string>&, std::vector<Buffer>, const std::string&,
                    const std::string&>(),
           "paths"_a, "buffers"_a, "engine"_a, "direct"_a = "auto")
      .def("start", &BoundStream::start, "ranges"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("finish", &BoundStream::finish, nb::call_guard<nb::gil_scoped_release>())
      .def_ro("registered", &BoundStream::registered)
      .def_prop_ro("engine", [](const BoundStream& s) { return std::string(s.reader.engine()); })
      .def_prop_ro("direct", [](const BoundStream& s) { return s.reader.files().direct(); })
      .def_prop_ro("note", [](const BoundStream& s) { return s.reader.files().note(); });

  nb::class_<tiering::GatherStats>(m, "GatherStats")
      .def_prop_ro("rows", [](const tiering::GatherStats& s) { return listed(s.rows); })
      .def_prop_ro("bytes", [](const tiering::GatherStats& s) { return listed(s.bytes); })
      .def_prop_ro("nanoseconds", [](const tiering::GatherStats& s) { return listed(s.nanoseconds); })
      .def_ro("reads", &tiering::GatherStats::reads)
      .def_ro("read_bytes", &tiering::GatherStats::read_bytes)
      .def_ro("direct_reads", &tiering::GatherStats::direct_reads)
      .def_ro("bad_page", &tiering::GatherStats::bad_page)
      .def_ro("fallback", &tiering::GatherStats::fallback);

  nb::class_<BoundTable>(m, "TieredTable")
      .def(
          "__init__",
          [](BoundTable* self, int64_t row_bytes, const std::vector<int64_t>& ends, std::optional<Bytes> gpu,
             std::vector<Bytes> peers, std::optional<Bytes> cpu, nb::object reader, int64_t first_page,
             int64_t stride, int64_t rows_per_page, int64_t page_bytes, std::vector<Checksums> checksums) {
            auto* ssd = reader.is_none() ? nullptr : nb::cast<tiering::SsdReader*>(reader);
            const int64_t images = ssd == nullptr ? 1 : static_cast<int64_t>(ssd->images.images.size());
            init_table(self, row_bytes, ends, std::move(gpu), std::move(peers), std::move(cpu), ssd,
                       std::move(reader), {first_page, stride, rows_per_page, page_bytes, images},
                       std::move(checksums));
          },
          "row_bytes"_a, "ends"_a, "gpu"_a.none(), "peers"_a, "cpu"_a.none(), "reader"_a.none(),
          "first_page"_a = 0, "stride"_a = 0, "rows_per_page"_a = 0, "page_bytes"_a = 0,
          "checksums"_a = std::vector<Checksums>())
      .def("gather", &gather, "ids"_a, "out"_a, "threads"_a = 1);
}
