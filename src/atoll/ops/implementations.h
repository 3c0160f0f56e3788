#pragma once

// Every op owns an ordered list of implementations, best first, `ref` last. One that cannot serve
// a call returns the reason, and the next is asked; ATOLL_LOG=ops shows who served and who not.

#include <span>
#include <string_view>

#include "atoll/ops/profile.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// nullptr: "served". Otherwise a static string: why this implementation cannot.
using Declined = const char*;
constexpr Declined kServed = nullptr;

/// One way to carry out an op; `call` answers kServed or declines untouched.
template <typename Args>
struct Implementation {
  const char* name;
  Declined (*call)(Run& run, const Args& args);
};

/// Logs once per (op, implementation, reason) when ATOLL_LOG names `ops`; a no-op otherwise.
void log_choice(std::string_view op, std::string_view implementation, Declined reason);

/// Why no implementation of `op` has served: the reason of those for GPUs is `gpu_reason`, which is
/// null where there is none, and `reason` that of the last of all. On a GPU that is a limit of this
/// version: Error(kUser) with the op's name and what to do. On a CPU a list without a `ref` for
/// this dtype is a bug: Error(kInternal).
[[noreturn]] void refuse_op(const Run& run, std::string_view op, Declined reason,
                            Declined gpu_reason);

/// Asks each implementation in turn; `cost` is for Run::profile. Throws refuse_op() when none
/// serves. Implementations for GPUs have names that begin with "cuda".
template <typename Args>
void dispatch(std::string_view op, std::span<const Implementation<Args>> list, Run& run,
              const Args& args, const OpCost& cost = {}) {
  const OpProfile::Call call(run.profile);
  Declined reason = "no implementation";
  Declined gpu_reason = nullptr;
  for (const Implementation<Args>& implementation : list) {
    reason = implementation.call(run, args);
    log_choice(op, implementation.name, reason);
    if (reason == kServed) return call.note(op, implementation.name, cost);
    if (std::string_view(implementation.name).starts_with("cuda")) gpu_reason = reason;
  }
  refuse_op(run, op, reason, gpu_reason);
}

}  // namespace atl::ops
