#include "atoll/train/regroup/redistribution.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/train/ranks/sharing.h"

namespace atl::train {

namespace {

using parallel::ElementRange;
using parallel::HeldBy;
using parallel::HeldVectors;

// The new rank of each old one, or -1.
std::vector<int> ranks_that_stay(const std::vector<Hello>& hellos) {
  double old_size = 0;
  for (const Hello& hello : hellos) old_size = std::max(old_size, hello.old_size);
  std::vector<int> now(static_cast<std::size_t>(old_size), -1);
  for (std::size_t r = 0; r < hellos.size(); ++r) {
    if (hellos[r].old_rank < 0) continue;
    now[static_cast<std::size_t>(hellos[r].old_rank)] = static_cast<int>(r);
  }
  return now;
}

// Who gives what of the state of the old ranks. Throws when some of it is lost.
std::vector<HeldBy> sources_of(const parallel::FlatLayout& old_layout, bool has_copies,
                               const std::vector<int>& now) {
  std::vector<HeldBy> sources;
  const auto old_size = static_cast<int>(now.size());
  for (int old = 0; old < old_size; ++old) {
    int holder = now[static_cast<std::size_t>(old)];
    const int before = (old + old_size - 1) % old_size;
    if (holder < 0 && has_copies) holder = now[static_cast<std::size_t>(before)];
    if (holder < 0) {
      throw make_error(ErrorKind::kPeer,
                       "rank {} is lost{}; the run goes on from the last checkpoint", old,
                       has_copies ? " with the rank that kept its copy"
                                  : " and nobody has a copy "
                                    "of its part (launch.replicate)");
    }
    sources.push_back({holder, parallel::element_ranges(old_layout, old)});
  }
  return sources;
}

HeldVectors own_part(TrainState& state) {
  return parallel::held_vectors(state.optimizer(), state.store().ranges(), state.store().values());
}

}  // namespace

parallel::HeldCopy copy_of_held(TrainState& state) {
  HeldVectors held = own_part(state);
  if (state.replica() == nullptr) return parallel::HeldCopy(held);
  for (auto& [name, pieces] : state.replica()->held()) {
    std::vector<parallel::HeldPiece>& all = held[name];
    all.insert(all.end(), pieces.begin(), pieces.end());
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  return parallel::HeldCopy(held);
}

void redistribute(const TrainConfig& config, const Ranks& ranks, const std::vector<Hello>& hellos,
                  const std::optional<parallel::HeldCopy>& held, TrainState& state) {
  const parallel::ParamStore& store = state.store();
  const HeldVectors mine = held ? held->vectors() : HeldVectors();
  const HeldVectors wanted = own_part(state);
  std::vector<HeldBy> sources;
  std::vector<std::vector<ElementRange>> wants(hellos.size());
  if (config.dp.zero == 0) {
    // Everybody had everything; who joins gets it from one of them.
    const std::vector<ElementRange> all = {{0, store.flat().shape.num_elements()}};
    sources = {{first_holder(hellos), all}};
    for (std::size_t r = 0; r < hellos.size(); ++r) {
      if (hellos[r].has_state == 0) wants[r] = all;
    }
    if (held) parallel::restore(mine, wanted);
  } else {
    const std::vector<int> now = ranks_that_stay(hellos);
    const parallel::FlatLayout old_layout(state.model(),
                                          parallel::layout_options(data_parallel_options(
                                              config, static_cast<int>(now.size()), /*rank=*/0)));
    sources = sources_of(old_layout, config.launch.replicate, now);
    for (std::size_t r = 0; r < hellos.size(); ++r) {
      wants[r] = parallel::element_ranges(store.layout(), static_cast<int>(r));
    }
  }
  parallel::redistribute(ranks.group(), sources, wants, mine, wanted);
}

}  // namespace atl::train
