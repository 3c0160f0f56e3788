#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "atoll/comm/failure.h"
#include "atoll/comm/world_state.h"

namespace atl::comm {

namespace {

constexpr std::int64_t kFine = -1;  // in place of a kind of error

/// Each rank's kind of error, or kFine, and the length of its message.
struct Outcomes {
  std::vector<std::int64_t> values;

  std::int64_t kind(int rank) const { return values[2 * static_cast<std::size_t>(rank)]; }
  std::int64_t length(int rank) const { return values[2 * static_cast<std::size_t>(rank) + 1]; }
};

Outcomes gather_outcomes(Group& all, const std::optional<Failure>& failure) {
  const auto size = static_cast<std::size_t>(all.size());
  Outcomes outcomes{std::vector<std::int64_t>(2 * size)};
  const auto mine = 2 * static_cast<std::size_t>(all.rank());
  outcomes.values[mine] = failure ? static_cast<std::int64_t>(failure->kind) : kFine;
  outcomes.values[mine + 1] = failure ? static_cast<std::int64_t>(failure->message.size()) : 0;
  std::vector<std::int64_t> parts;
  for (std::size_t i = 0; i <= size; ++i) parts.push_back(static_cast<std::int64_t>(2 * i));
  all.all_gather({outcomes.values.data(), {Dtype::kI64, {parts.back()}}}, parts);
  return outcomes;
}

}  // namespace

void World::agree(const std::function<void()>& action) {
  state_->reports = true;
  state_->agreed_to_end = false;
  if (size() == 1) return action();
  std::optional<Failure> failure;
  std::exception_ptr thrown;
  try {
    action();
  } catch (...) {
    failure = Failure::current();
    thrown = std::current_exception();
  }
  if (failure && state_->broken()) std::rethrow_exception(thrown);  // it can tell nobody

  const Outcomes outcomes = gather_outcomes(all(), failure);
  int lowest = 0;
  while (lowest < size() && outcomes.kind(lowest) == kFine) ++lowest;
  if (lowest == size()) return;
  std::string message = failure && lowest == rank() ? failure->message : std::string();
  message.resize(static_cast<std::size_t>(outcomes.length(lowest)));
  all().broadcast({message.data(), {Dtype::kU8, {outcomes.length(lowest)}}}, lowest);
  state_->reports = lowest == rank();
  state_->agreed_to_end = true;
  if (state_->reports) std::rethrow_exception(thrown);
  throw Error(static_cast<ErrorKind>(outcomes.kind(lowest)), message);
}

}  // namespace atl::comm
