// Random small graphs, most of them damaged, given to every kernel that reads adjacency: each ends or throws InputError,
// whole sweeps refuse exactly what is not sound, and the sanitizers see nothing else.
//
// TIERING_FUZZ_SECONDS  how long, 16 unless set: some 200 trials, which reach every line that 600 do; 0 for one trial
// TIERING_FUZZ_SEED     where to begin; trial k is trial 0 of seed + k
#include <sanitizer/common_interface_defs.h>

#include "samplers.hpp"
#include "sweeps.hpp"
#ifdef TIERING_SIMULATED
#include "device_sampler.hpp"
#endif

using namespace tiering;
using namespace tiering::test;

extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

namespace {

Referee referee;

void run_trial(uint64_t seed) {
  referee.begin(seed);
  Luck luck(seed);
  const DamagedGraph before = random_graph(luck);
  DamagedGraph marred = before;
  if (!luck.once_in(4)) damage(marred, luck);
  const DamagedGraph graph = marred;  // a copy: its vectors have no spare room
  const int threads = 1 + static_cast<int>(luck.below(2));
  for (size_t r = 0; r < graph.relations.size(); ++r) {
    sweep_relation(referee, graph, graph.relations[r], threads);
    build_by_buckets(referee, graph, graph.relations[r], threads);
    relabel_in_windows(referee, before, graph, r, threads, luck);
  }
  order_nodes(referee, graph, threads);
  score(referee, graph, threads, luck);
  for (const Rule rule : {Rule::uniform, Rule::replacement, Rule::weighted, Rule::pinsage, Rule::ladies})
    sample(referee, graph, rule, threads, luck);
#ifdef TIERING_SIMULATED
  sample_on_device(referee, graph, luck);
#endif
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

int main() {
  const uint64_t seconds = number_from("TIERING_FUZZ_SECONDS", 16);
  uint64_t seed = number_from("TIERING_FUZZ_SEED", std::random_device()());
  std::cout << "seed " << seed << std::endl;
  __sanitizer_set_death_callback([] { referee.say_seed(); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  do run_trial(seed++);
  while (std::chrono::steady_clock::now() < end);
  referee.summarize("damaged adjacency in the core");
  return 0;
}
