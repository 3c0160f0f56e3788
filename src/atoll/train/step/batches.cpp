#include "atoll/train/step/batches.h"

#include "atoll/train/config/preference.h"

namespace atl::train {

Batches::Batches(const TrainConfig& config, const PreparedCorpus& corpus)
    : config_(config),
      samples_(corpus, config.data.weights, static_cast<std::uint64_t>(config.run.seed),
               config.train.context, packing_of(config)) {}

void Batches::begin(const Ranks& ranks, std::int64_t first) {
  stop();
  has_begun_ = true;
  const std::vector<std::int64_t> mine = ranks.plan().of(ranks.data_rank());
  if (mine.empty()) return;
  loader_ = std::make_unique<data::Loader>(
      samples(), data::LoaderOptions{.micro_batch = config_.train.micro_batch,
                                     .global_batch = config_.train.batch_size,
                                     .micro_batches = mine,
                                     .first_step = first});
}

void Batches::stop() {
  loader_.reset();
  has_begun_ = false;
}

}  // namespace atl::train
