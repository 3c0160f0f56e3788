#include "atoll/train/model/connect_ranks.h"

namespace atl::train {

ModelGroups connect_ranks(TrainState& state, Ranks& ranks) {
  ModelGroups groups;
  state.connect(ranks.data(), ranks.shard(), ranks.replicate());
  if (ranks.context() != nullptr) {
    state.connect_context(ranks.group(), ranks.sharing(), *ranks.context());
  }
  if (ranks.tensor_size() > 1) {
    groups.kv_copies = ranks.kv_copies(*state.model().kv_copies);
    state.connect_tensor(ranks.group(), ranks.tensor(), *groups.kv_copies);
  }
  if (ranks.experts() != nullptr) {
    state.connect_experts(ranks.group(), ranks.sharing(), *ranks.experts());
  }
  if (ranks.parts() != nullptr) state.connect_parts(*ranks.parts());
  if (const parallel::PipelinePart* pipeline = state.pipeline()) {
    if (pipeline->is_tied()) groups.pipeline_ends = ranks.pipeline_ends();
    state.connect_pipeline(ranks.group(), ranks.pipeline(), groups.pipeline_ends.get());
  }
  return groups;
}

}  // namespace atl::train
