#include "atoll/train/checkpoint/run_model.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/parallel/store/store_single.h"
#include "atoll/train/checkpoint/carried_files.h"
#include "atoll/train/checkpoint/resume_check.h"
#include "atoll/train/model/memory_check.h"
#include "atoll/train/model/options.h"
#include "atoll/train/model/run_device.h"

namespace atl::train {

RunModel::RunModel(const TrainConfig& config, std::unique_ptr<Device> device)
    : config_(config), device_(std::move(device)), stream_(device_->open_stream()) {}

void RunModel::open(const PreparedCorpus& corpus, Ranks& ranks) {
  close();
  if (!config_.model.from.empty()) {
    model_dir::HeldModel held = model_dir::hold_model(config_.model.from, config_.model.base);
    base_ = held.path;
    from_hold_ = std::move(held.hold);
    base_hold_ = std::move(held.base_hold);
  }
  const std::int32_t eos = corpus.tokenizer.end_of_text().value_or(-1);
  StateOptions options =
      state_options(config_, corpus.vocab_size(), eos, ranks.size(), ranks.rank());
  options.build.device = device_->kind();
  if (options.preference) options.preference_source = facts_;
  options.change_model = change_;
  if (is_gpu(*device_)) check_attention(config_, options.model);
  check_parameters(config_, options, *device_, ranks.world());
  state_ = std::make_unique<TrainState>(options);
  check_state(config_, *state_, *device_, ranks.world());
  if (options.offload.optimizer && options.offload.directory.empty()) {
    check_memory(state_->file_memory().total_bytes(), ranks.world());
  }
  state_->allocate(*device_);
  groups_ = connect_ranks(*state_, ranks);
  if (is_gpu(*device_) && config_.device.graphs) {
    ATOLL_CHECK(dynamic_cast<parallel::SingleStore*>(&state_->store()) != nullptr,
                "graphs of passes beside exchanges of a store");
    state_->runner().use_graphs();
  }
  carried_ = carried_files(config_, corpus.tokenizer, state_->model().config, base_,
                           /*warns=*/ranks.is_lead());
}

void RunModel::initialise() {
  Run with = run();
  state_->store().initialise(with, static_cast<std::uint64_t>(config_.run.seed));
  if (!base_.empty()) load_base();
  state_->optimizer().init_masters(with, state_->store().values());
}

void RunModel::load_base() {
  model_dir::load_parameters(base_, state_->model(), state_->store(), device_->threads());
}

Position RunModel::load(const ckpt::CheckpointInfo& checkpoint) {
  if (config_.lora.rank > 0) load_base();
  return load_checkpoint(checkpoint, *state_, device_->threads());
}

void RunModel::synchronise_replica(Ranks& ranks) {
  if (state_->replica() == nullptr) return;
  state_->replica()->synchronise(ranks.shard(), state_->optimizer());
}

}  // namespace atl::train
