// The parameters of an island whose ranks share them, and what its lead tells the others.

#include <algorithm>
#include <array>

#include "atoll/simd/bf16.h"
#include "atoll/train/island/rounds.h"

namespace atl::train {

using Clock = std::chrono::steady_clock;

void IslandRounds::read_parameters() {
  if (has_params_) return;
  tell({.command = Command::kRead});
  gather_parameters();
  has_params_ = true;
}

// Of bf16 parameters the f32 masters are what is trained.
void IslandRounds::gather_parameters() {
  parallel::ParamStore& store = state_->store();
  store.settle();
  if (store.flat().dtype == Dtype::kBf16) return gather_masters();
  const parallel::FlatLayout& layout = store.layout();
  store.read_whole([&](std::span<const parallel::WholeParam> some) {
    for (const parallel::WholeParam& whole : some) {
      const auto trained = layout.trained();
      const auto at = std::find(trained.begin(), trained.end(), whole.param);
      if (at == trained.end()) continue;
      const std::int64_t offset = layout.offset(static_cast<std::size_t>(at - trained.begin()));
      std::copy_n(whole.tensor.data<float>(), whole.tensor.num_elements(),
                  params_.begin() + offset);
    }
  });
}

std::vector<optim::StateTensor> IslandRounds::masters() {
  std::vector<optim::StateTensor> all = state_->optimizer().state();
  std::erase_if(all, [](const optim::StateTensor& piece) { return piece.name != "master"; });
  return all;
}

// Where ranks share them, each element is some rank's, and -0 at the others', which x + -0 = x for
// every x, also for a -0.
void IslandRounds::gather_masters() {
  const bool is_shared = state_->options().data_parallel.zero != parallel::Zero::kNone &&
                         state_->options().data_parallel.num_ranks > 1;
  if (is_shared) std::fill(params_.begin(), params_.end(), -0.0F);
  for (const optim::StateTensor& piece : masters()) {
    std::copy_n(piece.tensor.data<float>(), piece.tensor.num_elements(),
                params_.begin() + piece.begin);
  }
  if (is_shared) state_->shard_group()->all_reduce(flat_parameters());
}

Tensor IslandRounds::flat_parameters() {
  return {params_.data(), {Dtype::kF32, {static_cast<std::int64_t>(params_.size())}}};
}

void IslandRounds::write_parameters() {
  if (!has_unwritten_) return;
  tell({.command = Command::kWrite});
  scatter_parameters();
  has_unwritten_ = false;
}

void IslandRounds::scatter_parameters() {
  parallel::ParamStore& store = state_->store();
  const parallel::FlatLayout& layout = store.layout();
  if (!ranks_->is_alone()) ranks_->group().broadcast(flat_parameters(), 0);
  store.settle();
  store.write_whole([&](std::span<const parallel::WholeParam> some) {
    for (const parallel::WholeParam& whole : some) {
      const auto trained = layout.trained();
      const auto at = std::find(trained.begin(), trained.end(), whole.param);
      if (at == trained.end()) continue;
      copy_out(layout.offset(static_cast<std::size_t>(at - trained.begin())), whole.tensor);
    }
  });
  if (store.flat().dtype == Dtype::kBf16) {
    for (const optim::StateTensor& piece : masters()) copy_out(piece.begin, piece.tensor);
  }
  if (state_->replica() == nullptr) return;
  // The next rank's part has moved too, and no gradient says so.
  for (const auto& [name, pieces] : state_->replica()->held()) {
    if (name != "values" && name != "master") continue;
    for (const parallel::HeldPiece& piece : pieces) copy_out(piece.begin, piece.tensor);
  }
}

// Some of the parameters, from element `begin` on, in the dtype of `to`.
void IslandRounds::copy_out(std::int64_t begin, const Tensor& to) const {
  const auto from = params_.begin() + begin;
  const std::int64_t count = to.num_elements();
  if (to.dtype() == Dtype::kBf16) {
    std::transform(from, from + count, to.data<Bf16>(), to_bf16);
  } else {
    std::copy_n(from, count, to.data<float>());
  }
}

void IslandRounds::regrouped(TrainState& state, Ranks& ranks, double seconds) {
  state_ = &state;
  ranks_ = &ranks;
  pace_.waited(seconds);
  if (ranks.is_alone()) return write_parameters();
  std::array<std::int64_t, 2> facts = {is_over_, has_unwritten_};
  ranks.group().broadcast({facts.data(), {Dtype::kI64, {facts.size()}}}, 0);
  is_over_ = facts[0] != 0;
  if (facts[1] != 0) scatter_parameters();
  has_unwritten_ = false;
  // Nobody is told that all have what they share out before they do.
  ranks.group().barrier();
}

void IslandRounds::tell(Order order) {
  if (ranks_->is_alone()) return;
  told_at_ = Clock::now();
  std::array<std::int64_t, 4> words = {static_cast<std::int64_t>(order.command), order.batch,
                                       order.clock, order.is_over};
  ranks_->group().broadcast({words.data(), {Dtype::kI64, {words.size()}}}, 0);
}

IslandRounds::Order IslandRounds::hear() {
  std::array<std::int64_t, 4> words = {};
  ranks_->group().broadcast({words.data(), {Dtype::kI64, {words.size()}}}, 0);
  return {static_cast<Command>(words[0]), words[1], words[2], words[3]};
}

// A rank that does not lead does what it is told, until a step is due or the end.
IslandRounds::Next IslandRounds::follow() {
  for (;;) {
    const Order order = hear();
    switch (order.command) {
      case Command::kRead:
        gather_parameters();
        break;
      case Command::kWrite:
        scatter_parameters();
        break;
      case Command::kWait:
        break;
      case Command::kTrain:
        return {.what = Next::What::kStep, .batch = order.batch, .clock = order.clock};
      case Command::kRegroup:
        return {.what = Next::What::kRegroup};
      case Command::kEnd:
        is_over_ = order.is_over != 0;
        return {.what = Next::What::kEnd};
    }
  }
}

}  // namespace atl::train
