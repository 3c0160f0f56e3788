#pragma once

// One thread of execution that gives way by itself: a stack, and where it stands.

#include <cstddef>
#include <cstdint>

namespace atl::fake_cuda {

/// Runs a function on a stack of its own; resume() goes on where yield() stopped.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next resume() call entry(argument), which must not throw. An earlier entry must have
  /// returned or be abandoned.
  void start(void (*entry)(void*), void* argument);
  /// Forgets what the entry has not finished. Nothing on its stack is destroyed.
  void abandon();
  /// Runs until the fiber yields or its entry returns; true when it has returned.
  bool resume();
  /// Back to the caller of resume(). On the fiber's stack alone.
  void yield();
  /// As yield(), and as if that caller resumed `next` at once. Only where kYieldsTo.
  void yield_to(Fiber& next);

// The sanitizers know one caller for each fiber, and so does ucontext.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  static constexpr bool kYieldsTo = true;
#else
  static constexpr bool kYieldsTo = false;
#endif

 private:
  [[noreturn]] static void enter(Fiber* fiber);
  void switch_to_fiber();
  void switch_back(bool is_last);

  struct Sanitizer {  // what the sanitizers are told of a switch
    void* fiber_fake_stack = nullptr;
    void* caller_fake_stack = nullptr;
    const void* caller_stack = nullptr;
    std::size_t caller_stack_bytes = 0;
    void* fiber = nullptr;
    void* caller = nullptr;
  };

  std::byte* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;  // in use, from stack_ on
  void* fiber_ = nullptr;        // the saved place, as the kind of switch keeps it
  void* caller_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool is_done_ = true;
  Sanitizer sanitizer_;
};

}  // namespace atl::fake_cuda
