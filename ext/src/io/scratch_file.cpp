#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <tiering/io/scratch_file.hpp>

namespace tiering {
namespace {

/// A file that has no name, or loses it at once where the file system wants one.
int open_nameless(const std::string& folder, int flags) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = folder + "/.scratch-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) unlink(name.c_str());
  return named;
}

[[noreturn]] void disk_full(const std::string& folder, int64_t needed) {
  struct statvfs disk{};
  statvfs(folder.c_str(), &disk);
  const auto free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  throw IoError(ENOSPC, folder + ": no space left for a scratch file: " + std::to_string(needed) + " bytes needed, " +
                            std::to_string(free) + " free");
}

}  // namespace

ScratchFile::ScratchFile(const std::string& folder, int64_t bytes)
    : folder_(folder), fd_(open_nameless(folder, O_DIRECT)) {
  if (fd_.get() < 0 && errno == EINVAL) {
    direct_ = false;
    fd_ = Descriptor(open_nameless(folder, 0));
  }
  if (fd_.get() < 0) throw system_error(errno, folder);
  if (bytes == 0 || fallocate(fd_.get(), 0, 0, bytes) == 0) return;
  int code = errno;
  if (code == EOPNOTSUPP) {
    if (ftruncate(fd_.get(), bytes) == 0) return;  // a full disk shows when it is written
    code = errno;
  }
  fd_ = Descriptor();
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) disk_full(folder, bytes);
  throw system_error(code, folder);
}

ImageSet ScratchFile::to_read() const {
  return ImageSet::of(ImageFile(folder_ + ": scratch file", fd_.get(), direct_ ? kScratchAlignment : 1));
}

void ScratchFile::write(int64_t offset, int64_t bytes, const void* from) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t moved =
        pwrite(fd_.get(), static_cast<const char*>(from) + done, static_cast<size_t>(bytes - done), offset + done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == ENOSPC) disk_full(folder_, bytes);
    if (moved <= 0) throw system_error(moved < 0 ? errno : EIO, folder_);
    done += moved;
  }
}

WriteBehind::WriteBehind(const ScratchFile& file, int64_t buffer_bytes, int64_t num_buffers, int threads)
    : file_(file), buffer_bytes_(buffer_bytes), memory_(static_cast<size_t>(buffer_bytes * num_buffers)) {
  for (int64_t i = num_buffers; i-- > 0;) free_.push_back(memory_.data() + i * buffer_bytes);
  for (int t = 0; t < threads; ++t) workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

std::byte* WriteBehind::take() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return error_ || !free_.empty(); });
  if (error_) std::rethrow_exception(error_);
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void WriteBehind::write(std::byte* buffer, int64_t offset, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({buffer, offset, bytes});
    ++under_way_;
  }
  wanted_.notify_one();
}

void WriteBehind::work(const std::stop_token& stop) {
  for (std::unique_lock lock(mutex_);;) {
    wanted_.wait(lock, stop, [this] { return !tasks_.empty(); });
    if (stop.stop_requested()) return;
    const Task task = tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      file_.write(task.offset, task.bytes, task.buffer);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (!error_) error_ = error;
    free_.push_back(task.buffer);
    --under_way_;
    freed_.notify_all();
  }
}

void WriteBehind::finish() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return under_way_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

}  // namespace tiering
