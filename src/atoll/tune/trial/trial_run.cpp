#include "atoll/tune/trial/trial_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/checkpoint_hold.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/optim/schedule.h"
#include "atoll/train/checkpoint/resume_check.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

void check(const std::error_code& failure, const char* what, const fs::path& path) {
  if (failure) throw io_error(what, path, failure.value());
}

// Links every file of a directory, and of those in it; copies where the system has no links.
void link_tree(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::create_directories(to, failure);
  check(failure, "cannot make", to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    if (entry.is_directory()) {
      link_tree(entry.path(), target);
      continue;
    }
    if (!entry.is_regular_file()) continue;
    fs::create_hard_link(entry.path(), target, failure);
    if (!failure || failure == std::errc::file_exists) continue;
    fs::copy_file(entry.path(), target, fs::copy_options::skip_existing, failure);
    check(failure, "cannot copy to", target);
  }
}

// The same under another name first, so that it is there whole or not at all.
void link_whole(const fs::path& from, const fs::path& to) {
  const fs::path made = to.parent_path() / (".link-" + to.filename().string());
  std::error_code failure;
  fs::remove_all(made, failure);
  check(failure, "cannot remove", made);
  link_tree(from, made);
  fs::rename(made, to, failure);
  check(failure, "cannot put in place", to);
  sync_directory(to.parent_path());
}

// A value as a command line has it: words without quotes.
std::string argument_of(const std::string& toml) {
  if (!toml.starts_with('"')) return toml;
  return std::get<std::string>(parse_toml("word = " + toml, "").front().value);
}

bool is_rung_run(const Study& study) {
  return !study.continues();
}

bool has_islands(const Study& study) {
  return study.settings().islands > 1;
}

// Below the run's directory.
fs::path island_path(std::int64_t island) {
  return fs::path("islands") / fmt::format("island-{}", island);
}

// The records that the run has written, up to `step`.
std::vector<metrics::Record> records_of(const Study& study, const Trial& trial, std::int64_t step) {
  const fs::path path = log_dir(study, trial.number, step) / "metrics.jsonl";
  if (!path_exists(path)) return {};
  std::vector<metrics::Record> records = metrics::read_jsonl(path);
  // An island takes more steps where another is slower. Its run has ended: all of it counts.
  if (has_islands(study)) return records;
  std::erase_if(records, [&](const metrics::Record& record) { return record.step > step; });
  return records;
}

std::optional<double> number_in(const metrics::Record& record, const std::string& name) {
  for (const auto& [key, value] : record.values) {
    if (key != name) continue;
    if (const auto* number = std::get_if<double>(&value)) return *number;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      return static_cast<double>(*integer);
    }
    return std::numeric_limits<double>::quiet_NaN();  // "NaN", "Infinity"
  }
  return std::nullopt;
}

// Seconds that steps took after `from`, by the step lines; pauses and evaluations do not count.
class StepClock {
 public:
  explicit StepClock(std::int64_t from) : last_(from) {}
  void take(const metrics::Record& record) {
    const std::optional<double> ms = number_in(record, "step_ms");
    if (!ms || record.step <= last_) return;
    seconds_ += 1e-3 * *ms * static_cast<double>(record.step - last_);
    last_ = record.step;
  }
  double seconds() const { return seconds_; }

 private:
  std::int64_t last_;
  double seconds_ = 0;
};

double way_to_loss(const Study& study, const std::vector<metrics::Record>& records,
                   const std::string& name) {
  StepClock clock(0);
  double tokens = 0;
  for (const metrics::Record& record : records) {
    clock.take(record);
    tokens = number_in(record, "tokens").value_or(tokens);
    const std::optional<double> loss = number_in(record, "held_out_loss");
    if (!loss || !(*loss <= study.settings().target_loss)) continue;
    return name == "tokens_to_loss" ? tokens : clock.seconds();
  }
  return std::numeric_limits<double>::quiet_NaN();  // not reached: worse than any
}

double share_of_right_answers(const fs::path& path) {
  std::int64_t count = 0, right = 0;
  std::istringstream lines(read_file(path, kMaxLogBytes));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json item = parse_json(line, path.string());
    if (!item.contains("correct")) continue;  // a question that was left out
    ++count;
    right += item["correct"] == true ? 1 : 0;
  }
  if (count == 0) throw user_error("{} has no answer; give a task with questions", path.string());
  return static_cast<double>(right) / static_cast<double>(count);
}

