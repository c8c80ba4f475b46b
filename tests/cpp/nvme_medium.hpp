// A medium for controllers in tests: it reads by pread or from memory, completes in any order, and does harm on demand.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <tiering/nvme/soft_controller.hpp>
#include <vector>

namespace tiering {

/// What happens to a read.
enum class Fate { arrives, lost, fails };

class TestMedium final : public ReadEngine {
 public:
  struct Harm {
    std::function<Fate(const Read&)> fate = [](const Read&) { return Fate::arrives; };
    std::function<void()> before_each = [] {};  ///< may wait: the controller's thread stalls
    bool shuffled = false;
    const std::byte* memory = nullptr;  ///< the image, where it is in memory
  };

  TestMedium(const ImageSet& images, std::shared_ptr<const Harm> harm) : images_(images), harm_(std::move(harm)) {}

  const char* name() const noexcept override { return "test"; }
  void start(std::span<const Read> reads, ReadSink& sink) override {
    waiting_.clear();
    next_ = 0;
    sink_ = &sink;
    take(reads);
  }
  void finish() override {
    std::optional<IoError> error;
    for (;;) {
      if (!error) take(sink_->more(waiting_.empty()));
      if (waiting_.empty()) break;
      const size_t i = harm_->shuffled ? random_() % waiting_.size() : 0;
      const auto [index, read] = waiting_[i];
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      harm_->before_each();
      const Fate fate = harm_->fate(read);
      if (fate == Fate::fails) error = IoError(EIO, "the medium failed");
      if (fate == Fate::arrives) deliver(index, read);
    }
    if (error) throw *error;
  }
  void abandon() noexcept override { waiting_.clear(); }

 private:
  void take(std::span<const Read> reads) {
    for (const Read& read : reads) waiting_.emplace_back(next_++, read);
  }
  void deliver(size_t index, const Read& read) {
    if (harm_->memory != nullptr) {
      std::memcpy(read.into, harm_->memory + read.offset, read.need);
    } else if (pread(images_.images[0].fd(), read.into, read.need, read.offset) != static_cast<ssize_t>(read.need)) {
      throw IoError(EIO, "the image is too short");
    }
    sink_->ready(index, read.into);
  }

  const ImageSet& images_;
  std::shared_ptr<const Harm> harm_;
  std::mt19937 random_{7};
  std::vector<std::pair<size_t, Read>> waiting_;
  size_t next_ = 0;
  ReadSink* sink_ = nullptr;
};

inline nvme::MediumMaker harmful(const TestMedium::Harm& harm) {
  auto shared = std::make_shared<const TestMedium::Harm>(harm);
  return [shared](const ImageSet& images) { return std::make_unique<TestMedium>(images, shared); };
}

/// Somebody waits until the gate is opened.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

/// A file without a name whose 8-byte words are numbers, from 0 on.
class NumberedFile {
 public:
  explicit NumberedFile(int64_t bytes) : words_(static_cast<size_t>((bytes + 7) / 8)) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] = i;
    fd_ = memfd_create("image", MFD_CLOEXEC);
    if (pwrite(fd_, words_.data(), static_cast<size_t>(bytes), 0) != bytes) std::abort();
  }
  ~NumberedFile() { close(fd_); }
  NumberedFile(const NumberedFile&) = delete;
  NumberedFile& operator=(const NumberedFile&) = delete;
  ImageFile image(int64_t alignment = 1) const { return ImageFile("image", fd_, alignment); }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(words_.data()); }
  int fd() const { return fd_; }

 private:
  std::vector<uint64_t> words_;
  int fd_;
};

}  // namespace tiering
