#include "atoll/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/log.h"
#include "atoll/base/paths.h"
#include "atoll/base/unfinished.h"
#include "atoll/island/protocol/identity.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/chat.h"
#include "atoll/ops/bf16_arithmetic.h"
#include "atoll/train/cpu_share.h"
#include "atoll/train/options.h"
#include "atoll/train/room.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

int threads_of(const TrainConfig& config, const comm::World& world) {
  if (config.device.threads > 0 || world.size() == 1)
    return static_cast<int>(config.device.threads);
  return std::max(1, available_cpus() / ranks_here(world));
}

fs::path make_run_directory(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) {
    throw user_error("cannot make the run directory {}: {}; give run.dir a place you may write to",
                     dir, error.message());
  }
  return dir;
}

// What the settings, or the steps before, say that multiplies bf16 here, else what is faster.
ops::Bf16Arithmetic choose_bf16(const TrainConfig& config, const std::string& before) {
  if (config.device.bf16 != "auto" || before.empty()) return ops::bf16_arithmetic();
  if (before == ops::bf16_arithmetic_name(ops::Bf16Arithmetic::kF32)) {
    return ops::Bf16Arithmetic::kF32;
  }
  if (ops::has_library_bf16()) return ops::Bf16Arithmetic::kLibrary;
  log::warning(
      "the run has multiplied with bf16 instructions so far, which this CPU lacks: from "
      "here on its bits are others");
  return ops::Bf16Arithmetic::kF32;
}

// Says what was chosen, and why.
void announce_bf16(const TrainConfig& config, bool is_as_before) {
  const double speedup = is_as_before ? 0 : ops::bf16_library_speedup();
  log::info("bf16 products: {} (device.bf16={}; {})",
            ops::bf16_arithmetic_name(ops::bf16_arithmetic()), config.device.bf16,
            is_as_before  ? "as in the steps before"
            : speedup > 0 ? fmt::format("the library is {:.1f} times as fast as f32", speedup)
                          : "this CPU has no bf16 instructions");
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Settings& settings)
    : Trainer(config, settings, comm::open_self()) {}

Trainer::Trainer(const TrainConfig& config, const Settings& settings,
                 std::unique_ptr<comm::World> own)
    : config_(config), settings_(settings), own_world_(std::move(own)), world_(own_world_.get()) {
  prepare();
}

Trainer::Trainer(const TrainConfig& config, const Settings& settings, comm::World& world)
    : config_(config), settings_(settings), world_(&world) {
  prepare();
}

Trainer::Trainer(const TrainConfig& config, const Settings& settings, Membership& membership)
    : config_(config), settings_(settings), membership_(&membership) {
  if (config.parallel.tp > 1) {
    throw user_error(
        "parallel.tp = {}: ranks that come and go cannot share products yet; start them with "
        "`atoll train -n`, mpirun or srun",
        config.parallel.tp);
  }
  if (membership.joins()) {
    dir_ = config.run.dir;
    corpus_.emplace(prepare_corpus(corpus_options(config)));
  }
  own_world_ = membership.next();
  world_ = own_world_.get();
  prepare();
}

void Trainer::prepare() {
  const std::vector<Hello> hellos = enter_world();
  const bool is_under_way = std::any_of(hellos.begin(), hellos.end(),
                                        [](const Hello& hello) { return hello.has_state != 0; });
  if (is_under_way) {
    prepare_device();
    take_over(hellos);
    return;
  }
  prepare_data();
  prepare_device();
  world_->agree([&] {
    require_held_out(config_, *corpus_);
    if (!config_.model.from.empty()) base_ = model_dir::find_model(config_.model.from);
    open_state(*corpus_);
  });
  begin_or_resume();
  begin();
}

// The lead makes what the others then find.
void Trainer::prepare_data() {
  dir_ = config_.run.dir;
  world_->agree([&] {
    if (!ranks_->is_lead()) return;
    if (!corpus_) check_before_tokens(config_, *world_);
    make_run_directory(config_.run.dir);
    lock_ = std::make_unique<ckpt::RunLock>(dir_);
    sweep_unfinished(dir_, [](std::string_view name) {
      return name == "settings.toml" || name == "metrics.jsonl" || name.starts_with("flight-rank");
    });
    if (!corpus_) corpus_.emplace(prepare_corpus(corpus_options(config_)));
  });
  world_->agree([&] {
    if (!corpus_) corpus_.emplace(prepare_corpus(corpus_options(config_)));
  });
}

void Trainer::prepare_device() {
  apply_bf16(config_);
  device_ = open_device({.threads = threads_of(config_, *world_)});
  stream_ = device_->open_stream();
  schedule_ = {.kind = optim::schedule_kind(config_.optim.schedule),
               .peak = config_.optim.lr,
               .min_ratio = config_.optim.min_lr_ratio,
               .warmup_steps = config_.optim.warmup_steps,
               .total_steps = config_.train.steps,
               .decay_fraction = config_.optim.decay_fraction};
}