double value_of(const Study& study, const Trial& trial, std::int64_t step,
                const std::vector<metrics::Record>& records, const std::string& name) {
  if (name == "task") return share_of_right_answers(task_results(study, trial.number, step));
  if (name == "seconds_to_loss" || name == "tokens_to_loss") {
    return way_to_loss(study, records, name);
  }
  std::set<std::string> names;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (const std::optional<double> value = number_in(*record, name)) return *value;
    for (const auto& [key, value] : record->values) names.insert(key);
  }
  if (name.starts_with("held_out")) {
    throw user_error(
        "the objective {} never appears: nothing is held out; set data.held_out, or "
        "take shards with a held-out part",
        name);
  }
  throw user_error("the objective {} never appears in what trial {} has measured: {}", name,
                   trial.number, fmt::join(names, ", "));
}

// The settings that the trial was started with, as `atoll train` read them.
struct TrialConfig {
  train::TrainConfig config;
  Settings settings = train::make_settings(config);
};

void check_settings(const Study& study, const Trial& trial, std::int64_t step,
                    const std::vector<metrics::Record>& records) {
  const fs::path path = log_dir(study, trial.number, step) / "settings.toml";
  TrialConfig trained;
  trained.settings.load_toml(path);
  for (const auto& [key, value] : trial.settings) {
    const std::string is = trained.settings.find(key).toml();
    if (is == value || to_toml(trained.settings.find(key).value()) == value) continue;
    TrialConfig wanted;
    wanted.settings.load_toml_text(fmt::format("{} = {}", key, value), path.string());
    if (wanted.settings.find(key).toml() == is) continue;
    throw make_error(ErrorKind::kInternal, "trial {} was to train with {} = {}, and {} says {}",
                     trial.number, key, value, path.string(), is);
  }
  if (has_islands(study)) return;  // what all have done decides on its learning rate
  const optim::Schedule schedule = train::schedule_of(trained.config);
  for (const metrics::Record& record : records) {
    const std::optional<double> lr = number_in(record, "lr");
    if (record.step != step || !lr || *lr == schedule.learning_rate(step - 1)) continue;
    throw make_error(ErrorKind::kInternal,
                     "trial {} was to take step {} with learning rate {}, and its record says {}",
                     trial.number, step, schedule.learning_rate(step - 1), *lr);
  }
}

}  // namespace

fs::path trial_dir(const Study& study, int trial) {
  return study.dir() / "trials" / fmt::format("{:04}", trial);
}

fs::path run_dir(const Study& study, int trial, std::int64_t step) {
  const fs::path dir = trial_dir(study, trial);
  return dir / (is_rung_run(study) ? fmt::format("run-{:08}", step) : "run");
}

fs::path log_dir(const Study& study, int trial, std::int64_t step, std::int64_t island) {
  const fs::path run = run_dir(study, trial, step);
  return has_islands(study) ? run / island_path(island) : run;
}

fs::path checkpoint_dir(const Study& study, int trial, std::int64_t step) {
  return run_dir(study, trial, step) / "checkpoints" / ckpt::checkpoint_name(step);
}

fs::path task_results(const Study& study, int trial, std::int64_t step) {
  return trial_dir(study, trial) / fmt::format("task-{:08}.jsonl", step);
}

void prepare_run(const Study& study, const Trial& trial, std::int64_t step) {
  const fs::path run = run_dir(study, trial.number, step);
  std::error_code failure;
  fs::create_directories(run / "checkpoints", failure);
  check(failure, "cannot make", run / "checkpoints");
  // The tokens, made once for all.
  const fs::path data = study.dir() / "data";
  if (path_exists(data) && !path_exists(run / "data")) link_whole(data, run / "data");
  link_fork(study, trial);
}

void link_fork(const Study& study, const Trial& trial) {
  if (trial.parent < 0 || trial.reached() != trial.fork_step) return;
  const fs::path mine = checkpoint_dir(study, trial.number, trial.fork_step);
  if (path_exists(mine)) return;
  const fs::path donor = checkpoint_dir(study, trial.parent, trial.fork_step);
  if (!path_exists(donor)) {
    throw damaged_error("trial {} goes on from {}, which is not there any more; put it back",
                        trial.number, donor.string());
  }
  std::error_code failure;
  fs::create_directories(mine.parent_path(), failure);
  check(failure, "cannot make", mine.parent_path());
  link_whole(donor, mine);
}

