// Errors of the core. The bindings turn them into Python exceptions of the same names:
// InputError -> RefusedError (its caller in Python adds path and remedy), IoError -> StorageError.
#pragma once

#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

namespace tiering {

/// A value in the caller's data that does not fit: carries what was found, where, and the bound.
class InputError : public std::runtime_error {
 public:
  /// The kind of input that the value belongs to, from which callers choose their advice.
  enum class Subject { argument, adjacency, weights };

  explicit InputError(const std::string& message, Subject subject = Subject::argument, int relation = kNoRelation)
      : std::runtime_error(message), subject_(subject), relation_(relation) {}
  Subject subject() const noexcept { return subject_; }
  /// Number of the relation that the value belongs to, among those given; kNoRelation where that is plain.
  int relation() const noexcept { return relation_; }

  static constexpr int kNoRelation = -1;

 private:
  Subject subject_;
  int relation_;
};

/// Throws InputError with a message of texts and numbers. By value: a loop keeps in registers what its refusal names.
template <typename... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void refuse_input(Parts... parts) {
  const auto text = [](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(part)>>)
      return std::to_string(part);
    else
      return std::string(part);
  };
  throw InputError((std::string() + ... + text(parts)));
}

/// For kernels that pass over values twice: what the first pass found is not what the second one finds.
[[noreturn, gnu::cold, gnu::noinline]] inline void changed_meanwhile() {
  throw InputError("an array or file changed while it was read; run again when nothing writes to it");
}

/// A system call that failed; `code` is errno.
class IoError : public std::runtime_error {
 public:
  IoError(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// The error of a system call on `what`.
inline IoError system_error(int code, const std::string& what) {
  return {code, what + ": " + std::generic_category().message(code)};
}

/// Runs f; what it refuses says first what it is about.
template <typename F>
decltype(auto) about(const std::string& what, F&& f) {
  try {
    return f();
  } catch (const InputError& error) {
    throw InputError(what + ": " + error.what(), error.subject(), error.relation());
  }
}

/// Runs f; what it refuses carries the number of the relation.
template <typename F>
decltype(auto) about_relation(size_t number, F&& f) {
  try {
    return f();
  } catch (const InputError& error) {
    throw InputError(error.what(), error.subject(), static_cast<int>(number));
  }
}

}  // namespace tiering

/// Checks an input condition; what follows is the message, evaluated when the check fails.
#define TIERING_EXPECT(condition, ...)                      \
  do {                                                      \
    if (!(condition)) ::tiering::refuse_input(__VA_ARGS__); \
  } while (false)
