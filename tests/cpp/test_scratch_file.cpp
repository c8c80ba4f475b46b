// Scratch files: what is written behind is what is read back, errors reach the caller, streams see every entry.
#include <cerrno>
#include <cstdio>
#include <numeric>
#include <tiering/io/stream.hpp>

#include "temp_dir.hpp"

using namespace tiering;
using tiering::test::TempDir;

namespace {

void test_written_behind_and_read_back() {
  const TempDir folder;
  const std::string where = folder.path();
  constexpr int64_t kBlock = 3 * kScratchAlignment, kBlocks = 200;
  {
    const ScratchFile file(where, kBlock * kBlocks);
    CHECK(std::filesystem::is_empty(where));
    WriteBehind behind(file, kBlock, 5, 3);
    for (int64_t b = 0; b < kBlocks; ++b) {
      std::byte* const buffer = behind.take();
      std::fill_n(buffer, kBlock, static_cast<std::byte>(b * 7));
      behind.write(buffer, (kBlocks - 1 - b) * kBlock, kBlock);
    }
    behind.finish();
    DoubleBuffer buffer(file.to_read(), 10 * kBlock);
    buffer.request(0, 10 * kBlock);
    for (int64_t part = 0; part < kBlocks / 10; ++part) {
      const std::byte* const read = buffer.take();
      if (part + 1 < kBlocks / 10) buffer.request((part + 1) * 10 * kBlock, 10 * kBlock);
      for (int64_t i = 0; i < 10 * kBlock; i += 1111)
        CHECK(read[i] == static_cast<std::byte>((kBlocks - 1 - part * 10 - i / kBlock) * 7));
    }
  }
  CHECK(std::filesystem::is_empty(where));
}

template <typename F>
int code_of(F&& f) {
  try {
    f();
  } catch (const IoError& error) {
    return error.code();
  }
  return 0;
}

void test_errors() {
  const TempDir folder;
  const std::string where = folder.path();
  CHECK(code_of([&] { ScratchFile("/tmp/there-is-no-such-folder", 1); }) == ENOENT);
  {
    const ScratchFile file(where, kScratchAlignment);
    CHECK(code_of([&] {
            DoubleBuffer buffer(file.to_read(), 1 << 20);
            buffer.request(int64_t{1} << 30, 1 << 20);  // behind the end
            buffer.take();
          }) == EIO);
    CHECK(code_of([&] {
            WriteBehind behind(file, kScratchAlignment, 2, 2);
            behind.write(behind.take(), -kScratchAlignment, kScratchAlignment);
            behind.finish();
          }) == EINVAL);
  }
  CHECK(code_of([&] { ScratchFile(where, int64_t{1} << 60); }) != 0);
  CHECK(std::filesystem::is_empty(where));
}

/// Every entry of any range comes once and in order, from the file as from memory.
template <typename T>
void test_stream() {
  const TempDir folder;
  const std::string name = folder.path() / "values";
  std::vector<T> values(3 * kStepBytes / sizeof(T) + 77);
  std::iota(values.begin(), values.end(), T{5});
  std::FILE* const out = std::fopen(name.c_str(), "wb");
  CHECK(std::fwrite(values.data(), sizeof(T), values.size(), out) == values.size());
  CHECK(std::fclose(out) == 0);
  const auto size = static_cast<int64_t>(values.size());
  const bool direct = ImageFile(name, DirectMode::automatic).direct();
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, size},
                                                                           {1, size - 1},
                                                                           {700001, 700002},
                                                                           {size - 5, size},
                                                                           {0, 0},
                                                                           {1100000, std::min<int64_t>(size, 2200000)}})
    for (const std::string& source : {direct ? name : std::string(), std::string()}) {
      int64_t at = begin, past = -1;  // the byte behind what was seen of the file
      const DirectFile file{source, [&](int64_t offset, std::span<const std::byte> bytes) {
                              CHECK(past < 0 ? offset <= begin * static_cast<int64_t>(sizeof(T)) : offset == past);
                              const auto* const written = reinterpret_cast<const std::byte*>(values.data());
                              CHECK(std::equal(bytes.begin(), bytes.end(), written + offset));
                              past = offset + static_cast<int64_t>(bytes.size());
                            }};
      for_steps(file, values.data(), begin, end, [&](const T* read, int64_t from, int64_t to) {
        CHECK(from == at && from < to);
        for (; at < to; ++at) CHECK(read[at] == values[static_cast<size_t>(at)]);
      });
      CHECK(at == end);
      const bool read = !source.empty() && begin < end;
      CHECK(past == (read ? end * static_cast<int64_t>(sizeof(T)) : -1));
    }
}

}  // namespace

int main() {
  test_written_behind_and_read_back();
  test_errors();
  test_stream<int32_t>();
  test_stream<int64_t>();
  std::cout << "test_scratch_file: ok\n";
  return 0;
}
