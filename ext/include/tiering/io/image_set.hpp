// The SSD images of a layout, opened for random reads: direct (O_DIRECT) where the file system allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tiering {

/// Whether reads bypass the page cache. automatic: direct where it works, else buffered and `note` says why.
enum class DirectMode { automatic, on, off };

/// A file descriptor with one owner, or -1.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// One open image.
class ImageFile {
 public:
  /// `path` may be that of a descriptor, /proc/self/fd/N; messages then call the file by its own name.
  ImageFile(const std::string& path, DirectMode mode);
  /// A file that is open already and is known by `name`; keeps a descriptor of its own. `alignment` is that of its
  /// direct reads, or 1.
  ImageFile(std::string name, int fd, int64_t alignment);

  const std::string& path() const noexcept { return path_; }
  int fd() const noexcept { return fd_.get(); }
  /// Its size at present.
  int64_t bytes() const;
  bool direct() const noexcept { return direct_; }
  /// Offsets and lengths of reads must be multiples of this; 1 when buffered.
  int64_t offset_alignment() const noexcept { return offset_alignment_; }
  /// Addresses of read targets must be multiples of this; 1 when buffered.
  int64_t memory_alignment() const noexcept { return memory_alignment_; }
  /// Why reads are buffered although direct ones were wanted; empty otherwise.
  const std::string& note() const noexcept { return note_; }

 private:
  bool try_direct(const std::string& path);
  void open_buffered(const std::string& path);

  std::string path_;
  Descriptor fd_;
  bool direct_ = false;
  int64_t offset_alignment_ = 1;
  int64_t memory_alignment_ = 1;
  std::string note_;
};

/// Images that are read together; alignments are the strictest of them.
struct ImageSet {
  std::vector<ImageFile> images;
  int64_t offset_alignment = 1;
  int64_t memory_alignment = 1;

  static ImageSet open(const std::vector<std::string>& paths, DirectMode mode);
  static ImageSet of(ImageFile image);
  void add(ImageFile image);
  /// True when every image is read with O_DIRECT.
  bool direct() const noexcept;
  /// The first reason for buffered reads; empty when there is none.
  std::string note() const;
};

/// A file mapped for reading, of which one can tell what the page cache has; empty where one cannot, because the file is
/// not mapped, or belongs to somebody else and cannot be written (mincore(2) then says yes to everything).
class MappedImage {
 public:
  explicit MappedImage(const ImageFile& image);
  MappedImage(MappedImage&& other) noexcept;
  MappedImage& operator=(MappedImage&&) = delete;
  ~MappedImage();
  const std::byte* begin() const noexcept { return begin_; }
  /// Whether all of `bytes` from the begin on are mapped and, unless the file was cut since, in it.
  bool covers(int64_t bytes) const noexcept;
  /// Whether the page cache has a byte; reads nothing.
  bool cached(int64_t offset) const noexcept;
  /// Whether it has nearly all of the file, by a sample of its pages.
  bool cached() const noexcept;

  /// Of so many samples one may be missing.
  static constexpr int64_t kSamplesPerMiss = 32;

 private:
  Descriptor fd_;
  int64_t bytes_ = 0;
  const std::byte* begin_ = nullptr;
};

}  // namespace tiering
