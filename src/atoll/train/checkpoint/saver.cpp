#include "atoll/train/checkpoint/saver.h"

#include "atoll/ckpt/checkpoint_paths.h"

namespace atl::train {

std::optional<ckpt::CheckpointInfo> Saver::find_newest(ThreadPool& threads) const {
  ckpt::clean_stale(root_);
  return ckpt::newest_verified(root_, &threads);
}

std::filesystem::path Saver::path_of(std::int64_t step) const {
  return root_ / ckpt::checkpoint_name(step);
}

void Saver::go_on_from(std::int64_t step) {
  saved_step_ = step;
  if (step >= 0) last_checkpoint_ = root_ / ckpt::checkpoint_name(step);
}

void Saver::set_aside_newer() const {
  ckpt::set_aside_newer(root_, saved_step_);
}

void Saver::save_in_passing(const Ranks& ranks, Source source, metrics::Timeline* timeline) {
  if (!settings_.async) return save(ranks, std::move(source), timeline);
  begin(ranks, std::move(source), CheckpointSave::Mode::kBeside, timeline);
}

void Saver::save(const Ranks& ranks, Source source, metrics::Timeline* timeline) {
  begin(ranks, std::move(source), CheckpointSave::Mode::kNow, timeline);
  finish(ranks, timeline);
}

void Saver::begin(const Ranks& ranks, Source source, CheckpointSave::Mode mode,
                  metrics::Timeline* timeline) {
  const metrics::ScopedSpan span(timeline, "begin save", "checkpoint");
  finish(ranks, timeline);  // one at a time
  if (observer_ != nullptr) observer_->checkpoint_begun(source.position.step);
  under_way_ = begin_save(root_, source.state, source.position, source.carried, source.base, mode,
                          std::move(source.extra));
}

void Saver::finish(const Ranks& ranks, metrics::Timeline* timeline) {
  if (!under_way_) return;
  const metrics::ScopedSpan span(timeline, "finish save", "checkpoint");
  const std::unique_ptr<CheckpointSave> save = std::move(under_way_);
  last_checkpoint_ = save->commit();
  saved_step_ = save->step();
  if (observer_ != nullptr) observer_->checkpoint_saved(last_checkpoint_);
  prune(ranks);
}

void Saver::prune(const Ranks& ranks) const {
  ranks.world().agree([&] {
    if (!ranks.is_lead()) return;
    ckpt::prune_checkpoints(root_, static_cast<int>(settings_.keep), /*is_verified=*/true, spared_);
  });
}

void Saver::finish_if_written(const Ranks& ranks, metrics::Timeline* timeline) {
  if (all_have_written_) finish(ranks, timeline);
  all_have_written_ = false;
}

bool Saver::has(std::int64_t step) const {
  return saved_step_ == step || (under_way_ && under_way_->step() == step);
}

}  // namespace atl::train
