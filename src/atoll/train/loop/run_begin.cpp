#include "atoll/train/loop/run_begin.h"

#include "atoll/base/error.h"
#include "atoll/base/files/unfinished.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/checkpoint/resume_check.h"
#include "atoll/train/config/preference.h"
#include "atoll/train/config/written_settings.h"
#include "atoll/train/corpus/missing_text.h"
#include "atoll/train/loop/prepare_references.h"
#include "atoll/train/model/bf16_choice.h"
#include "atoll/train/model/memory_check.h"
#include "atoll/train/model/run_device.h"
#include "atoll/train/ranks/cpu_share.h"
#include "atoll/train/report/trace_request.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

void make_run_directory(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (!error) return;
  throw user_error("cannot make the run directory {}: {}; give run.dir a place you may write to",
                   dir, error.message());
}

void resume(TrainRun& run, const ckpt::CheckpointInfo& newest) {
  check_same_run(run.config, run.settings, run.corpus->hash(), read_position(newest.path),
                 /*tells=*/run.is_lead());
  Position& position = run.position;
  const std::string bf16 = position.bf16;
  position = run.model->load(newest);
  position.bf16 = bf16;  // which device.bf16 may have changed
  run.saver.spare(position.held_out.best_steps());
  run.saver.go_on_from(position.step);
  if (position.step > run.config.train.steps && !run.is_island()) {
    throw user_error(
        "{} has taken {} already, and train.steps is {}; raise it, or choose another run.dir",
        run.config.run.dir, counted(position.step, "step"), run.config.train.steps);
  }
}

}  // namespace

void prepare_data(TrainRun& run) {
  const auto prepare = [&] {
    if (run.corpus) return;
    run.corpus.emplace(run.step_source != nullptr ? run.step_source->corpus()
                                                  : prepare_corpus(corpus_options(run.config)));
  };
  run.ranks().world().agree([&] {
    if (!run.is_lead()) return;
    const bool makes_tokens = !run.corpus && run.step_source == nullptr;
    if (makes_tokens) require_texts(run.config, run.settings);
    if (makes_tokens) check_before_tokens(run.config, run.model->device(), run.ranks().world());
    const std::string& dir = run.config.run.dir;
    make_run_directory(dir);
    run.lock = std::make_unique<ckpt::RunLock>(dir);
    take_back_request(dir);  // nobody waits for it since the last start
    sweep_unfinished(dir, [](std::string_view name) {
      return name == "settings.toml" || name == "metrics.jsonl" || name.starts_with("flight-rank");
    });
    prepare();
  });
  run.ranks().world().agree(prepare);
}

void open_state(TrainRun& run) {
  // What it refuses is told before memory is taken.
  if (run.step_source == nullptr) run.batches.emplace(run.config, *run.corpus);
  run.model->open(*run.corpus, run.ranks());
}

fs::path begin_or_resume(TrainRun& run) {
  comm::World& world = run.ranks().world();
  std::optional<ckpt::CheckpointInfo> newest;
  world.agree([&] {
    if (run.is_lead()) newest = run.saver.find_newest(run.model->device().threads());
  });
  // The others take the lead's word for which one is whole: each byte is verified once.
  std::int64_t step = newest ? newest->step : -1;
  run.ranks().group().broadcast({&step, {Dtype::kI64, {1}}}, 0);
  if (step >= 0 && !newest) newest = run.saver.at(step);
  std::string bf16, reference_hash;
  world.agree([&] {
    if (!newest) return;
    const Position position = read_position(newest->path);
    bf16 = position.bf16;
    reference_hash = position.reference_hash;
  });
  agree_on_bf16(run, bf16, 0);
  prepare_references(run, reference_hash);
  world.agree([&] {
    if (newest) {
      resume(run, *newest);
    } else {
      run.model->initialise();
    }
  });
  Position& position = run.position;
  run.first_step = position.step;
  const std::string trained_beside = position.base_hash, trained_on = position.gpu;
  describe_position(run);
  if (newest && run.is_lead()) tell_other_device(trained_on, position.gpu);
  world.agree([&] {
    if (!newest) return;
    check_same_base(position.base_hash, run.model->base(), newest->path, trained_beside);
    if (!run.is_lead()) return;
    run.saver.set_aside_newer();
    log::info("going on from {} (step {})", newest->path.string(), position.step);
  });
  return newest ? newest->path : fs::path();
}

void describe_position(TrainRun& run) {
  run.position.corpus_hash = run.corpus->hash();
  run.position.base_hash = hash_of_frozen(run.state());
  if (needs_reference(run.config)) run.position.reference_hash = run.model->references().hash();
  run.position.gpu = describe_gpu(run.config, run.model->device(), run.ranks().world().size());
  run.position.settings = written_key_values(run.settings);
}

void agree_on_bf16(TrainRun& run, const std::string& before, int decider) {
  if (is_gpu(run.model->device())) return;  // which has one way to multiply
  std::string& known = run.position.bf16;
  known = agree_on_bf16(run.config, run.ranks(), before, decider, known);
}

void measure_rates(TrainRun& run) {
  Run with = run.model->run();
  auto memory = static_cast<std::int64_t>(run.state().memory().total_bytes());
  if (!run.ranks().is_alone()) {
    run.ranks().group().all_reduce({&memory, {Dtype::kI64, {1}}}, comm::Reduce::kMax);
  }
  run.reporter.set_rates(
      {.num_ranks = run.ranks().size(),
       .flops_per_token = nn::flops_per_token(run.state().model(), run.config.train.context),
       .peak_flops = measure_peak_of_all(run.ranks(), with),
       .most_memory = memory});
}

}  // namespace atl::train
