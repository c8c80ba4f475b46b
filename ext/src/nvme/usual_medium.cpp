// What controllers read images with, outside tests.
#include <tiering/nvme/soft_controller.hpp>

namespace tiering::nvme {
namespace {

/// io_uring as long as the kernel lets it.
class UsualMedium final : public ReadEngine {
 public:
  UsualMedium(const ImageSet& images, const EngineOptions& options) : images_(images), options_(options) {
    try {
      engine_ = make_uring_engine(images, options);
    } catch (const RingError&) {
      engine_ = make_threads_engine(images, options);
    }
  }
  const char* name() const noexcept override { return engine_->name(); }
  void poll() noexcept override { engine_->poll(); }
  bool polls() const noexcept override { return engine_->polls(); }
  void start(std::span<const Read> reads, ReadSink& sink) override {
    if (refused_) engine_ = make_threads_engine(images_, options_);
    refused_ = false;
    engine_->start(reads, sink);
  }
  void finish() override {
    try {
      engine_->finish();
    } catch (const RingError&) {
      refused_ = true;
      throw;
    }
  }
  void abandon() noexcept override { engine_->abandon(); }

 private:
  const ImageSet& images_;
  EngineOptions options_;
  std::unique_ptr<ReadEngine> engine_;
  bool refused_ = false;
};

}  // namespace

MediumMaker usual_medium(int depth, uint32_t max_read) {
  return [=](const ImageSet& images) {
    return std::make_unique<UsualMedium>(images, EngineOptions{.depth = depth, .max_read = max_read});
  };
}

}  // namespace tiering::nvme
