#pragma once

#include <string_view>

namespace atl::fake_cuda {

/// A place in the source. clang before 15 has no std::source_location.
struct Where {
  const char* file = "";
  int line = 0;

  /// The caller's place, as the default of a parameter.
  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(const Where& a, const Where& b) {
    return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
  }
};

}  // namespace atl::fake_cuda
