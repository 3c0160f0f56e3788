#include "atoll/tune/trial/study.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/tune/schedule/registry.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

constexpr double kMaxCount = 1e6;

bool is_of_study(std::string_view key) {
  const std::string_view group = key.substr(0, key.find('.'));
  return group == "study" || group == "budget" || group == "rungs" || group == "pbt" ||
         group == "task";
}

// A recipe is a TOML file, too: it has groups that no study has, and lacks those of one.
void refuse_recipe(const std::vector<TomlEntry>& entries, const std::string& origin) {
  const auto is_of = [](const TomlEntry& entry, std::initializer_list<const char*> groups) {
    const std::string group = entry.key.substr(0, entry.key.find('.'));
    return std::find(groups.begin(), groups.end(), group) != groups.end();
  };
  const bool is_study = std::any_of(entries.begin(), entries.end(), [&](const TomlEntry& entry) {
    return is_of(entry, {"study", "space"});
  });
  const bool is_recipe = std::any_of(entries.begin(), entries.end(), [&](const TomlEntry& entry) {
    return is_of(entry, {"run", "model", "data", "train", "optim"});
  });
  if (is_study || !is_recipe) return;
  throw user_error(
      "{} is a recipe and no study: `atoll train {}` runs it; a study names it (study.recipe) and "
      "what may change (space), as recipes/kjv-study.toml does",
      origin, origin);
}

}  // namespace

Settings make_study_settings(StudySettings& s) {
  Settings settings;
  settings.group("study", "The study as a whole.");
  settings.add("study.recipe", &s.recipe, "TOML file of the run that is tuned.");
  settings.add("study.dir", &s.dir,
               "Directory of the store and of the trials' runs; made if missing.");
  settings.add("study.seed", &s.seed, "Decides what is suggested, and every draw of PBT.",
               between(0, 0x1p53));
  settings.add(
      "study.workers", &s.workers,
      "Trials that are trained at once on this machine; CPU threads are shared out. 0: none, "
      "with study.listen.",
      between(0, 1024));
  settings.add("study.ranks", &s.ranks,
               "Ranks of each trial, as threads of one process: `atoll train -n`.",
               between(1, 1024));
  settings.add(
      "study.islands", &s.islands,
      "Islands of each trial, each a process: `atoll train --islands`. Then outer.* can be "
      "in the space.",
      between(1, 1024));
  settings.add(
      "study.listen", &s.listen,
      "HOST:PORT at which workers on other machines (`atoll tune work`) are leased trials; "
      "empty: there are none.");
  settings.add("study.identity", &s.identity,
               "Directory with the tuner's certificate (atoll certs issue); needed unless HOST of "
               "study.listen is this machine.");
  settings.add(
      "study.secret", &s.secret,
      "File with a secret that workers of this machine must know, made if missing; instead "
      "of study.identity.");
  settings.add("study.lease_s", &s.lease_s,
               "Seconds after which the trials of a worker that is gone are leased to others.",
               between(0.1, 86400));
  settings.add("study.searcher", &s.searcher, "What suggests the next trial.",
               Choices{searcher_names()});
  settings.add("study.scheduler", &s.scheduler, "What decides which trial goes on.",
               Choices{scheduler_names()});
  settings.add(
      "study.objective", &s.objective,
      "What is made small: held_out_loss, held_out_bits_per_byte, loss, seconds_to_loss, "
      "tokens_to_loss, or any other number of metrics.jsonl; what is made large: task (the share "
      "of right answers), tokens_per_s, mfu, or any with max: before it. Several: the Pareto "
      "front.");
  settings.add("study.target_loss", &s.target_loss,
               "seconds_to_loss and tokens_to_loss: the held-out loss that is to be reached.",
               at_least(0));
  settings.add("study.startup", &s.startup,
               "tpe and gp: quasi-random trials before the model of results is used.",
               between(2, 1000));
  settings.add("study.prior", &s.prior,
               "What is tried first: recipe (its own settings), step-law (learning rate and batch "
               "size by model and tokens), or directories of earlier studies (their best three).");
  settings.add("study.keep", &s.keep,
               "Whose checkpoints stay when a trial is over: those of the best, or all.",
               one_of({"best", "all"}));
  settings.group("budget", "When a study is over: at the first of these that is not 0.");
  settings.add("budget.trials", &s.trials, "Trials that are suggested.", between(0, kMaxCount));
  settings.add("budget.tokens", &s.tokens, "Tokens that all trials together are trained on.",
               between(0, 0x1p53));
  settings.add("budget.hours", &s.hours,
               "Hours of this command, all its starts together; what is under way is finished.",
               between(0, 1e6));
  settings.group("rungs", "Steps at which trials are compared (median, asha, hyperband).");
  settings.add("rungs.min_steps", &s.min_steps,
               "asha, hyperband: the first rung; 0: train.steps / eta^3. median: no trial stops "
               "before it; 0: a quarter of train.steps.",
               between(0, 1e12));
  settings.add("rungs.eta", &s.eta,
               "asha, hyperband: each rung has so many times the steps of the one below, and one "
               "of so many trials goes on.",
               between(2, 16));
  settings.add("rungs.every", &s.every, "median: steps between rungs; 0: train.steps / 16.",
               between(0, 1e12));
  settings.add("rungs.decay", &s.decay,
               "run: a trial goes on from its checkpoint, and the learning rate moves as over the "
               "whole run. rung: each rung is trained from the beginning and decays to its end, "
               "as a short run would. auto: rung where optim.schedule is cosine or linear, for "
               "losses under an unfinished decay rank wrongly; else run.",
               one_of({"auto", "run", "rung"}));
  settings.group("pbt", "Population Based Training.");
  settings.add("pbt.population", &s.population, "Members.", between(2, 1000));
  settings.add("pbt.interval", &s.interval,
               "Steps between two times that the worst take over from the best; 0: train.steps / "
               "10.",
               between(0, 1e12));
  settings.add("pbt.quantile", &s.quantile, "Share that is worst, and that is best.",
               between(0.01, 0.5));
  settings.add("pbt.resample", &s.resample,
               "Chance that a setting is drawn anew; otherwise it is multiplied by 1.2 or 0.8.",
               between(0, 1));
  settings.add("pbt.explore", &s.explore,
               "How a member that takes over gets other settings. perturb: pbt.resample. pb2: a "
               "Gaussian process of what each interval changed says where the next may change most "
               "(PB2); by chance until it has seen two intervals.",
               one_of({"perturb", "pb2"}));
  settings.group("task", "The objective task.");
  settings.add("task.file", &s.task, "JSONL file as of `atoll eval --task`.");
  settings.add("task.limit", &s.task_limit, "Only the first items; 0: all.", between(0, 1e9));
  return settings;
}

