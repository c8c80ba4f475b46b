// Streams: every range of several files, by every engine, with and without registered buffers.

#include <cstring>
#include <fstream>
#include <tiering/io/stream.hpp>

#include "temp_dir.hpp"

namespace fs = std::filesystem;
using namespace tiering;

namespace {

std::byte pattern(size_t file, int64_t at) { return static_cast<std::byte>((at * 31 + at / 4096 + file * 7) & 255); }

struct Files {
  Files() {
    for (size_t f = 0; f < 2; ++f) {
      std::vector<char> data(3'000'001 + f);
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(pattern(f, static_cast<int64_t>(i)));
      paths.push_back((folder.path() / std::to_string(f)).string());
      std::ofstream(paths.back(), std::ios::binary).write(data.data(), static_cast<std::streamsize>(data.size()));
    }
  }
  tiering::test::TempDir folder;
  std::vector<std::string> paths;
};

void test_ranges(const Files& files, const std::string& engine, DirectMode mode, bool registered) {
  AlignedBuffer first(4 << 20), second(4 << 20);
  StreamReader reader(files.paths, engine, mode);
  const std::span<std::byte> buffers[] = {{first.data(), 4 << 20}, {second.data(), 4 << 20}};
  if (registered) reader.register_buffers(buffers);
  const struct {
    int64_t offset, bytes;
  } ranges[] = {{0, 3'000'001}, {1, 3'000'000}, {4095, 2}, {4096, 4096}, {1'234'567, 1}, {2'999'999, 2}, {77, 0}};
  for (const auto& a : ranges)
    for (const auto& b : ranges) {
      const StreamRange wanted[] = {{0, a.offset, a.bytes, first.data(), 4 << 20},
                                    {1, b.offset, b.bytes, second.data(), 4 << 20}};
      reader.start(wanted);
      const auto begins = reader.finish();
      CHECK(begins.size() == 2);
      for (size_t f = 0; f < 2; ++f)
        for (int64_t i = 0; i < wanted[f].bytes; i += 97) CHECK(begins[f][i] == pattern(f, wanted[f].offset + i));
    }
}

void test_errors(const Files& files, const std::string& engine) {
  AlignedBuffer buffer(1 << 20);
  StreamReader reader(files.paths, engine, DirectMode::automatic);
  const StreamRange beyond[] = {{0, 2'990'000, 50'000, buffer.data(), 1 << 20}};
  reader.start(beyond);
  bool failed = false;
  try {
    reader.finish();
  } catch (const IoError&) {
    failed = true;
  }
  CHECK(failed);
  const StreamRange large[] = {{0, 0, 1 << 20, buffer.data(), 1 << 19}};
  check_refused("too small", [&] { reader.start(large); });
  const StreamRange fine[] = {{1, 0, 1000, buffer.data(), 1 << 20}};
  reader.start(fine);
  check_refused("already", [&] { reader.start(fine); });
  CHECK(reader.finish()[0][999] == pattern(1, 999));
  reader.start(fine);  // given up with a read under way
}

}  // namespace

int main() {
  const Files files;
  std::vector<std::string> engines{"threads"};
  if (uring_unavailable().empty()) engines.push_back("io_uring");
  for (const auto& engine : engines) {
    for (const auto mode : {DirectMode::automatic, DirectMode::off})
      for (const bool registered : {false, true}) test_ranges(files, engine, mode, registered);
    test_errors(files, engine);
  }
  std::cout << "test_stream: ok\n";
  return 0;
}
