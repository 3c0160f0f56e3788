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

/// Asks each implementation in turn; `cost` is for Run::profile. Throws Error(kInternal) when none
/// serves: a list without a `ref` for this dtype is a bug.
template <typename Args>
void dispatch(std::string_view op, std::span<const Implementation<Args>> list, Run& run,
              const Args& args, const OpCost& cost = {}) {
  const OpProfile::Call call(run.profile);
  Declined reason = "no implementation";
  for (const Implementation<Args>& implementation : list) {
    reason = implementation.call(run, args);
    log_choice(op, implementation.name, reason);
    if (reason == kServed) return call.note(op, implementation.name, cost);
  }
  ATOLL_CHECK(false, "no implementation of {} can serve this call: {}", op, reason);
}

}  // namespace atl::ops