std::string to_recipe(const Settings& settings,
                      const std::vector<std::pair<std::string, std::string>>& changed,
                      const std::string& remark) {
  std::string text;
  std::string group;
  for (const Setting& setting : settings.all()) {
    const auto found = std::find_if(changed.begin(), changed.end(),
                                    [&](const auto& entry) { return entry.first == setting.key; });
    if (found == changed.end() && setting.is_default()) continue;
    const std::size_t dot = setting.key.find('.');
    if (const std::string mine = setting.key.substr(0, dot); mine != group) {
      group = mine;
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", group);
    }
    const std::string name = setting.key.substr(dot + 1);
    if (found == changed.end()) {
      text += fmt::format("{} = {}\n", name, setting.toml());
    } else {
      text +=
          fmt::format("{} = {}{}\n", name, found->second, remark.empty() ? "" : "  # " + remark);
    }
  }
  return text;
}

Study::Study(const fs::path& path, const std::vector<std::string>& overrides)
    : origin_(path.string()), registry_(make_study_settings(settings_)) {
  if (!path_exists(path))
    throw user_error("there is no study file {}{}", origin_, advice_for_absent(path));
  std::vector<TomlEntry> space;
  std::vector<TomlEntry> entries = parse_toml(read_file(path, kMaxFileBytes), origin_);
  refuse_recipe(entries, origin_);
  for (TomlEntry& entry : entries) {
    if (entry.key == "space" || entry.key.starts_with("space.")) {
      if (entry.key != "space") space.push_back(std::move(entry));
    } else {
      registry_.take(entry, origin_);
    }
  }
  std::vector<std::string> of_recipe;
  for (const std::string& override : overrides) {
    if (is_of_study(std::string_view(override).substr(2))) {
      registry_.override(override);
    } else {
      of_recipe.push_back(override);
    }
  }
  space_ = parse_space(space, origin_);
  if (settings_.recipe.empty()) {
    throw user_error("{}: study.recipe is not set; name the recipe that is tuned", origin_);
  }
  if (settings_.dir.empty()) {
    throw user_error(
        "{}: study.dir is not set; say where the study may write, e.g. "
        "\"studies/first\"",
        origin_);
  }
  for (const std::string& override : of_recipe) {
    if (override.starts_with("--run.dir=")) {
      throw user_error("--run.dir is for one run; say --study.dir where the study may write");
    }
  }
  of_recipe.push_back("--run.dir=" + settings_.dir);
  recipe_ = std::make_unique<train::Recipe>(settings_.recipe, of_recipe);
  read_objectives();
  check();
  recipe_toml_ = to_recipe(recipe_->settings(), {}, "");
}

