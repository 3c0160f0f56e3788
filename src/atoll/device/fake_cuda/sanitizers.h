#pragma once

// What AddressSanitizer and ThreadSanitizer are told of the shim. To ThreadSanitizer each GPU
// thread is a thread of its own, ordered by what orders threads on a GPU alone: by launches, by
// barriers of a block and by sync_warp. The shim's own books are not looked at: block.cpp and
// fiber.cpp are compiled without ThreadSanitizer. Without sanitizers nothing here does anything.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#define ATOLL_UNWATCHED __attribute__((no_sanitize_thread))
#else
#define ATOLL_UNWATCHED
#endif

namespace atl::fake_cuda {

#if defined(__SANITIZE_THREAD__)
constexpr bool kHasThreadSanitizer = true;
/// What this thread did so far comes before what others do after await_at(at).
inline void arrive_at(const void* at) {
  __tsan_release(const_cast<void*>(at));
}
inline void await_at(const void* at) {
  __tsan_acquire(const_cast<void*>(at));
}
/// While one lives, nothing that this thread does is looked at: allocations and copies of the
/// system's library, too.
class Unwatched {
 public:
  Unwatched() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};
#else
constexpr bool kHasThreadSanitizer = false;
inline void arrive_at(const void* /*at*/) {}
inline void await_at(const void* /*at*/) {}
class Unwatched {
 public:
  Unwatched() {}  // NOLINT: not trivial, so that it may stand alone
};
#endif

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kHasAddressSanitizer = true;
/// Of `capacity` bytes the first `bytes` may be touched.
inline void bound_memory(void* begin, std::size_t bytes, std::size_t capacity) {
  __asan_unpoison_memory_region(begin, bytes);
  __asan_poison_memory_region(static_cast<std::byte*>(begin) + bytes, capacity - bytes);
}
#else
constexpr bool kHasAddressSanitizer = false;
inline void bound_memory(void* /*begin*/, std::size_t /*bytes*/, std::size_t /*capacity*/) {}
#endif

}  // namespace atl::fake_cuda
