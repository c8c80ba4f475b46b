// Images that drives hold, as engines are told of them, and reads that are compared with them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tiering/io/read_engine.hpp>
#include <utility>
#include <vector>

#include "check.hpp"

/// Files of the images' sizes: of a file on a drive, only its size is looked at.
struct DriveImages {
  explicit DriveImages(std::vector<const std::vector<std::byte>*> contents) : contents(std::move(contents)) {
    for (const auto* image : this->contents) {
      const int file = memfd_create("image", MFD_CLOEXEC);
      CHECK(ftruncate(file, static_cast<off_t>(image->size())) == 0);
      set.add(tiering::ImageFile("image " + std::to_string(set.images.size()), file, 4096));
      close(file);
    }
  }

  std::vector<const std::vector<std::byte>*> contents;
  tiering::ImageSet set;
};

/// Checks that f() throws IoError with this code, and that the message contains `words`.
template <typename F>
void check_failed(int code, const std::string& words, F&& f) {
  try {
    f();
  } catch (const tiering::IoError& error) {
    if (error.code() == code && std::string(error.what()).find(words) != std::string::npos) return;
    std::cerr << "expected error " << code << " with \"" << words << "\", found " << error.code() << ", \""
              << error.what() << "\"\n";
    std::exit(1);
  }
  std::cerr << "expected an error with \"" << words << "\", found none\n";
  std::exit(1);
}

/// Reads of 1 to `most_pages` pages of two images in turn, or of one alone.
struct Comparison final : tiering::ReadSink {
  Comparison(const DriveImages& images, uint32_t count, uint32_t most_pages, int only = -1) : images(images) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t bytes = 4096 * (1 + i % most_pages);
      reads.push_back(
          {int64_t{i} * 7 % 248 * 4096, bytes, bytes, only < 0 ? i % 2 : static_cast<uint32_t>(only), nullptr});
    }
  }
  void ready(size_t index, const std::byte* data) noexcept override {
    const tiering::Read& read = reads[index];
    CHECK(std::memcmp(data, images.contents[read.image]->data() + read.offset, read.need) == 0);
    ++arrived;
  }

  const DriveImages& images;
  std::vector<tiering::Read> reads;
  size_t arrived = 0;
};