// One rank decides for all, and once for the run: where nothing is set, what is faster is measured,
// and a measurement may come out otherwise the next time. `before`: what checkpoint or ranks say.
void Trainer::agree_on_bf16(const std::string& before, int decider) {
  if (config_.train.dtype != "bf16") return;
  std::int64_t choice = -1;
  if (ranks_->rank() == decider) choice = static_cast<std::int64_t>(choose_bf16(config_, before));
  ranks_->group().broadcast({&choice, {Dtype::kI64, {1}}}, decider);
  const auto arithmetic = static_cast<ops::Bf16Arithmetic>(choice);
  world_->agree([&] { ops::set_bf16_arithmetic(arithmetic); });
  const std::string_view name = ops::bf16_arithmetic_name(arithmetic);
  if (ranks_->is_lead() && position_.bf16 != name) {
    announce_bf16(config_, config_.device.bf16 == "auto" && before == name);
  }
  position_.bf16 = name;
}

// What follows once parameters and optimizer state are there.
void Trainer::begin() {
  if (state_->replica() != nullptr) {
    state_->replica()->synchronise(ranks_->shard(), state_->optimizer());
  }
  world_->agree([&] {
    if (ranks_->is_lead()) open_log();
  });
}

void Trainer::open_log() {
  jsonl_ = std::make_unique<metrics::JsonlSink>(dir_ / "metrics.jsonl",
                                                position_.step == 0 ? -1 : position_.step);
  write_file(dir_ / "settings.toml", settings_.to_toml());
}

Trainer::~Trainer() = default;

fs::path Trainer::checkpoint_root() const {
  return dir_ / "checkpoints";
}

void Trainer::open_state(const PreparedCorpus& corpus) {
  // Both of these tell the user before memory is taken.
  samples_.emplace(corpus, config_.data.weights, static_cast<std::uint64_t>(config_.run.seed),
                   config_.train.context,
                   data::parse_packing(config_.data.packing, "data.packing"));
  const std::int32_t eos = corpus.tokenizer.end_of_text().value_or(-1);
  state_ = std::make_unique<TrainState>(
      state_options(config_, corpus.vocab_size(), eos, ranks_->size(), ranks_->rank()));
  check_memory(state_->memory().total_bytes(), *world_);
  state_->allocate(*device_);
  state_->connect(ranks_->data(), ranks_->shard(), ranks_->replicate());
  if (ranks_->tensor_size() > 1) {
    kv_copies_ = ranks_->kv_copies(*state_->model().kv_copies);
    state_->connect_tensor(ranks_->group(), ranks_->tensor(), *kv_copies_);
  }
  if (config_.model.from.empty()) {
    carried_ = new_carried(corpus.tokenizer, state_->model().config);
  } else {
    carried_ = read_carried(base_);
    if (!carry_tokenizer(corpus.tokenizer, state_->model().config, carried_) && ranks_->is_lead()) {
      log::warning(
          "the tokens were made with another tokenizer than the one in {}; checkpoints have the "
          "former, and the model must learn its tokens anew",
          base_.string());
    }
  }
  const fs::path chat_template = config_.data.chat_template;
  if (file_exists(chat_template)) {
    carried_["chat_template.jinja"] = read_file(chat_template);
  }
  stop_at_end_of_turn(corpus.tokenizer);
}

// A chat model stops where its template ends an answer.
void Trainer::stop_at_end_of_turn(const Tokenizer& tokenizer) {
  const fs::path given = config_.data.chat_template;
  const bool has_own =
      carried_.contains("chat_template.jinja") ||
      (carried_.contains("tokenizer_config.json") &&
       carried_["tokenizer_config.json"].find("\"chat_template\"") != std::string::npos);
  if (given.empty() && (!has_own || base_.empty())) return;
  model_dir::EndOfTurn end;
  try {
    end = model_dir::end_of_turn(model_dir::find_chat_template(given, base_, tokenizer), tokenizer);
  } catch (const Error& error) {
    // Whoever renders messages with it ends with this error; other data has no need of it.
    if (ranks_->is_lead()) log::warning("where answers end is not known: {}", error.what());
    return;
  }
  if (end.token) {
    std::string& config = carried_["generation_config.json"];
    config = model_dir::with_stop_token(config, *end.token);
  } else if (ranks_->is_lead()) {
    log::warning("{}", model_dir::problem_of(end));
  }
}

