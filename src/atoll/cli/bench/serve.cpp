#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/base/rng.h"
#include "atoll/cli/bench/bench.h"
#include "atoll/cli/bench/models.h"
#include "atoll/cli/bench/table.h"
#include "atoll/cli/bench/timing.h"
#include "atoll/cli/models/weights.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/read_bandwidth.h"
#include "atoll/serve/batch/batch_generator.h"

namespace atl::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = kBenchModel;
  std::vector<std::string> weights = {"f32", "bf16", "int8", "w8a8"};
  std::int64_t streams = 8;
  std::int64_t tokens = 64;
  std::int64_t prompt = 64;
  std::int64_t long_prompt = 512;
  int rounds = 3;
  int threads = 0;
  bool json = false;
};

// When the tokens of one answer came.
class Stopwatch final : public serve::GenerationListener {
 public:
  bool on_token(const serve::TokenResult& /*token*/) override {
    const std::lock_guard lock(mutex_);
    times_.push_back(Clock::now());
    changed_.notify_all();
    return true;
  }
  void on_end(const serve::GenerationResult& /*result*/) override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  void wait_for(std::size_t tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || times_.size() >= tokens; });
  }
  void wait() { wait_for(SIZE_MAX); }
  // After the end.
  const std::vector<Clock::time_point>& times() const { return times_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Clock::time_point> times_;
  bool ended_ = false;
};

// One way to keep the weights, and the measurements of its rounds.
struct Row {
  std::string name;
  std::unique_ptr<serve::BatchGenerator> generator;
  std::vector<double> alone = {};     // tokens a second of one stream
  std::vector<double> together = {};  // of all streams
  std::vector<double> limit = {};     // of all streams, at the machine's best
  std::vector<double> pause = {};     // longest beside a long prompt, in quiet gaps
  std::vector<double> wait = {};      // of the long prompt, in times that it waits alone
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Prompts that nobody has seen before.
std::vector<std::int32_t> prompt_of(std::int64_t length, std::int64_t vocab_size) {
  static std::uint64_t calls = 0;
  const RngStream random(7, RngPurpose::kSynthetic, calls++);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto word = random.word(static_cast<std::uint64_t>(i));
    tokens.push_back(static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocab_size)));
  }
  return tokens;
}

std::shared_ptr<Stopwatch> begin(serve::BatchGenerator& generator, std::int64_t prompt,
                                 std::int64_t tokens) {
  const auto listener = std::make_shared<Stopwatch>();
  serve::GenerationRequest request = {.prompt = prompt_of(prompt, generator.vocab_size()),
                                      .max_new_tokens = tokens};
  request.sampling.temperature = 1;
  const auto number = generator.submit(std::move(request), listener);
  ATOLL_CHECK(number.has_value(), "the queue has room for all streams");
  return listener;
}

// Tokens a second of all streams, from the moment on at which each has its first token.
double rate_of(serve::BatchGenerator& generator, const Options& options, std::int64_t streams) {
  std::vector<std::shared_ptr<Stopwatch>> listeners;
  for (std::int64_t i = 0; i < streams; ++i) {
    listeners.push_back(begin(generator, options.prompt, options.tokens + 1));
  }
  Clock::time_point first, last;
  for (const auto& listener : listeners) {
    listener->wait();
    first = std::max(first, listener->times().front());
    last = std::max(last, listener->times().back());
  }
  std::int64_t count = 0;
  for (const auto& listener : listeners) {
    count += std::ranges::count_if(listener->times(), [&](auto time) { return time > first; });
  }
  return static_cast<double>(count) / seconds_between(first, last);
}

// What a long prompt does to other streams, and they to it.
void measure_long_prompt(const Options& options, Row& row) {
  const auto lonely = begin(*row.generator, options.long_prompt, 1);
  const auto start = Clock::now();
  lonely->wait();
  const double quiet_wait = seconds_between(start, lonely->times().front());

  std::vector<std::shared_ptr<Stopwatch>> listeners;
  for (std::int64_t i = 0; i + 1 < options.streams; ++i) {
    listeners.push_back(begin(*row.generator, 8, 3 * options.tokens));
  }
  for (const auto& listener : listeners) {
    listener->wait_for(static_cast<std::size_t>(options.tokens));
  }
  const auto arrival = Clock::now();
  const auto late = begin(*row.generator, options.long_prompt, 1);
  late->wait();
  row.wait.push_back(seconds_between(arrival, late->times().front()) / quiet_wait);
  std::vector<double> quiet;
  double longest = 0;
  for (const auto& listener : listeners) {
    listener->wait();
    const auto& times = listener->times();
    for (std::size_t i = 1; i < times.size(); ++i) {
      const double gap = seconds_between(times[i - 1], times[i]);
      if (times[i] < arrival) {
        quiet.push_back(gap);
      } else if (times[i - 1] < late->times().front()) {
        longest = std::max(longest, gap);
      }
    }
  }
  row.pause.push_back(longest / median(quiet));
}

