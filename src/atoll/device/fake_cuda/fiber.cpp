#include "atoll/device/fake_cuda/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>

#include "atoll/base/check.h"
#include "atoll/base/processes/memory_error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>

#include <memory>
#endif

// The switch saves what a call must keep, changes stacks, and returns on the other one. ucontext
// does the same with two system calls, which is seven times as slow.
#if defined(__x86_64__)
extern "C" void atoll_switch_stacks(void** from, void* to);
asm(R"(
.text
.globl atoll_switch_stacks
.type atoll_switch_stacks, @function
atoll_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size atoll_switch_stacks, .-atoll_switch_stacks
)");
#endif

namespace atl::fake_cuda {

namespace {

// Room for a kernel's frame and for a throw; pages that are never touched cost nothing.
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr std::size_t kGuardBytes = 4096;

// Stacks begin at different places of their pages: where all begin at one place, their first lines
// share one set of the processor's cache, and every switch misses it. Five lines are coprime to the
// 64 sets.
std::size_t next_stack_bytes() {
  constexpr std::size_t kPlaces = 64;
  constexpr std::size_t kApart = 5 * 64;
  static std::atomic<std::size_t> count = 0;
  return kStackBytes - count++ % kPlaces * kApart;
}

std::byte* take_stack() {
  void* memory =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw MemoryError("no memory for the stack of a fiber");
  ::mprotect(memory, kGuardBytes, PROT_NONE);
  return static_cast<std::byte*>(memory);
}

// A new stack begins with no argument, so the fiber is handed over here.
thread_local Fiber* entered = nullptr;

#if !defined(__x86_64__)
struct Contexts {
  ucontext_t fiber;
  ucontext_t caller;
};
#endif

}  // namespace

Fiber::Fiber() : stack_(take_stack()), stack_bytes_(next_stack_bytes()) {
#if !defined(__x86_64__)
  fiber_ = new Contexts;
#endif
#if defined(__SANITIZE_THREAD__)
  sanitizer_.fiber = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(sanitizer_.fiber);
#endif
#if !defined(__x86_64__)
  delete static_cast<Contexts*>(fiber_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  // What comes to lie there would have the red zones of calls that have not ended.
  __asan_unpoison_memory_region(stack_ + kGuardBytes, kStackBytes - kGuardBytes);
#endif
  ::munmap(stack_, kStackBytes);
}

void Fiber::enter(Fiber* fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->sanitizer_.caller_stack,
                                  &fiber->sanitizer_.caller_stack_bytes);
#endif
  fiber->entry_(fiber->argument_);
  fiber->is_done_ = true;
  fiber->switch_back(/*is_last=*/true);
  std::abort();  // nobody resumes a fiber that is done
}

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  is_done_ = false;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_ + kGuardBytes, stack_bytes_ - kGuardBytes);
  sanitizer_.fiber_fake_stack = nullptr;
#endif
#if defined(__x86_64__)
  // As if `begin` had been called from nowhere: a return address of 0, six registers, and a stack
  // that is 8 off a multiple of 16.
  auto* top = reinterpret_cast<void**>(stack_ + stack_bytes_);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(+[] { enter(entered); });
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber_ = top;
#else
  auto* contexts = static_cast<Contexts*>(fiber_);
  ::getcontext(&contexts->fiber);
  contexts->fiber.uc_stack.ss_sp = stack_;
  contexts->fiber.uc_stack.ss_size = stack_bytes_;
  contexts->fiber.uc_link = nullptr;
  ::makecontext(
      &contexts->fiber, +[] { enter(entered); }, 0);
#endif
}

void Fiber::abandon() {
  if (is_done_) return;
  is_done_ = true;
#if defined(__SANITIZE_THREAD__)
  // What it did comes before what its caller does next; its calls are left in the sanitizer's
  // books.
  void* const caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_.fiber, __tsan_switch_to_fiber_no_sync);
  __tsan_switch_to_fiber(caller, 0);
  __tsan_destroy_fiber(sanitizer_.fiber);
  sanitizer_.fiber = __tsan_create_fiber(0);
#endif
}

void Fiber::switch_to_fiber() {
  entered = this;
#if defined(__SANITIZE_THREAD__)
  sanitizer_.caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_.fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_.caller_fake_stack, stack_, stack_bytes_);
#endif
#if defined(__x86_64__)
  atoll_switch_stacks(&caller_, fiber_);
#else
  auto* contexts = static_cast<Contexts*>(fiber_);
  ::swapcontext(&contexts->caller, &contexts->fiber);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_.caller_fake_stack, nullptr, nullptr);
#endif
}

void Fiber::switch_back(bool is_last) {
#if defined(__SANITIZE_THREAD__)
  // What a fiber that ends has done comes before what its caller does next; nothing else does.
  __tsan_switch_to_fiber(sanitizer_.caller, is_last ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(is_last ? nullptr : &sanitizer_.fiber_fake_stack,
                                 sanitizer_.caller_stack, sanitizer_.caller_stack_bytes);
#else
  static_cast<void>(is_last);
#endif
#if defined(__x86_64__)
  atoll_switch_stacks(&fiber_, caller_);
#else
  auto* contexts = static_cast<Contexts*>(fiber_);
  ::swapcontext(&contexts->fiber, &contexts->caller);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_.fiber_fake_stack, &sanitizer_.caller_stack,
                                  &sanitizer_.caller_stack_bytes);
#endif
}

bool Fiber::resume() {
  switch_to_fiber();
  return is_done_;
}

void Fiber::yield() {
  switch_back(/*is_last=*/false);
}

void Fiber::yield_to([[maybe_unused]] Fiber& next) {
#if defined(__x86_64__)
  ATOLL_DCHECK(kYieldsTo, "this build's fibers yield to their caller alone");
  next.caller_ = caller_;
  entered = &next;
  atoll_switch_stacks(&fiber_, next.fiber_);
#endif
}

}  // namespace atl::fake_cuda