void Study::read_objectives() {
  for (std::string name : settings_.objective) {
    Objective objective = {.name = name,
                           .maximise = name == "task" || name == "tokens_per_s" || name == "mfu"};
    for (const auto& [prefix, maximise] : {std::pair("max:", true), std::pair("min:", false)}) {
      if (!name.starts_with(prefix)) continue;
      objective = {.name = name.substr(4), .maximise = maximise};
    }
    for (const Objective& other : objectives_) {
      if (other.name == objective.name) {
        throw user_error("{}: study.objective names {} twice", origin_, name);
      }
    }
    objectives_.push_back(std::move(objective));
  }
  if (objectives_.empty()) {
    throw user_error(
        "{}: study.objective is empty; name what is to be made small, e.g. "
        "[\"held_out_loss\"]",
        origin_);
  }
}

void Study::check() {
  check_recipe();
  check_budget();
  check_scheduler();
  const bool wants_target = std::any_of(
      objectives_.begin(), objectives_.end(),
      [](const Objective& o) { return o.name == "seconds_to_loss" || o.name == "tokens_to_loss"; });
  if (wants_target && settings_.target_loss <= 0) {
    throw user_error(
        "{}: the objective is the way to a loss, and study.target_loss does not say "
        "which",
        origin_);
  }
  if (wants_target && recipe_->config().eval.every == 0) {
    throw user_error(
        "{}: the objective is the way to a loss, which is only seen at evaluations; "
        "set eval.every",
        origin_);
  }
  const bool wants_task = std::any_of(objectives_.begin(), objectives_.end(),
                                      [](const Objective& o) { return o.name == "task"; });
  if (wants_task != !settings_.task.empty()) {
    throw user_error("{}: {}", origin_,
                     wants_task ? "the objective is task, and task.file does not say which"
                                : "task.file is set, and study.objective does not have task");
  }
  if (objectives_.size() > 1 && settings_.searcher == "cma-es") {
    throw user_error("{}: cma-es knows one objective, and study.objective has {}; take gp or tpe",
                     origin_, objectives_.size());
  }
}

void Study::check_recipe() {
  const train::TrainConfig& config = recipe_->config();
  const auto refuse = [&](const char* key, const char* why) {
    if (space_.find(key) >= 0) {
      throw user_error("{}: space.{}: {}", origin_, key, why);
    }
  };
  refuse("run.dir", "every trial has a directory of its own; leave it out");
  refuse("train.stop_after", "the scheduler decides that; leave it out");
  refuse("train.early_stop", "the scheduler decides that; leave it out");
  if (!config.island.coordinator.empty()) {
    throw user_error(
        "island.coordinator is set, and each trial has a coordinator of its own; leave it out of "
        "{}, and say how many islands a trial has with study.islands",
        settings_.recipe);
  }
  for (const Dimension& d : space_.dimensions()) {
    if (d.key.starts_with("island.") || d.key == "outer.islands") {
      throw user_error("{}: space.{}: that is the same for all trials; leave it out", origin_,
                       d.key);
    }
    if (d.key.starts_with("outer.") && settings_.islands == 1) {
      throw user_error(
          "{}: space.{}: a trial of one island has no outer steps; say how many it has with "
          "study.islands",
          origin_, d.key);
    }
  }
  check_ranks();
  const std::string& metrics = config.metrics.listen;
  if (settings_.workers > 1 && !metrics.empty() && !metrics.ends_with(":0")) {
    throw user_error(
        "metrics.listen is {} in {}, and {} trials side by side cannot all listen there; give port "
        "0, or leave it out and say `atoll tune --metrics-listen={}` for the study's own metrics",
        metrics, settings_.recipe, settings_.workers, metrics);
  }
  if (config.train.stop_after > 0) {
    throw user_error("train.stop_after is set, and the scheduler decides that; leave it out of {}",
                     settings_.recipe);
  }
  if (config.train.early_stop > 0) {
    throw user_error(
        "train.early_stop is set, and the scheduler decides which trial ends early; leave it out "
        "of "
        "{}, or set scheduler = \"median\"",
        settings_.recipe);
  }
}

