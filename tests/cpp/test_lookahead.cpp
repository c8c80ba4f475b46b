// Look-ahead: rows put together from reads. tests/native compares rounds with those of a plain rule, and looks for the
// rows of batches in their slots.
#include "check.hpp"
#include "ssd_tables.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

/// Reads of all images together bring each row whole, keep to the rules, and come in page order, however few rows may
/// be read at a time.
void test_reads() {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const SsdRows rows = random_rows(random);
    const Disk disk(rows, seed);
    Batch list = random_batch(random, rows, 60);
    std::sort(list.begin(), list.end());
    const int64_t page_bytes = rows.tables().front().geometry.page_bytes;
    const ReadRules rules{.align = random() % 2 ? 512 : 4096,
                          .unit = random() % 2 ? 1 : page_bytes,
                          .gap = below(random, 3) * 5000,
                          .max_read = 16384};
    std::vector<Bytes> found;
    for (const uint32_t row : list) found.emplace_back(disk.truth[row].size());
    for (uint32_t image = 0; image < disk.image.size(); ++image) {
      RowReads reads(rows, image, rules);
      const Bytes& bytes = disk.image[image];
      RowRead read;
      size_t at = 0, limit = 0;
      int64_t last = -1;
      while (limit < list.size()) {
        limit += 1 + static_cast<size_t>(below(random, static_cast<int64_t>(list.size() - limit)));
        while (reads.next(list, at, limit, read)) {
          const Read& one = read.read;
          CHECK(one.image == image && one.offset % rules.align == 0 && one.bytes % rules.align == 0);
          CHECK(one.offset % rules.unit == 0 && one.need % rules.unit == 0 && one.need <= one.bytes);
          CHECK(one.bytes <= 16384 && one.offset + one.need <= static_cast<int64_t>(bytes.size()));
          CHECK(one.offset >= last && read.begin < read.end && read.end <= limit && at == read.end);
          last = one.offset;
          for (size_t i = read.begin; i < read.end; ++i)
            reads.copy(list[i], one.offset, std::span(bytes).subspan(size_t(one.offset), one.need), found[i].data());
        }
        CHECK(at == limit);
      }
    }
    for (size_t i = 0; i < list.size(); ++i) CHECK(found[i] == disk.truth[list[i]]);
  }
}

}  // namespace

int main() {
  test_reads();
  std::cout << "test_lookahead: ok\n";
  return 0;
}
