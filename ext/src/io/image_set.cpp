// Opening and mapping images, and finding out which alignment direct reads need.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tiering/io/read_engine.hpp>

namespace tiering {
namespace {

struct DirectAlignment {
  uint32_t memory = 0;
  uint32_t offset = 0;
};

/// Asks the kernel (6.1 and later) for the alignment of direct I/O; zeros when it does not know. The two fields are
/// read at their offsets in the kernel's ABI because the C library's headers may be older than the kernel.
DirectAlignment statx_alignment(int fd) {
  constexpr unsigned kDioAlign = 0x2000U;  // STATX_DIOALIGN
  constexpr size_t kMaskAt = 0, kMemoryAt = 0x98, kOffsetAt = 0x9C, kStatxBytes = 256;
  DirectAlignment found;
#ifdef SYS_statx
  alignas(8) std::array<unsigned char, kStatxBytes> raw{};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kDioAlign, raw.data()) != 0) return found;
  uint32_t mask = 0;
  std::memcpy(&mask, raw.data() + kMaskAt, sizeof mask);
  if ((mask & kDioAlign) == 0) return found;
  std::memcpy(&found.memory, raw.data() + kMemoryAt, sizeof found.memory);
  std::memcpy(&found.offset, raw.data() + kOffsetAt, sizeof found.offset);
#endif
  return found;
}

/// True when a direct read of `size` bytes works; false on EINVAL. Other errors throw.
bool probe_read(const ImageFile& file, int64_t size) {
  const AlignedBuffer buffer(static_cast<size_t>(size));
  for (;;) {
    const ssize_t got = pread(file.fd(), buffer.data(), static_cast<size_t>(size), 0);
    if (got >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EINVAL) return false;
    throw system_error(errno, file.path() + ": reading " + std::to_string(size) + " bytes at byte 0");
  }
}

int64_t file_bytes(int fd, const std::string& path) {
  struct stat status{};
  if (fstat(fd, &status) != 0) throw system_error(errno, path);
  if (S_ISREG(status.st_mode)) return status.st_size;
  const off_t end = S_ISBLK(status.st_mode) ? lseek(fd, 0, SEEK_END) : -1;
  if (end < 0) throw IoError(EINVAL, path + ": not a file or block device that can be read at random");
  return end;
}

std::string own_name(const std::string& path) {
  std::error_code unknown;
  if (!path.starts_with("/proc/self/fd/")) return path;
  const auto target = std::filesystem::read_symlink(path, unknown);
  return unknown ? path : target.string();
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

ImageFile::ImageFile(const std::string& path, DirectMode mode) : path_(own_name(path)) {
  if (mode != DirectMode::off && try_direct(path)) return;
  if (mode == DirectMode::on) throw IoError(EINVAL, path_ + ": " + note_);
  open_buffered(path);
}

ImageFile::ImageFile(std::string name, int fd, int64_t alignment)
    : path_(std::move(name)),
      fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)),
      direct_(alignment > 1),
      offset_alignment_(alignment),
      memory_alignment_(alignment) {
  if (fd_.get() < 0) throw system_error(errno, path_);
  file_bytes(fd_.get(), path_);  // throws where reads at random are none
}

int64_t ImageFile::bytes() const { return file_bytes(fd(), path_); }

bool ImageFile::try_direct(const std::string& path) {
  fd_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (fd() < 0) {
    if (errno != EINVAL) throw system_error(errno, path_);
    note_ = "the file system refuses O_DIRECT";
    return false;
  }
  file_bytes(fd(), path_);  // throws where reads at random are none
  const DirectAlignment known = statx_alignment(fd());
  for (const int64_t candidate : {static_cast<int64_t>(known.offset), int64_t{512}, int64_t{4096}}) {
    if (candidate == 0 || !probe_read(*this, candidate)) continue;
    direct_ = true;
    offset_alignment_ = candidate;
    memory_alignment_ = known.offset == candidate && known.memory != 0 ? known.memory : candidate;
    return true;
  }
  note_ = "direct reads are refused at 512 and 4096 byte alignment";
  fd_ = Descriptor();
  return false;
}

void ImageFile::open_buffered(const std::string& path) {
  fd_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd() < 0) throw system_error(errno, path_);
  file_bytes(fd(), path_);                       // throws where reads at random are none
  posix_fadvise(fd(), 0, 0, POSIX_FADV_RANDOM);  // only a hint: rows are read at random, read-ahead is waste
}

ImageSet ImageSet::open(const std::vector<std::string>& paths, DirectMode mode) {
  ImageSet set;
  set.images.reserve(paths.size());
  for (const auto& path : paths) set.add(ImageFile(path, mode));
  return set;
}

ImageSet ImageSet::of(ImageFile image) {
  ImageSet set;
  set.add(std::move(image));
  return set;
}

void ImageSet::add(ImageFile image) {
  offset_alignment = std::max(offset_alignment, image.offset_alignment());
  memory_alignment = std::max(memory_alignment, image.memory_alignment());
  images.push_back(std::move(image));
}

bool ImageSet::direct() const noexcept {
  return std::all_of(images.begin(), images.end(), [](const ImageFile& image) { return image.direct(); });
}

std::string ImageSet::note() const {
  for (const auto& image : images)
    if (!image.note().empty()) return image.path() + ": " + image.note();
  return {};
}

MappedImage::MappedImage(const ImageFile& image)
    : fd_(::open(("/proc/self/fd/" + std::to_string(image.fd())).c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat status{};
  if (fd_.get() < 0 || fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return;
  const std::string path = "/proc/self/fd/" + std::to_string(fd_.get());
  if (status.st_uid != geteuid() && faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return;
  void* const mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) return;
  bytes_ = status.st_size;
  begin_ = static_cast<const std::byte*>(mapped);
  madvise(mapped, static_cast<size_t>(bytes_), MADV_RANDOM);
}

MappedImage::MappedImage(MappedImage&& other) noexcept
    : fd_(std::move(other.fd_)), bytes_(other.bytes_), begin_(std::exchange(other.begin_, nullptr)) {}

MappedImage::~MappedImage() {
  if (begin_ != nullptr) munmap(const_cast<std::byte*>(begin_), static_cast<size_t>(bytes_));
}

bool MappedImage::covers(int64_t bytes) const noexcept {
  struct stat status{};
  return begin_ != nullptr && bytes <= bytes_ && fstat(fd_.get(), &status) == 0 && bytes <= status.st_size;
}

bool MappedImage::cached(int64_t offset) const noexcept {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  unsigned char resident = 0;
  auto* const at = const_cast<std::byte*>(begin_) + offset / page * page;
  return mincore(at, 1, &resident) == 0 && (resident & 1) != 0;
}

bool MappedImage::cached() const noexcept {
  constexpr int64_t kSamples = 256, kLeastStep = 4096;
  int64_t tried = 0, missing = 0;
  for (int64_t at = 0; at < bytes_; at += std::max(kLeastStep, bytes_ / kSamples), ++tried) missing += !cached(at);
  return tried > 0 && missing * kSamplesPerMiss <= tried;
}

}  // namespace tiering