void Study::check_ranks() {
  const train::TrainConfig& config = recipe_->config();
  const StudySettings& s = settings_;
  const std::int64_t shape =
      config.parallel.tp * config.parallel.pp * config.parallel.cp * config.parallel.ep;
  if (s.ranks == 1 && (shape != 1 || config.parallel.layout != "manual")) {
    throw user_error("parallel.* is set, and a trial has one rank; say how many with study.ranks");
  }
  if (s.ranks > 1 && s.islands > 1) {
    throw user_error(
        "{}: study.ranks is {} and study.islands {}: islands of a trial have one rank each; leave "
        "one of the two out",
        origin_, s.ranks, s.islands);
  }
  if (s.islands > 1 && (s.scheduler == "median" || s.scheduler == "pbt")) {
    throw user_error(
        "{}: {} stops and changes runs under way, and one of several islands only ends as a whole; "
        "take study.scheduler none, asha or hyperband",
        origin_, s.scheduler);
  }
  const bool wants_task = !s.task.empty();
  if (s.islands > 1 && (wants_task || s.target_loss > 0)) {
    throw user_error(
        "{}: study.islands is {}, and {} is of one island; make held_out_loss or loss the "
        "objective",
        origin_, s.islands, wants_task ? "task.file" : "study.target_loss");
  }
  if (s.workers == 0 && s.listen.empty()) {
    throw user_error(
        "{}: study.workers is 0, and nobody else trains; say with study.listen where workers on "
        "other machines may call, or set it to at least 1",
        origin_);
  }
  if (!s.identity.empty() && !s.secret.empty()) {
    throw user_error(
        "{}: study.identity and study.secret are both set; a certificate needs no secret beside "
        "it, "
        "so leave one of the two out",
        origin_);
  }
  if (s.listen.empty() && (!s.identity.empty() || !s.secret.empty())) {
    throw user_error("{}: {} is for study.listen, which is not set", origin_,
                     s.identity.empty() ? "study.secret" : "study.identity");
  }
}

void Study::check_budget() {
  const bool is_grid = settings_.searcher == "grid";
  if (is_grid && !settings_.prior.empty()) {
    throw user_error("{}: grid tries every point in its own order; leave study.prior out", origin_);
  }
  if (is_grid) {
    for (const Dimension& d : space_.dimensions()) {
      if (d.num_values() > 0) continue;
      throw user_error("{}: space.{}: grid needs a list of values; give choices", origin_, d.key);
    }
    if (space_.num_points() == 0) {
      throw user_error("{}: the grid has more points than can be counted; name fewer values",
                       origin_);
    }
  }
  if (settings_.scheduler == "pbt" || is_grid) return;
  if (settings_.trials == 0 && settings_.tokens == 0 && settings_.hours == 0) {
    throw user_error("{}: the study has no end; set budget.trials, budget.tokens or budget.hours",
                     origin_);
  }
}

