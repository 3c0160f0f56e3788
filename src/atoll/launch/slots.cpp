#include "atoll/launch/slots.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::launch {

Slots::Slots(const std::vector<Host>& hosts, const ElasticLimits& limits, bool may_wait)
    : limits_(limits) {
  if (limits.min_ranks > limits.max_ranks) {
    throw user_error("--min-ranks={} is above --max-ranks={}", limits.min_ranks, limits.max_ranks);
  }
  update(hosts);
  if (!may_wait && static_cast<int>(places_.size()) < limits.min_ranks) {
    throw user_error("--min-ranks={}, but the hosts have {} slots; add hosts or slots",
                     limits.min_ranks, places_.size());
  }
}

bool Slots::is_there(const Place& place) const {
  return !place.removed && std::find(gone_.begin(), gone_.end(), place.host) == gone_.end();
}

std::vector<std::string> Slots::next() {
  ++generation_;
  taken_.clear();
  const auto most = static_cast<std::size_t>(limits_.max_ranks);
  const auto least = static_cast<std::size_t>(limits_.min_ranks);
  std::vector<std::size_t> spare;  // empty for now, but their hosts are there
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!is_there(places_[i])) continue;
    (places_[i].empty_until > generation_ ? spare : taken_).push_back(i);
  }
  for (std::size_t i = 0; i < spare.size() && taken_.size() < least; ++i) {
    taken_.push_back(spare[i]);
  }
  if (taken_.size() > most) taken_.resize(most);
  if (taken_.size() < least) taken_.clear();
  std::sort(taken_.begin(), taken_.end());
  std::vector<std::string> hosts;
  for (const std::size_t place : taken_) hosts.push_back(places_[place].host);
  return hosts;
}

void Slots::lose(const GroupOutcome& outcome) {
  for (const int rank : outcome.lost) {
    if (rank < 0 || rank >= static_cast<int>(taken_.size())) continue;
    places_[taken_[static_cast<std::size_t>(rank)]].empty_until = generation_ + 2;
  }
  for (const std::string& host : outcome.gone) lose_host(host);
}

void Slots::lose_host(const std::string& host) {
  if (std::find(gone_.begin(), gone_.end(), host) == gone_.end()) gone_.push_back(host);
}

void Slots::trim(int num_ranks) {
  taken_.resize(std::min(taken_.size(), static_cast<std::size_t>(num_ranks)));
}

void Slots::drop(int place, bool is_gone) {
  if (place < 0 || place >= static_cast<int>(taken_.size())) return;
  Place& dropped = places_[taken_[static_cast<std::size_t>(place)]];
  dropped.empty_until = generation_ + 2;
  if (is_gone) lose_host(dropped.host);
  taken_.erase(taken_.begin() + place);
}

bool Slots::is_free(std::size_t place) const {
  return is_there(places_[place]) && std::find(taken_.begin(), taken_.end(), place) == taken_.end();
}

bool Slots::is_spare(std::size_t place) const {
  return is_free(place) && places_[place].empty_until <= generation_;
}

int Slots::count_up_to_most(bool (Slots::*matches)(std::size_t) const) const {
  int count = 0;
  for (std::size_t place = 0; place < places_.size(); ++place) {
    count += (this->*matches)(place) ? 1 : 0;
  }
  return std::clamp(count, 0, std::max(0, limits_.max_ranks - num_taken()));
}

int Slots::num_free() const {
  return count_up_to_most(&Slots::is_free);
}

bool Slots::has_free(const std::string& host) const {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (places_[place].host == host && is_free(place)) return true;
  }
  return false;
}

int Slots::num_spare() const {
  return count_up_to_most(&Slots::is_spare);
}

std::vector<std::string> Slots::grow(int most) {
  std::vector<std::string> hosts;
  const int count = std::min(most, num_free());
  for (const bool is_first_choice : {true, false}) {
    for (std::size_t i = 0; i < places_.size() && static_cast<int>(hosts.size()) < count; ++i) {
      if (!is_free(i) || is_spare(i) != is_first_choice) continue;
      taken_.push_back(i);
      places_[i].empty_until = 0;
      hosts.push_back(places_[i].host);
    }
  }
  return hosts;
}

int Slots::num_next() const {
  const auto num = std::count_if(places_.begin(), places_.end(), [this](const Place& place) {
    return is_there(place) && place.empty_until <= generation_ + 1;
  });
  return static_cast<int>(std::min<std::ptrdiff_t>(num, limits_.max_ranks));
}

int Slots::num_there() const {
  return static_cast<int>(std::count_if(places_.begin(), places_.end(),
                                        [this](const Place& place) { return is_there(place); }));
}

void Slots::return_hosts(const std::vector<std::string>& names) {
  for (const std::string& name : names) std::erase(gone_, name);
}

// Places keep their index, because taken_ holds indices.
void Slots::update(const std::vector<Host>& hosts) {
  for (Place& place : places_) place.removed = true;
  for (const Host& host : hosts) {
    int wanted = host.slots;
    for (Place& place : places_) {
      if (wanted == 0) break;
      if (place.host != host.name) continue;
      place.removed = false;
      --wanted;
    }
    for (; wanted > 0; --wanted) places_.push_back({.host = host.name});
  }
}

}  // namespace atl::launch
