#pragma once

#include <cstdint>

namespace atl::comm {

/// A place in the code: what std::source_location is, which clang 14 does not have.
class Where {
 public:
  constexpr Where() = default;
  /// As a default argument: where the caller calls.
  static constexpr Where current(const char* file = __builtin_FILE(),
                                 std::uint32_t line = __builtin_LINE()) {
    Where where;
    where.file_ = file;
    where.line_ = line;
    return where;
  }

  constexpr const char* file_name() const { return file_; }
  constexpr std::uint32_t line() const { return line_; }

 private:
  const char* file_ = "";
  std::uint32_t line_ = 0;
};

}  // namespace atl::comm
