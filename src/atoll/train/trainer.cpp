#include "atoll/train/trainer.h"

#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/base/unfinished.h"
#include "atoll/train/bf16_choice.h"
#include "atoll/train/cpu_share.h"
#include "atoll/train/going_on.h"
#include "atoll/train/island/run_identity.h"
#include "atoll/train/missing_text.h"
#include "atoll/train/options.h"
#include "atoll/train/room.h"
#include "atoll/train/run_device.h"
#include "atoll/train/trace_request.h"
#include "atoll/train/written_settings.h"

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

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Settings& settings)
    : config_(config), settings_(settings), regrouping_(config) {
  prepare();
}

Trainer::Trainer(const TrainConfig& config, const Settings& settings, comm::World& world)
    : config_(config), settings_(settings), regrouping_(config, world) {
  prepare();
}

Trainer::Trainer(const TrainConfig& config, const Settings& settings, Membership& membership)
    : config_(config), settings_(settings), regrouping_(config, membership) {
  ATOLL_CHECK(!config.parallel.has_parts() || config.launch.replicate,
              "without copies, ranks that come and go cannot have parts of a model");
  if (membership.joins()) corpus_.emplace(prepare_corpus(corpus_options(config)));
  prepare();
}

Trainer::~Trainer() = default;

std::uint64_t Trainer::checkpoint_bytes() const {
  const nn::ParameterCount count = nn::count_parameters(state().model());
  constexpr std::int64_t kTrained = 12, kFrozen = 4;
  const std::int64_t trained = count.total - count.frozen;
  const std::int64_t frozen = config_.lora.rank > 0 ? 0 : count.frozen;
  return static_cast<std::uint64_t>(kTrained * trained + kFrozen * frozen);
}

void Trainer::observe(metrics::Observer& observer) {
  observer_ = &observer;
  saver_.observe(observer);
}

void Trainer::prepare() {
  require_chosen_layout(
      config_,
      "the planner chooses for ranks of one machine that `atoll train -n` starts; "
      "elsewhere set the layout that `atoll plan --ranks` prints first");
  schedule_ = schedule_of(config_);
  const std::vector<Hello> hellos = regrouping_.enter();
  check_servers();
  apply_bf16(config_);
  apply_attention(config_);
  comm::World& world = ranks().world();
  if (is_under_way(hellos)) {
    model_.emplace(config_, open_joining_device(config_, world));
    take_over(hellos);
    return;
  }
  model_.emplace(config_, open_run_device(config_, world));  // what it refuses is told first
  gpu_links_ = connect_gpus(config_, world, model_->device());
  prepare_data();
  ranks().world().agree([&] {
    require_held_out(config_, *corpus_);
    open_state();
  });
  begin_or_resume();
  model_->synchronise_replica(ranks());
  if (regrouping_.is_possible() && config_.parallel.has_parts()) {
    copies_.emplace(state(), ranks());
  }
  ranks().world().agree([&] {
    if (is_lead()) reporter_.open(config_.run.dir, position_.step, settings_);
  });
}

// The lead makes what the others then find.
void Trainer::prepare_data() {
  const auto prepare = [&] {
    if (!corpus_) corpus_.emplace(prepare_corpus(corpus_options(config_)));
  };
  ranks().world().agree([&] {
    if (!is_lead()) return;
    if (!corpus_) require_texts(config_, settings_);
    if (!corpus_) check_before_tokens(config_, model_->device(), ranks().world());
    make_run_directory(config_.run.dir);
    lock_ = std::make_unique<ckpt::RunLock>(config_.run.dir);
    take_back_request(config_.run.dir);  // nobody waits for it since the last start
    sweep_unfinished(config_.run.dir, [](std::string_view name) {
      return name == "settings.toml" || name == "metrics.jsonl" || name.starts_with("flight-rank");
    });
    prepare();
  });
  ranks().world().agree(prepare);
}

void Trainer::open_state() {
  batches_.emplace(config_, *corpus_);  // what it refuses is told before memory is taken
  model_->open(*corpus_, ranks());
}

void Trainer::begin_or_resume() {
  std::optional<ckpt::CheckpointInfo> newest;
  ranks().world().agree([&] {
    if (is_lead()) newest = saver_.find_newest(model_->device().threads());
  });
  // The others take the lead's word for which one is whole: each byte is verified once.
  std::int64_t step = newest ? newest->step : -1;
  ranks().group().broadcast({&step, {Dtype::kI64, {1}}}, 0);
  if (step >= 0 && !newest) newest = saver_.at(step);
  std::string bf16;
  ranks().world().agree([&] {
    if (newest) bf16 = read_position(newest->path).bf16;
  });
  agree_on_bf16(bf16, 0);
  ranks().world().agree([&] {
    if (newest) {
      resume(*newest);
    } else {
      model_->initialise();
    }
  });
  first_step_ = position_.step;
  const std::string trained_beside = position_.base_hash, trained_on = position_.gpu;
  describe_position();
  if (newest && is_lead()) tell_other_device(trained_on, position_.gpu);
  ranks().world().agree([&] {
    if (!newest) return;
    check_same_base(position_.base_hash, model_->base(), newest->path, trained_beside);
    if (!is_lead()) return;
    saver_.set_aside_newer();
    log::info("going on from {} (step {})", newest->path.string(), position_.step);
  });
  if (!config_.island.coordinator.empty()) {
    make_rounds();
    rounds_->begin(newest ? newest->path : fs::path());
  }
  if (config_.sync.mode == "ps") make_servers();
  measure_rates();
}

void Trainer::resume(const ckpt::CheckpointInfo& newest) {
  check_same_run(config_, settings_, corpus_->hash(), read_position(newest.path),
                 /*tells=*/is_lead());
  const std::string bf16 = position_.bf16;
  position_ = model_->load(newest);
  position_.bf16 = bf16;  // which device.bf16 may have changed
  saver_.spare(position_.held_out.best_steps());
  saver_.go_on_from(position_.step);
  if (position_.step > config_.train.steps && config_.island.coordinator.empty()) {
    throw user_error(
        "{} has taken {} already, and train.steps is {}; raise it, or choose another run.dir",
        config_.run.dir, counted(position_.step, "step"), config_.train.steps);
  }
}

// What the run goes on with, for its checkpoints.
void Trainer::describe_position() {
  position_.corpus_hash = corpus_->hash();
  position_.base_hash = hash_of_frozen(state());
  position_.gpu = describe_gpu(config_, model_->device(), ranks().world().size());
  position_.settings = written_key_values(settings_);
}

void Trainer::agree_on_bf16(const std::string& before, int decider) {
  if (is_gpu(model_->device())) return;  // which has one way to multiply
  position_.bf16 = train::agree_on_bf16(config_, ranks(), before, decider, position_.bf16);
}

void Trainer::make_rounds() {
  rounds_.emplace(config_, run_identity(config_, settings_, state().model().config, *corpus_),
                  state(), ranks(),
                  regrouping_.is_possible() ? OuterHolders::kLead : OuterHolders::kAllRanks);
}

// Of the ranks that there are now.
void Trainer::measure_rates() {
  Run run = model_->run();
  auto memory = static_cast<std::int64_t>(state().memory().total_bytes());
  if (!ranks().is_alone()) {
    ranks().group().all_reduce({&memory, {Dtype::kI64, {1}}}, comm::Reduce::kMax);
  }
  reporter_.set_rates(
      {.num_ranks = ranks().size(),
       .flops_per_token = nn::flops_per_token(state().model(), config_.train.context),
       .peak_flops = measure_peak_of_all(ranks(), run),
       .most_memory = memory});
}

}  // namespace atl::train