void Study::check_scheduler() {
  StudySettings& s = settings_;
  if (recipe_->config().train.epochs > 0) {
    throw user_error(
        "{}: trials are compared by their steps, and train.epochs leaves these to the "
        "data; give train.steps",
        origin_);
  }
  const std::int64_t steps = max_steps();
  const std::string& schedule = recipe_->config().optim.schedule;
  const bool decays = schedule == "cosine" || schedule == "linear";
  // A run of islands ends as a whole, so a longer one begins anew.
  if (s.islands > 1 && s.decay == "run" && s.scheduler != "none") {
    throw user_error(
        "{}: rungs.decay = \"run\" goes on from a checkpoint, and a run of several islands ends as "
        "a whole; take rungs.decay = \"rung\"",
        origin_);
  }
  continues_ = s.decay == "run" || (s.decay == "auto" && !decays && s.islands == 1) ||
               s.scheduler == "none" || s.scheduler == "median" || s.scheduler == "pbt";
  if (s.decay == "rung" && continues_) {
    throw user_error(
        "{}: rungs.decay = \"rung\" is for asha and hyperband, and study.scheduler is "
        "{}; leave it out",
        origin_, s.scheduler);
  }
  if (s.scheduler != "none" && objectives_.size() > 1) {
    throw user_error(
        "{}: {} compares trials by one objective, and study.objective has {}; take "
        "study.scheduler = \"none\"",
        origin_, s.scheduler, objectives_.size());
  }
  const std::int64_t cube = s.eta * s.eta * s.eta;
  if (s.min_steps == 0) {
    s.min_steps = std::max<std::int64_t>(1, s.scheduler == "median" ? steps / 4 : steps / cube);
  }
  if (s.every == 0) s.every = std::max<std::int64_t>(1, steps / 16);
  if (s.interval == 0) s.interval = std::max<std::int64_t>(1, steps / 10);
  const auto below = [&](const char* key, std::int64_t value) {
    if (value <= steps) return;
    throw user_error("{}: {} is {}, and train.steps is {}; it must be at most that", origin_, key,
                     value, steps);
  };
  if (s.scheduler != "none" && s.scheduler != "pbt") below("rungs.min_steps", s.min_steps);
  if (s.scheduler == "median") below("rungs.every", s.every);
  if (s.scheduler == "asha" || s.scheduler == "hyperband" || s.scheduler == "median") {
    // A trial that takes other steps than its neighbours could not be compared with them.
    for (const char* key : {"train.steps", "train.batch_size", "train.context"}) {
      if (space_.find(key) < 0 || std::string_view(key) != "train.steps") continue;
      throw user_error("{}: space.{}: {} compares trials at equal steps; leave it out", origin_,
                       key, s.scheduler);
    }
  }
  if (s.scheduler != "pbt") return;
  below("pbt.interval", s.interval);
  if (s.searcher != "random" && s.searcher != "quasi-random" && s.searcher != "grid" &&
      !registry_.find("study.searcher").is_default()) {
    throw user_error(
        "{}: pbt searches by itself, from members that random, quasi-random or grid "
        "suggests; {} is none of them",
        origin_, s.searcher);
  }
  if (registry_.find("study.searcher").is_default()) s.searcher = "quasi-random";
  if (s.trials > 0) {
    throw user_error("{}: budget.trials is for other schedulers; pbt has pbt.population members",
                     origin_);
  }
  for (const Dimension& d : space_.dimensions()) {
    const Setting& setting = recipe_->settings().find(d.key);
    const std::string_view group = std::string_view(d.key).substr(0, d.key.find('.'));
    const bool is_shape = group == "model" || group == "data" || group == "lora";
    if (!setting.is_fixed && !is_shape && d.key != "train.steps") continue;
    throw user_error(
        "{}: space.{}: pbt changes settings while a run is under way, and steps that "
        "are taken depend on this one; leave it out",
        origin_, d.key);
  }
}

std::string Study::to_toml() const {
  return to_recipe(registry_, {}, "") + "\n" + space_.to_toml();
}

std::string Study::identity() const {
  std::string text = "format 1\n";
  for (const auto& [key, value] : registry_.key_values()) {
    // What may change between two starts: how much, where and how fast, not what.
    static const std::set<std::string> kFree = {"study.workers", "study.dir",    "study.keep",
                                                "study.recipe",  "study.listen", "study.identity",
                                                "study.secret",  "study.lease_s"};
    if (kFree.contains(key)) continue;
    if (key.starts_with("budget.")) continue;
    // Stores of programs that did not have these settings are of one rank.
    if ((key == "study.ranks" || key == "study.islands") && value == "1") continue;
    if (key == "study.prior" && settings_.prior.empty()) continue;
    text += fmt::format("{} {}\n", key, value);
  }
  std::string space = space_.describe();
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = space.find('\n', begin)) != space.npos; begin = end + 1) {
    text += "space." + space.substr(begin, end - begin + 1);
  }
  for (const Setting& setting : recipe_->settings().all()) {
    if (setting.is_default() || setting.scope == Scope::kHost || setting.key == "run.dir") continue;
    text += fmt::format("{} {}\n", setting.key, setting.toml());
  }
  return text;
}

}  // namespace atl::tune
