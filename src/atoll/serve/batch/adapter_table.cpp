#include "atoll/serve/batch/adapter_table.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"

namespace atl::serve {

std::int64_t StepAdapter::rank() const {
  std::int64_t rank = 0;
  for (const nn::ServedFactors& factors : linears) {
    if (factors.a.defined()) rank = std::max(rank, factors.a.dim(0));
  }
  return rank;
}

std::int64_t AdapterTable::place_of(const std::string& name) const {
  const auto at = std::ranges::find(served_, name, [](const Ptr& one) { return one->name; });
  return at == served_.end() ? -1 : at - served_.begin();
}

void AdapterTable::check_room(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  check_room_locked(name);
}

void AdapterTable::check_room_locked(const std::string& name) const {
  std::erase_if(alive_, [](const auto& one) { return one.expired(); });
  const std::int64_t most = max_adapters_ - (place_of(name) < 0 ? 1 : 0);
  if (std::ssize(alive_) <= most) return;
  const auto unloaded = std::ssize(alive_) - std::ssize(served_);
  if (unloaded > 0) {
    throw make_error(ErrorKind::kResource,
                     "there is room for {} adapters; of those that are no longer served {} still "
                     "answer requests; try again when these are done",
                     max_adapters_, unloaded);
  }
  throw make_error(ErrorKind::kResource,
                   "{} adapters are served, and there is room for {}; unload one, or start the "
                   "server with a larger --max-adapters",
                   served_.size(), max_adapters_);
}

void AdapterTable::put(StepAdapter adapter) {
  if (const std::int64_t rank = adapter.rank(); rank > max_rank_) {
    throw user_error(
        "adapter {}: a linear layer has rank {}, and there is room for {}; start the server with a "
        "larger --max-adapter-rank",
        adapter.name, rank, max_rank_);
  }
  const std::lock_guard lock(mutex_);
  check_room_locked(adapter.name);
  adapter.number = next_number_++;
  const std::int64_t place = place_of(adapter.name);
  Ptr made = std::make_shared<const StepAdapter>(std::move(adapter));
  alive_.push_back(made);
  if (place < 0) {
    served_.push_back(std::move(made));
  } else {
    served_[static_cast<std::size_t>(place)] = std::move(made);
  }
}

bool AdapterTable::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const std::int64_t place = place_of(name);
  if (place < 0) return false;
  served_.erase(served_.begin() + place);
  return true;
}

AdapterTable::Ptr AdapterTable::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t place = place_of(name);
  return place < 0 ? nullptr : served_[static_cast<std::size_t>(place)];
}

std::vector<std::string> AdapterTable::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Ptr& one : served_) names.push_back(one->name);
  return names;
}

}  // namespace atl::serve
