#include "atoll/island/client/state_fetch.h"

namespace atl::island {

ExchangeResult StateFetch::fetch(const std::vector<StateHash>& wanted, const OuterState& own,
                                 const FetchOne& fetch_one, const std::stop_token& cancel) {
  const std::vector<StateHash> have = own.hashes();
  ExchangeResult result = {.is_done = true};
  for (std::size_t f = 0; f < wanted.size() && !cancel.stop_requested(); ++f) {
    const auto fragment = static_cast<int>(f);
    const auto fetched = fetched_.find(fragment);
    if (fetched != fetched_.end() && fetched->second.first == wanted[f]) continue;
    fetched_.erase(fragment);
    if (f < have.size() && have[f] == wanted[f]) continue;
    std::vector<float> values(own.values_size(fragment));
    StateHash found;
    ExchangeResult of_one = fetch_one(fragment, wanted[f], values, found);
    if (of_one.is_done && found != wanted[f]) {
      of_one = {.why = "what came is not the run's state"};
    }
    if (of_one.is_done) {
      fetched_[fragment] = {wanted[f], std::move(values)};
    } else {
      result = std::move(of_one);
      if (!result.is_gone) break;
    }
  }
  if (cancel.stop_requested()) return {.why = "cancelled"};
  return result;
}

std::map<int, std::vector<float>> StateFetch::take() {
  std::map<int, std::vector<float>> all;
  for (auto& [fragment, state] : fetched_) all[fragment] = std::move(state.second);
  fetched_.clear();
  return all;
}

}  // namespace atl::island
