#include <tiering/io/gather.hpp>
#include <utility>

namespace tiering {

SsdReader::SsdReader(ImageSet opened, const EngineOptions& given, const std::string& engine)
    : images(std::move(opened)), options(given), automatic_(engine == "auto") {
  if (automatic_) fallback_ = uring_unavailable();
  const char* const best = fallback_.empty() ? "io_uring" : "threads";
  try {
    engine_ = make_engine(automatic_ ? best : engine, images, options);
    name_ = engine_->name();
  } catch (const RingError& error) {
    fall_back(error);
  }
}

void SsdReader::fall_back(const RingError& error) {
  if (!automatic_) throw error;
  fallback_ = error.what();
  engine_ = make_threads_engine(images, options);
  name_ = engine_->name();
}

}  // namespace tiering
