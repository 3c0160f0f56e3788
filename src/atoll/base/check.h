#pragma once

// Assertions at boundaries (always on) and in loops (debug builds). Both print values.

#include "atoll/base/error.h"

namespace atl::internal {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace atl::internal

/// Throws Error(kInternal) with file, line and a formatted message when `condition` is false.
#define ATOLL_CHECK(condition, ...)                                 \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::atl::internal::check_failed(__FILE__, __LINE__, #condition, \
                                    ::fmt::format("" __VA_ARGS__)); \
  } while (false)

/// ATOLL_CHECK for two values that must be equal; prints both.
#define ATOLL_CHECK_EQ(a, b) ATOLL_CHECK((a) == (b), "{} against {}", (a), (b))

#ifdef ATOLL_DEBUG_CHECKS
#define ATOLL_DCHECK(condition, ...) ATOLL_CHECK(condition, __VA_ARGS__)
#else
#define ATOLL_DCHECK(condition, ...) \
  do {                               \
  } while (false)
#endif
