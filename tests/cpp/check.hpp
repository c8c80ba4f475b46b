// Checks for the C++ tests: the first that fails prints where and what, and ends the program.
#pragma once

#include <cstdlib>
#include <iostream>
#include <tiering/errors.hpp>
#include <utility>

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::cerr << __FILE__ << ":" << __LINE__ << ": failed: " #condition << "\n"; \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

/// Checks that f() throws an `Error` and that the message contains `words`.
template <typename Error, typename F>
void check_throws(const std::string& words, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (std::string(error.what()).find(words) != std::string::npos) return;
    std::cerr << "expected a message with \"" << words << "\", found \"" << error.what() << "\"\n";
    std::exit(1);
  }
  std::cerr << "expected an error with \"" << words << "\", found none\n";
  std::exit(1);
}

template <typename F>
void check_refused(const std::string& words, F&& f) {
  check_throws<tiering::InputError>(words, std::forward<F>(f));
}
