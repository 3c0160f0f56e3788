#include "atoll/train/trainer.h"

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/device/choose_device.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/checkpoint/resume_check.h"
#include "atoll/train/loop/run_begin.h"
#include "atoll/train/model/options.h"
#include "atoll/train/model/run_device.h"

namespace atl::train {

Trainer::Trainer(const TrainConfig& config, const Settings& settings) : run_(config, settings) {
  prepare();
}

Trainer::Trainer(const TrainConfig& config, const Settings& settings, comm::World& world)
    : run_(config, settings, world) {
  prepare();
}

Trainer::Trainer(const TrainConfig& config, const Settings& settings, comm::World& world,
                 StepSource& source)
    : run_(config, settings, world) {
  run_.step_source = &source;
  prepare();
}

Trainer::Trainer(const TrainConfig& config, const Settings& settings, Membership& membership)
    : run_(config, settings, membership) {
  ATOLL_CHECK(!config.parallel.has_parts() || config.launch.replicate,
              "without copies, ranks that come and go cannot have parts of a model");
  if (membership.joins()) run_.corpus.emplace(prepare_corpus(corpus_options(config)));
  prepare();
}

Trainer::~Trainer() = default;

std::uint64_t Trainer::checkpoint_bytes() const {
  const nn::ParameterCount count = nn::count_parameters(run_.state().model());
  constexpr std::int64_t kTrained = 12, kFrozen = 4;
  const std::int64_t trained = count.total - count.frozen;
  const std::int64_t frozen = run_.config.lora.rank > 0 ? 0 : count.frozen;
  return static_cast<std::uint64_t>(kTrained * trained + kFrozen * frozen);
}

void Trainer::observe(metrics::Observer& observer) {
  run_.observer = &observer;
  run_.saver.observe(observer);
}

void Trainer::prepare() {
  const TrainConfig& config = run_.config;
  require_chosen_layout(
      config,
      "the planner chooses for ranks of one machine that `atoll train -n` starts; "
      "elsewhere set the layout that `atoll plan --ranks` prints first");
  run_.schedule = schedule_of(config);
  const std::vector<Hello> hellos = run_.regrouping.enter();
  sync_ = make_sync(run_);
  apply_bf16(config);
  apply_attention(config);
  comm::World& world = run_.ranks().world();
  if (is_under_way(hellos)) {
    run_.model.emplace(config, open_joining_device(config, world));
    sync_->join(hellos);
    return;
  }
  run_.model.emplace(config, open_run_device(config, world));  // what it refuses is told first
  if (run_.step_source != nullptr) {
    run_.model->change_with([this](nn::Model& model) { run_.step_source->change(model); });
  }
  run_.gpu_links = connect_gpus(config, world, run_.model->device());
  prepare_data(run_);
  world.agree([&] {
    require_held_out(config, *run_.corpus);
    open_state(run_);
  });
  const std::filesystem::path checkpoint = begin_or_resume(run_);
  sync_->open(checkpoint);
  if (run_.step_source != nullptr) run_.step_source->open(run_, checkpoint);
  measure_rates(run_);
  run_.model->synchronise_replica(run_.ranks());
  world.agree([&] {
    if (run_.is_lead()) run_.reporter.open(config.run.dir, run_.position.step, run_.settings);
  });
}

TrainOutcome Trainer::run() {
  run_.stop.emplace(/*is_told=*/run_.is_lead());
  try {
    Device& device = run_.model->device();
    run_.reporter.announce(*run_.corpus, run_.state(), run_.ranks(), device);
    run_.reporter.watch(device);
    run_.reporter.begin(/*shows_bar=*/run_.is_lead());
    TrainOutcome outcome = loop();
    run_.stop.reset();
    return outcome;
  } catch (const DeviceLostError& error) {
    run_.reporter.clear_bar();
    run_.stop.reset();
    throw DeviceLostError(
        fmt::format("step {}: {}. {}", run_.position.step + 1, error.what(), recovery_hint()));
  } catch (...) {
    run_.reporter.clear_bar();  // before whoever catches this prints
    run_.stop.reset();
    throw;
  }
}

TrainOutcome Trainer::loop() {
  sync_->begin();
  while (const std::optional<Turn> turn = sync_->next()) {
    const std::optional<StepResult> result = sync_->step(*turn);
    if (result) sync_->after(*result);
  }
  return sync_->end();
}

// What is in memory is gone with a device, but for a checkpoint that was being written.
std::string Trainer::recovery_hint() {
  Saver& saver = run_.saver;
  try {
    if (run_.ranks().is_alone()) saver.finish(run_.ranks(), run_.trace.timeline());
  } catch (const Error& error) {
    log::warning("the checkpoint that was being written is lost too: {}", error.what());
  }
  const bool has_checkpoint = saver.saved_step() >= 0;
  return fmt::format(
      "{}; the same command {}",
      has_checkpoint ? fmt::format("The last checkpoint is {}", saver.last_checkpoint().string())
                     : "There is no checkpoint yet",
      has_checkpoint ? "goes on from there" : "begins again");
}

}  // namespace atl::train
