#include <exception>
#include <system_error>
#include <thread>
#include <tiering/parallel.hpp>
#include <vector>

namespace tiering {

void run_team(int threads, TeamBody body) {
  if (threads <= 1) {
    body(0);
    return;
  }
  std::vector<std::exception_ptr> errors(static_cast<size_t>(threads));
  auto guarded = [&](int t) {
    try {
      body(t);
    } catch (...) {
      errors[static_cast<size_t>(t)] = std::current_exception();
    }
  };
  std::vector<std::thread> team;
  team.reserve(static_cast<size_t>(threads - 1));
  int started = 1;
  try {
    for (; started < threads; ++started) team.emplace_back(guarded, started);
  } catch (const std::system_error&) {
  }
  guarded(0);
  for (int t = started; t < threads; ++t) guarded(t);
  for (auto& worker : team) worker.join();
  for (auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace tiering
