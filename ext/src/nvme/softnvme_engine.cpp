#include <span>
#include <tiering/nvme/host_engine.hpp>
#include <tiering/nvme/softnvme_engine.hpp>
#include <utility>
#include <vector>

namespace tiering::nvme {
namespace {

ServedPairs serve_softly(const PairsRequest& asked, const MediumMaker& medium) {
  std::vector<QueuePair> pairs;
  for (const QueueMemory& where : asked.pairs) pairs.push_back(where.pair());
  std::vector<std::span<std::byte>> reachable;
  std::vector<std::shared_ptr<void>> owners;
  for (const HeldMemory& memory : asked.memory) {
    reachable.push_back(memory.bytes);
    owners.push_back(memory.owner);
  }
  auto controller =
      std::make_unique<SoftController>(asked.file, pairs, std::move(reachable), std::move(owners), medium);
  return {std::move(controller), std::move(pairs), {}, [](const Landing& landing, uint32_t place, uint32_t bytes) {
            return landing.prps(place, bytes);
          }};
}

}  // namespace

PairServer soft_server(const MediumMaker& medium) {
  return {"softnvme", false, [medium](const PairsRequest& asked) { return serve_softly(asked, medium); }};
}

PairServer usual_soft_server(const ImageSet&, const EngineOptions& options) {
  return soft_server(usual_medium(options.depth, options.max_read));
}

std::unique_ptr<ReadEngine> make_softnvme_engine(const ImageSet& images, const EngineOptions& options,
                                                 const MediumMaker& medium, std::chrono::nanoseconds patience) {
  return make_nvme_engine(soft_server(medium), images, options, patience);
}

}  // namespace tiering::nvme