void Trainer::begin_or_resume() {
  Run run = {.stream = stream_.get()};
  std::optional<ckpt::CheckpointInfo> newest;
  world_->agree([&] {
    if (!ranks_->is_lead()) return;
    ckpt::clean_stale(checkpoint_root());
    newest = ckpt::newest_verified(checkpoint_root(), &device_->threads());
  });
  // The others take the lead's word for which one is whole: each byte is verified once.
  std::int64_t step = newest ? newest->step : -1;
  ranks_->group().broadcast({&step, {Dtype::kI64, {1}}}, 0);
  if (step >= 0 && !newest) newest = ckpt::checkpoint_at(checkpoint_root(), step);
  std::string bf16;
  world_->agree([&] {
    if (newest) bf16 = read_position(newest->path).bf16;
  });
  agree_on_bf16(bf16, 0);
  world_->agree([&] {
    if (newest) {
      resume(*newest);
      return;
    }
    state_->store().initialise(run, static_cast<std::uint64_t>(config_.run.seed));
    if (!base_.empty()) load_base();
    state_->optimizer().init_masters(run, state_->store().values());
  });
  first_step_ = position_.step;
  position_.corpus_hash = corpus_->hash();
  position_.base_hash = hash_of_frozen(state_->store());
  position_.settings = settings_.key_values();
  if (!config_.island.coordinator.empty()) open_rounds(newest ? newest->path : fs::path());
  peak_flops_ = measure_peak_of_all(*ranks_, run);
}

void Trainer::resume(const ckpt::CheckpointInfo& newest) {
  check_settings_of(read_position(newest.path));
  if (config_.lora.rank > 0) load_base();
  check_base_of(newest.path, read_position(newest.path).base_hash);
  const std::string bf16 = position_.bf16;
  position_ = load_checkpoint(newest, *state_, device_->threads());
  position_.bf16 = bf16;  // which device.bf16 may have changed
  saved_step_ = position_.step;
  last_checkpoint_ = newest.path;
  if (position_.step > config_.train.steps && config_.island.coordinator.empty()) {
    throw user_error(
        "{} has taken {} already, and train.steps is {}; raise it, or choose another run.dir",
        config_.run.dir, counted(position_.step, "step"), config_.train.steps);
  }
  if (!ranks_->is_lead()) return;
  ckpt::set_aside_newer(checkpoint_root(), newest.step);
  log::info("going on from {} (step {})", newest.path.string(), position_.step);
}

// What islands must have in common: all that decides what a step does, but for how an island
// computes it, and where it has a model from: that is seen in what the model is.
island::RunIdentity Trainer::identity() const {
  std::vector<std::pair<std::string, std::string>> common;
  for (const Setting& setting : settings_.all()) {
    if (setting.scope == Scope::kRun) common.emplace_back(setting.key, setting.toml());
  }
  const auto hash = [](const std::string& text) {
    return to_hex(hash_bytes(text.data(), text.size()));
  };
  const bool is_private = config_.outer.data == "private";
  return {.run = fmt::format("seed {}", config_.run.seed),
          .version = island::kProtocolVersion,
          .model = hash(nn::config_json(state_->model().config)),
          .tokenizer = hash(corpus_->tokenizer.file_content()),
          .data = is_private ? "private" : corpus_->hash(),
          .settings = island::settings_text(common)};
}

void Trainer::open_rounds(const fs::path& checkpoint) {
  rounds_ = std::make_unique<IslandRounds>(config_, identity(), *state_, *ranks_);
  rounds_->begin(checkpoint);
}

void Trainer::load_base() {
  model_dir::load_parameters(base_, state_->model(), state_->store(), device_->threads());
}

// An adapter goes on beside the weights it has learnt beside, wherever these are now.
void Trainer::check_base_of(const fs::path& checkpoint, const std::string& base_hash) const {
  if (base_hash.empty() || base_hash == hash_of_frozen(state_->store())) return;
  const fs::path config = checkpoint / model_dir::kAdapterConfigFile;
  throw user_error(
      "the weights in {} are not those that the adapter {} was trained beside, which were in {}; "
      "set model.from to these, or choose another run.dir",
      base_.string(), checkpoint.string(),
      model_dir::parse_adapter_config(read_file(config), config.string()).base);
}

// What the steps taken so far depend on must be as it was; the rest may change, and is told.
void Trainer::check_settings_of(const Position& position) const {
  const std::string hash = corpus_->hash();
  if (position.corpus_hash != hash) {
    throw user_error(
        "the corpus is not the one that {} was trained on (hash {} against {}); give back the same "
        "text and data.* settings, or choose another run.dir",
        config_.run.dir, hash, position.corpus_hash);
  }
  const std::map<std::string, std::string> before(position.settings.begin(),
                                                  position.settings.end());
  for (const Setting& setting : settings_.all()) {
    const auto was = before.find(setting.key);
    if (was == before.end() || was->second == setting.toml()) continue;
    if (setting.is_fixed) {
      throw user_error(
          "{} is {} and was {} in the {} already taken in {}; set it back, or choose another "
          "run.dir",
          setting.key, setting.toml(), was->second, counted(position.step, "step"),
          config_.run.dir);
    }
    if (ranks_->is_lead()) {
      log::info("{} is now {}, was {}", setting.key, setting.toml(), was->second);
    }
  }
}

}  // namespace atl::train
