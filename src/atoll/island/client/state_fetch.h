#pragma once

#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "atoll/island/client/exchange.h"
#include "atoll/island/outer/state.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// State that an island fetches while the run goes on: each attempt asks for a newer one, and only
/// fragments that have changed since the last are fetched again. One thread at a time.
class StateFetch {
 public:
  /// Fills `values`, as FragmentState has them, with the fragment's state that has this hash, and
  /// says which one it has, with what other ranks fetched of it.
  using FetchOne = std::function<ExchangeResult(int fragment, const StateHash& hash,
                                                std::span<float> values, StateHash& found)>;

  /// Fetches those of the `wanted` fragments that neither `own` nor an attempt before has. One that
  /// is gone, because the run has a newer one by now, does not keep the others from being fetched;
  /// one that does not come does. Not done when one is missing, or came with another hash than it
  /// has.
  ExchangeResult fetch(const std::vector<StateHash>& wanted, const OuterState& own,
                       const FetchOne& fetch_one, const std::stop_token& cancel);
  /// What was fetched, by fragment; nothing is left here.
  std::map<int, std::vector<float>> take();

 private:
  std::map<int, std::pair<StateHash, std::vector<float>>> fetched_;  // by fragment
};

}  // namespace atl::island
