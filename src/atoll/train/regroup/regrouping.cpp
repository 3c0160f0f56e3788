#include "atoll/train/regroup/regrouping.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::train {

Regrouping::Regrouping(const TrainConfig& config)
    : config_(config), own_world_(comm::open_self()), world_(own_world_.get()) {}

std::vector<Hello> Regrouping::enter() {
  if (membership_ != nullptr) {
    own_world_ = membership_->next();
    world_ = own_world_.get();
  }
  return meet({});
}

void Regrouping::leave(const std::string& why) {
  began_ = std::chrono::steady_clock::now();
  old_rank_ = ranks_->rank();
  old_size_ = ranks_->size();
  if (!why.empty()) world_->abort("it regroups: " + why);
}

std::vector<Hello> Regrouping::enter_next(Hello mine) {
  mine.old_rank = static_cast<double>(old_rank_);
  mine.old_size = static_cast<double>(old_size_);
  for (;;) {
    ranks_.reset();
    own_world_.reset();
    own_world_ = membership_->next();
    world_ = own_world_.get();
    try {
      return meet(mine);
    } catch (const comm::PeerError& error) {
      world_->abort(error.what());
    }
  }
}

comm::World& Regrouping::enter_with_those_left() {
  ranks_.reset();
  own_world_.reset();
  own_world_ = membership_->next();
  world_ = own_world_.get();
  return *world_;
}

std::vector<Hello> Regrouping::meet(const Hello& mine) {
  world_->agree([&] { ranks_.emplace(*world_, config_); });
  constexpr std::int64_t kWidth = sizeof(Hello) / sizeof(double);
  std::vector<Hello> all(static_cast<std::size_t>(ranks_->size()));
  all[static_cast<std::size_t>(ranks_->rank())] = mine;
  std::vector<std::int64_t> parts;
  for (std::int64_t r = 0; r <= ranks_->size(); ++r) parts.push_back(r * kWidth);
  ranks_->group().all_gather({all.data(), {Dtype::kF64, {parts.back()}}}, parts);
  return all;
}

double Regrouping::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

bool is_under_way(const std::vector<Hello>& hellos) {
  return std::any_of(hellos.begin(), hellos.end(),
                     [](const Hello& hello) { return hello.has_state != 0; });
}

std::int64_t steps_to_go_on_from(const std::vector<Hello>& hellos) {
  double most = 0;
  for (const Hello& hello : hellos) most = std::max(most, hello.steps_taken + hello.has_committed);
  return static_cast<std::int64_t>(most);
}

int first_holder(const std::vector<Hello>& hellos) {
  const auto holder = std::find_if(hellos.begin(), hellos.end(),
                                   [](const Hello& hello) { return hello.has_state != 0; });
  ATOLL_CHECK(holder != hellos.end(), "of {} ranks none holds anything", hellos.size());
  return static_cast<int>(holder - hellos.begin());
}

}  // namespace atl::train
