#include "edge_store.hpp"

#include <cstring>

namespace tiering {

constexpr int64_t kEdgeBytes = sizeof(BinnedEdge);

EdgeStore::EdgeStore(int64_t num_places, std::vector<DiskExtent> on_disk) : on_disk_(std::move(on_disk)) {
  before_.push_back(0);
  for (const DiskExtent& extent : on_disk_) before_.push_back(before_.back() + extent.end - extent.begin);
  edges_ = Buffer<BinnedEdge>(num_places - before_.back());
}

const DiskExtent* EdgeStore::extent_at(int64_t place) const {
  const auto found = std::partition_point(on_disk_.begin(), on_disk_.end(),
                                          [&](const DiskExtent& extent) { return extent.end <= place; });
  return found == on_disk_.end() ? nullptr : &*found;
}

/// Places on disk in front of a place in memory.
int64_t EdgeStore::disk_places(int64_t place) const {
  const DiskExtent* const next = extent_at(place);
  return next == nullptr ? before_.back() : before_[static_cast<size_t>(next - on_disk_.data())];
}

/// Turns a cursor to the place `at`, where its bucket goes on.
void EdgeSink::enter(Cursor& cursor, int64_t at) {
  if (cursor.staged != nullptr) flush(cursor, cursor.end);
  const DiskExtent* const extent = store_->extent_at(at);
  cursor.begin = at;
  if (extent == nullptr || at < extent->begin) {
    cursor.base = store_->memory(at);
    cursor.end = extent == nullptr ? std::numeric_limits<int64_t>::max() : extent->begin;
    return;
  }
  cursor.staged = behind_->take();
  cursor.base = reinterpret_cast<BinnedEdge*>(cursor.staged) - at;
  cursor.end = std::min(extent->end, at + behind_->buffer_bytes() / kEdgeBytes);
  cursor.offset = extent->offset + (at - extent->begin) * kEdgeBytes;
}

/// Sends what was staged up to the place `end` to disk.
void EdgeSink::flush(Cursor& cursor, int64_t end) {
  const int64_t used = (end - cursor.begin) * kEdgeBytes, bytes = scratch_aligned(used);
  std::memset(cursor.staged + used, 0, static_cast<size_t>(bytes - used));
  stream_fence();  // another thread writes it
  behind_->write(cursor.staged, cursor.offset, bytes);
  cursor.staged = nullptr;
}

void EdgeSink::finish(std::span<const int64_t> ends) {
  for (size_t b = 0; b < cursors_.size(); ++b)
    if (cursors_[b].staged != nullptr) flush(cursors_[b], ends[b]);
  stream_fence();
}

}  // namespace tiering
