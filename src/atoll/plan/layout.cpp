#include "atoll/plan/layout.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/train/config/recipe.h"

namespace atl::plan {

namespace {

constexpr std::array<const char*, 3> kRecompute = {"none", "selective", "full"};
constexpr std::array<int, 2> kChunks = {2, 4};

std::vector<std::int64_t> divisors(std::int64_t of) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= of; ++d) {
    if (of % d == 0) all.push_back(d);
  }
  return all;
}

/// A choice of all those there are, or the one that is given.
template <typename T>
std::vector<T> choices(bool given, T value, std::vector<T> all) {
  return given ? std::vector<T>{value} : std::move(all);
}

struct Order {
  std::string schedule;
  int chunks = 0;
};

std::vector<Order> orders(const train::ParallelSettings& now, const Given& given, int stages) {
  const auto chunks = static_cast<int>(now.chunks);
  if (stages == 1) return {{now.schedule, chunks}};
  std::vector<Order> all;
  for (const parallel::PipelineSchedule& schedule : parallel::pipeline_schedules()) {
    if (given.schedule && schedule.name != now.schedule) continue;
    if (given.chunks || schedule.min_chunks == schedule.max_chunks) {
      all.push_back({schedule.name, chunks});
      continue;
    }
    for (const int some : kChunks) all.push_back({schedule.name, some});
  }
  return all;
}

}  // namespace

std::string describe(const Layout& at) {
  std::string pipeline = fmt::format("pp {}", at.stages);
  if (at.stages > 1) pipeline += " " + at.schedule;
  if (at.stages > 1 && at.chunks > 0) pipeline += fmt::format(" of {} chunks", at.chunks);
  return fmt::format("dp {}, tp {}, {}, cp {}, ep {}, ZeRO {}, recompute {}, micro-batch {}",
                     at.data, at.tensor, pipeline, at.context, at.experts, at.zero, at.recompute,
                     at.micro_batch);
}

std::vector<std::string> as_arguments(const Layout& at) {
  return {"--parallel.layout=manual",
          fmt::format("--parallel.tp={}", at.tensor),
          fmt::format("--parallel.pp={}", at.stages),
          fmt::format("--parallel.cp={}", at.context),
          fmt::format("--parallel.ep={}", at.experts),
          fmt::format("--parallel.schedule={}", at.schedule),
          fmt::format("--parallel.chunks={}", at.chunks),
          fmt::format("--dp.zero={}", at.zero),
          fmt::format("--train.recompute={}", at.recompute),
          fmt::format("--train.micro_batch={}", at.micro_batch)};
}

Given given_in(const Settings& settings) {
  const auto given = [&](const char* key) { return !settings.find(key).is_default(); };
  return {.tensor = given("parallel.tp"),
          .stages = given("parallel.pp"),
          .context = given("parallel.cp"),
          .experts = given("parallel.ep"),
          .zero = given("dp.zero"),
          .recompute = given("train.recompute"),
          .schedule = given("parallel.schedule"),
          .chunks = given("parallel.chunks"),
          .micro_batch = given("train.micro_batch")};
}

Layout layout_of(const train::TrainConfig& config, int ranks) {
  Layout at;
  at.tensor = static_cast<int>(config.parallel.tp);
  at.stages = static_cast<int>(config.parallel.pp);
  at.context = static_cast<int>(config.parallel.cp);
  at.experts = static_cast<int>(config.parallel.ep);
  at.data = std::max(1, ranks / at.tensor / at.stages / at.context / at.experts);
  at.zero = static_cast<int>(config.dp.zero);
  at.recompute = config.train.recompute;
  at.schedule = config.parallel.schedule;
  at.chunks = static_cast<int>(config.parallel.chunks);
  at.micro_batch = config.train.micro_batch;
  return at;
}