std::unique_ptr<serve::BatchGenerator> make_generator(const Options& options,
                                                      const nn::ModelConfig& config,
                                                      serve::Weights weights) {
  const std::int64_t of_one =
      std::max(options.prompt, options.long_prompt) + 3 * options.tokens + 8;
  const std::int64_t positions = std::min(of_one, config.max_positions);
  const std::int64_t blocks = positions / serve::StepModel::kBlockSize + 1;
  auto model = std::make_unique<serve::StepModel>(
      open_device({.threads = options.threads}), config, weights,
      serve::StepRoom{positions, std::max<std::int64_t>(128, options.streams),
                      blocks * options.streams});
  model->initialise(1);
  return std::make_unique<serve::BatchGenerator>(
      std::move(model),
      serve::BatchOptions{.slots = options.streams, .max_waiting = options.streams});
}

// A token's bytes are read once for all streams; each has its multiply-adds.
double best_rate(Run& run, const Options& options, const nn::ModelConfig& config,
                 const serve::BatchGenerator& generator) {
  const auto streams = static_cast<double>(options.streams);
  const auto bytes = generator.bytes_per_step();
  const auto model = nn::build_model(config, {});
  const double flops = nn::flops_per_token(*model, options.prompt) / 3;
  const double read = static_cast<double>(bytes) / ops::measure_read_bandwidth(run, bytes);
  return streams / std::max(read, streams * flops / ops::measure_peak_flops(run));
}

// All in turn, so that each meets the same machine; the first round warms up.
void measure(const Options& options, const nn::ModelConfig& config, std::vector<Row>& rows) {
  const auto device = open_device({.threads = options.threads});
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  for (int round = 0; round <= options.rounds; ++round) {
    for (Row& row : rows) {
      take_weights({.weights = row.name, .int8 = row.name == "w8a8" ? "auto" : ""});
      const double limit = best_rate(run, options, config, *row.generator);
      const double alone = rate_of(*row.generator, options, 1);
      const double together = rate_of(*row.generator, options, options.streams);
      if (round == 0) continue;
      row.limit.push_back(limit);
      row.alone.push_back(alone);
      row.together.push_back(together);
      if (options.long_prompt > 0) measure_long_prompt(options, row);
    }
  }
}

std::vector<Figure> figures_of(const Options& options, const std::vector<Row>& rows) {
  std::vector<Figure> figures;
  for (const Row& row : rows) {
    const double alone = median(row.alone), together = median(row.together);
    std::string note = fmt::format("{:.2f} times one, {:.1f} tok/s", together / alone, alone);
    if (!row.pause.empty()) {
      note += fmt::format(
          "; a prompt of {}: longest gap {:.1f} times a quiet one, its own wait "
          "{:.2f} times",
          options.long_prompt, median(row.pause), median(row.wait));
    }
    figures.push_back(
        {.what = fmt::format("{} weights, {}", row.name, counted(options.streams, "stream")),
         .value = together,
         .unit = "tok/s",
         .limit = median(row.limit),
         .limit_is = "weights' bytes or multiply-adds",
         .share = together / median(row.limit),
         .note = note});
  }
  return figures;
}

int run_serve(const Options& options) {
  const nn::ModelConfig config = bench_model_config(options.model);
  std::vector<Row> rows;
  for (const std::string& name : options.weights) {
    rows.push_back({name, make_generator(options, config, take_weights({.weights = name}))});
  }
  measure(options, config, rows);
  const std::vector<Figure> figures = figures_of(options, rows);
  if (options.json) {
    fmt::print("{}\n", figures_to_json(figures));
    return 0;
  }
  fmt::print("{} with random weights, {} after {}, {} in turn\n\n{}", options.model,
             counted(options.tokens, "token"), options.prompt, counted(options.rounds, "round"),
             figure_table(figures));
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("--model", options->model, bench_model_names() + ", with random weights")
      .show_default();
  parser
      .add_option("--weights", options->weights,
                  "f32, bf16, int8, w8a8, or several with commas: in turn")
      .delimiter(',')
      .one_of({"f32", "bf16", "int8", "w8a8"})
      .show_default();
  parser.add_option("--streams", options->streams, "answers at the same time")
      .range(2, 256)
      .show_default();
  parser.add_option("--tokens", options->tokens, "new tokens of each")
      .range(4, 4096)
      .show_default();
  parser.add_option("--prompt", options->prompt, "tokens before them")
      .range(1, 4096)
      .show_default();
  parser
      .add_option("--long-prompt", options->long_prompt,
                  "tokens of a prompt that comes beside the other streams; 0: none")
      .range(0, 1 << 16)
      .show_default();
  parser.add_option("--rounds", options->rounds, "of each, of which the median counts")
      .range(1, 1000)
      .show_default();
  parser.add_option("--threads", options->threads, "CPU threads; 0: all").range(0, 1024);
  parser.add_flag("--json", options->json, "one line for programs");
  return [options](const Invocation&) { return run_serve(*options); };
}

}  // namespace

Benchmark bench_serve() {
  return {.name = "serve",
          .summary = "many answers at once against one, and what a long prompt does to them",
          .add = add};
}

}  // namespace atl::cli
