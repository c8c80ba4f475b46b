// Runs what is under test and judges how it ended.
#pragma once

#include <cstdint>
#include <exception>
#include <iostream>
#include <tiering/errors.hpp>

namespace tiering::test {

/// What may be asked of a kernel: that it accepts, that it refuses, or either.
enum class Expected { result, refusal, either };

inline Expected exactly(bool sound) { return sound ? Expected::result : Expected::refusal; }
inline Expected at_least(bool sound) { return sound ? Expected::result : Expected::either; }

class Referee {
 public:
  void begin(uint64_t seed) {
    seed_ = seed;
    ++trials_;
  }
  uint64_t seed() const { return seed_; }

  /// Runs f, which ends or throws InputError. Whether it ended.
  template <typename F>
  bool run(const std::string& name, Expected expected, F&& f) {
    ++runs_;
    try {
      f();
    } catch (const InputError& error) {
      ++refused_;
      if (expected == Expected::result) fail(name + " refused what is sound: " + error.what());
      return false;
    } catch (const std::exception& error) {
      fail(name + ": expected a result or an InputError, found: " + error.what());
    }
    if (expected == Expected::refusal) fail(name + " accepted what is not sound");
    return true;
  }

  void require(bool good, const std::string& what) const {
    if (!good) fail(what);
  }

  /// Ends the program, saying how to come here again.
  [[noreturn]] void fail(const std::string& what) const {
    std::cerr << "wrong: " << what << "\n";
    say_seed();
    std::_Exit(1);
  }
  void say_seed() const { std::cerr << "again: TIERING_FUZZ_SEED=" << seed_ << " TIERING_FUZZ_SECONDS=0\n"; }

  void summarize(const std::string& name) const {
    std::cout << "campaign " << name << ": " << trials_ << " trials, " << runs_ << " runs, " << refused_
              << " refused, 0 wrong\n";
  }

 private:
  uint64_t seed_ = 0;
  int64_t trials_ = 0, runs_ = 0, refused_ = 0;
};

}  // namespace tiering::test
