#pragma once

// How an operation ends when it cannot go on. Foreseen outcomes are return values, not errors.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace atl {

/// What went wrong, coarse enough for a caller to act on.
enum class ErrorKind {
  kUser,      ///< The user asked for something wrong: a key, a value, a path. Exit code 2.
  kIo,        ///< The operating system refused: disk full, permission, device error.
  kDamaged,   ///< A file or message is not what its checksum or format says.
  kResource,  ///< Out of memory or another planned limit.
  kNumeric,   ///< NaN or infinity where training cannot go on.
  kPeer,      ///< Another rank is gone, hangs, or disagrees.
  kInternal,  ///< A bug: a violated ATOLL_CHECK.
};

/// Ends an operation. The message says what was wrong, where (file, key, line, value), and what
/// to do. User mistakes exit with 2 and never print a stack trace; everything else exits with 1.
/// It is always one line: control characters in it, which can only come from a stranger's names and
/// values, are shown as \n, \t or \x1b.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view message);

  ErrorKind kind() const { return kind_; }
  int exit_code() const { return kind_ == ErrorKind::kUser ? 2 : 1; }

 private:
  ErrorKind kind_;
};

/// Makes an Error of `kind` from a format string: `throw make_error(kUser, "no such key {}", key)`.
template <typename... Args>
Error make_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// A mistake in what the user gave; see ErrorKind::kUser.
template <typename... Args>
Error user_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::kUser, fmt::format(format, std::forward<Args>(args)...));
}

/// A file or message that fails its checksum or format; see ErrorKind::kDamaged.
template <typename... Args>
Error damaged_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::kDamaged, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace atl