std::vector<std::string> train_arguments(const Study& study, const Trial& trial, std::int64_t step,
                                         const std::string& program, std::int64_t threads) {
  std::vector<std::string> argv = {program, "train", (study.dir() / "recipe.toml").string(),
                                   "--run.dir=" + run_dir(study, trial.number, step).string()};
  const StudySettings& settings = study.settings();
  if (settings.ranks > 1) argv.insert(argv.end(), {"-n", std::to_string(settings.ranks)});
  if (settings.islands > 1) {
    argv.insert(argv.end(), {"--islands", std::to_string(settings.islands)});
  }
  bool has_steps = false;
  for (const auto& [key, value] : trial.settings) {
    argv.push_back(fmt::format("--{}={}", key, argument_of(value)));
    has_steps |= key == "train.steps";
  }
  if (study.continues()) {
    if (step < study.max_steps()) argv.push_back(fmt::format("--train.stop_after={}", step));
  } else if (!has_steps) {
    argv.push_back(fmt::format("--train.steps={}", step));
  }
  // Each rank and each island has its part of the trial's threads.
  const std::int64_t share = settings.ranks * settings.islands;
  if (threads > 0) {
    argv.push_back(fmt::format("--device.threads={}", std::max<std::int64_t>(1, threads / share)));
  }
  argv.emplace_back("--log.tensorboard=false");
  return argv;
}

std::vector<std::string> task_arguments(const Study& study, const Trial& trial, std::int64_t step,
                                        const std::string& program, std::int64_t threads) {
  std::vector<std::string> argv = {program,
                                   "eval",
                                   checkpoint_dir(study, trial.number, step).string(),
                                   "--task",
                                   study.settings().task,
                                   "--out",
                                   task_results(study, trial.number, step).string()};
  if (study.settings().task_limit > 0) {
    argv.insert(argv.end(), {"--limit", std::to_string(study.settings().task_limit)});
  }
  if (threads > 0) argv.insert(argv.end(), {"--threads", std::to_string(threads)});
  return argv;
}

Measurement measure(const Study& study, const Trial& trial, std::int64_t step) {
  const std::vector<metrics::Record> records = records_of(study, trial, step);
  check_settings(study, trial, step, records);
  const std::int64_t from = is_rung_run(study) ? 0 : trial.reached();
  Measurement m = {.step = step};
  for (const Objective& objective : study.objectives()) {
    m.values.push_back(value_of(study, trial, step, records, objective.name));
  }
  StepClock clock(from);
  double before = 0, after = 0;
  for (const metrics::Record& record : records) {
    clock.take(record);
    const double tokens = number_in(record, "tokens").value_or(after);
    if (record.step <= from) before = tokens;
    after = tokens;
  }
  // A fork's record begins after the donor's.
  if (before == 0 && from > 0) {
    const train::TrainConfig& config = study.recipe().config();
    before = static_cast<double>(from * config.train.batch_size * config.train.context);
  }
  m.tokens = static_cast<std::int64_t>(std::max(0.0, after - before));
  if (has_islands(study)) {
    const train::TrainConfig& config = study.recipe().config();
    m.tokens = step * config.train.batch_size * config.train.context * study.settings().islands;
  }
  m.seconds = clock.seconds();
  return m;
}

std::string divergence(const Study& study, const Trial& trial, std::int64_t step) {
  for (std::int64_t island = 1; island <= study.settings().islands; ++island) {
    const fs::path path = log_dir(study, trial.number, step, island) / "metrics.jsonl";
    if (!path_exists(path)) continue;
    const std::vector<metrics::Record> records = metrics::read_jsonl(path);
    if (records.empty() || !number_in(records.back(), "nonfinite")) continue;
    return fmt::format("the loss or gradient of step {} is not finite", records.back().step);
  }
  return "";
}

namespace {

// Those that somebody reads stay, and are found by the next call.
void remove_checkpoints_below(const fs::path& root) {
  if (!path_exists(root)) return;
  for (const std::int64_t step : ckpt::checkpoint_steps(root)) ckpt::remove_checkpoint(root, step);
  std::error_code ignored;
  if (ckpt::checkpoint_steps(root).empty()) fs::remove_all(root, ignored);
}

}  // namespace

void remove_checkpoints(const Study& study, const std::vector<Trial>& trials,
                        const std::vector<int>& kept) {
  std::set<int> needed(kept.begin(), kept.end());
  for (const Trial& trial : trials) {
    if (trial.parent >= 0 && !trial.is_over() && trial.measured.empty()) {
      needed.insert(trial.parent);
    }
  }
  for (const Trial& trial : trials) {
    if (!trial.is_over() || needed.contains(trial.number)) continue;
    const fs::path dir = trial_dir(study, trial.number);
    if (!path_exists(dir)) continue;
    for (const fs::directory_entry& run : fs::directory_iterator(dir)) {
      if (!run.is_directory()) continue;
      remove_checkpoints_below(run.path() / "checkpoints");
      for (std::int64_t island = 1; island <= study.settings().islands; ++island) {
        remove_checkpoints_below(run.path() / island_path(island) / "checkpoints");
      }
    }
  }
}

}  // namespace atl::tune
