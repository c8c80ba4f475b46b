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

}  // namespace tiering