std::vector<Layout> all_layouts(const train::TrainConfig& config, const Given& given, int ranks,
                                std::int64_t num_experts) {
  const Layout now = layout_of(config, ranks);
  const std::vector<std::int64_t> micro_batches =
      choices(given.micro_batch, now.micro_batch, divisors(config.train.batch_size));
  const std::vector<std::string> recompute =
      choices<std::string>(given.recompute, now.recompute, {kRecompute.begin(), kRecompute.end()});
  std::vector<Layout> all;
  const auto add_choices = [&](Layout at) {
    const std::vector<int> zeros =
        choices(given.zero, now.zero,
                at.sharing() > 1 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0});
    for (const Order& order : orders(config.parallel, given, at.stages)) {
      at.schedule = order.schedule;
      at.chunks = order.chunks;
      for (const int zero : zeros) {
        at.zero = zero;
        for (const std::string& mode : recompute) {
          at.recompute = mode;
          for (const std::int64_t micro_batch : micro_batches) {
            if (at.context > 1 && !given.context && micro_batch != micro_batches.front()) continue;
            at.micro_batch = micro_batch;
            all.push_back(at);
          }
        }
      }
    }
  };
  for (const std::int64_t tensor : divisors(ranks)) {
    if (given.tensor && tensor != now.tensor) continue;
    for (const std::int64_t stages : divisors(ranks / tensor)) {
      if (given.stages && stages != now.stages) continue;
      for (const std::int64_t context : divisors(ranks / tensor / stages)) {
        if (given.context && context != now.context) continue;
        const std::int64_t left = ranks / tensor / stages / context;
        for (const std::int64_t experts : divisors(left)) {
          const bool is_possible = experts == 1 || (num_experts > 0 && num_experts % experts == 0);
          if (given.experts ? experts != now.experts : !is_possible) continue;
          Layout at;
          at.tensor = static_cast<int>(tensor);
          at.stages = static_cast<int>(stages);
          at.context = static_cast<int>(context);
          at.experts = static_cast<int>(experts);
          at.data = static_cast<int>(left / experts);
          add_choices(at);
        }
      }
    }
  }
  return all;
}

double distance(const Layout& a, const Layout& b) {
  const auto factor = [](auto x, auto y) {
    return std::abs(std::log2(static_cast<double>(x)) - std::log2(static_cast<double>(y)));
  };
  double sum = factor(a.data, b.data) + factor(a.tensor, b.tensor) + factor(a.stages, b.stages) +
               factor(a.context, b.context) + factor(a.experts, b.experts) +
               factor(a.micro_batch, b.micro_batch) + std::abs(a.zero - b.zero);
  if (a.recompute != b.recompute) sum += 1;
  if (a.stages > 1 && b.stages > 1 && (a.schedule != b.schedule || a.chunks != b.chunks)) sum += 1;
  return sum;
}

Variants::Variants(const std::filesystem::path& recipe, const std::vector<std::string>& overrides)
    : settings_(train::make_settings(config_)) {
  if (!recipe.empty()) settings_.load_toml(recipe);
  for (const std::string& argument : overrides) settings_.override(argument);
}

const train::TrainConfig& Variants::with(const Layout& layout) {
  settings_.load_toml_text(
      fmt::format("parallel.layout = \"manual\"\nparallel.tp = {}\nparallel.pp = {}\n"
                  "parallel.cp = {}\nparallel.ep = {}\nparallel.schedule = \"{}\"\nparallel.chunks "
                  "= {}\ndp.zero = {}\n"
                  "train.recompute = \"{}\"\ntrain.micro_batch = {}\n",
                  layout.tensor, layout.stages, layout.context, layout.experts, layout.schedule,
                  layout.chunks, layout.zero, layout.recompute, layout.micro_batch),
      "layout");
  train::validate(config_, settings_);
  return config_;
}

void check_but_for_layout(const std::filesystem::path& recipe,
                          const std::vector<std::string>& overrides) {
  if (Variants(recipe, overrides).config().offload.optimizer != "none") {
    throw user_error(
        "offload.optimizer: the planner of layouts does not know how fast the disk is; leave it "
        "out, or plan one layout with `atoll plan -n N`");
  }
  try {
    const train::Recipe all(recipe, overrides);
    return;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUser) throw;
    try {
      Variants(recipe, overrides).with({});  // a rank of its own, one sequence at a time
      return;
    } catch (const Error&) {
      throw error;
    }
  }
}

}  // namespace atl::plan
