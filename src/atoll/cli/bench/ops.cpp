#include <fmt/format.h>

#include <memory>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/cli/bench/bench.h"
#include "atoll/cli/bench/models.h"
#include "atoll/cli/bench/table.h"
#include "atoll/cli/bench/timing.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/profile.h"
#include "atoll/ops/read_bandwidth.h"
#include "atoll/plan/op_cases.h"

namespace atl::cli {

using plan::OpCase;
using plan::OpSizes;

namespace {

struct Options {
  std::string model = kBenchModel;
  std::int64_t tokens = 1024;
  std::int64_t context = 256;
  std::string dtype = "f32";
  std::string filter;
  double seconds = 0.2;
  int threads = 0;
  bool json = false;
};

OpSizes sizes_of(const Options& options) {
  if (options.tokens % options.context != 0) {
    throw user_error("--tokens={} is no multiple of --context={}, the tokens of a sequence",
                     options.tokens, options.context);
  }
  return {.sequences = options.tokens / options.context,
          .context = options.context,
          .dtype = options.dtype == "bf16" ? Dtype::kBf16 : Dtype::kF32};
}

std::vector<OpCase> chosen_cases(const Options& options) {
  std::vector<OpCase> cases = plan::op_cases(bench_model_config(options.model), sizes_of(options));
  std::vector<std::string> names;
  for (const OpCase& one : cases) names.push_back(one.name);
  std::erase_if(
      cases, [&](const OpCase& one) { return one.name.find(options.filter) == std::string::npos; });
  if (cases.empty()) {
    throw user_error("--filter={} is part of no op's name; they begin with {} and end with {}",
                     options.filter, names.front(), names.back());
  }
  return cases;
}

// The most that the machine does of what bounds an op.
class Limits {
 public:
  explicit Limits(const Run& run) : run_(run) {}

  // Arithmetic is measured each time: on machines that others use it changes from second to second.
  double of(const OpCase& one) {
    if (one.bound == OpCase::Bound::kArithmetic) return ops::measure_peak_flops(run_);
    if (one.bound == OpCase::Bound::kReading) {
      return ops::measure_read_bandwidth(run_, static_cast<std::size_t>(one.amount));
    }
    if (copying_ == 0) copying_ = ops::measure_copy_bandwidth(run_);
    return copying_;
  }

 private:
  Run run_;
  double copying_ = 0;
};

const char* name_of(OpCase::Bound bound) {
  switch (bound) {
    case OpCase::Bound::kArithmetic:
      return "multiply-adds on registers";
    case OpCase::Bound::kReading:
      return "reading as many bytes";
    default:
      return "a copy that no cache holds";
  }
}

Figure measure(const OpCase& one, double at_least, double limit, Run run) {
  ops::OpProfile profile;
  run.profile = &profile;
  const auto call = one.prepare(run);
  profile.clear();  // of what preparing called
  call();           // makes primitives, touches memory
  const std::string by =
      profile.rows().size() == 1 ? ", " + profile.rows()[0].implementation : std::string();
  std::vector<double> seconds;
  for (double total = 0; total < at_least || seconds.size() < 3; total += seconds.back()) {
    seconds.push_back(seconds_of(call));
  }
  const double taken = median(seconds);
  const bool arithmetic = one.bound == OpCase::Bound::kArithmetic;
  return {.what = one.name,
          .value = one.amount / taken / 1e9,
          .unit = arithmetic ? "GFLOP/s" : "GB/s",
          .limit = limit / 1e9,
          .limit_is = name_of(one.bound),
          .share = one.amount / taken / limit,
          .note = fmt::format("{:.2f} ms{}", 1e3 * taken, by)};
}

int run_ops(const Options& options) {
  const std::vector<OpCase> cases = chosen_cases(options);
  const auto device = open_device({.threads = options.threads});
  const auto stream = device->open_stream();
  const Run run = {.stream = stream.get()};
  Limits limits(run);
  std::vector<Figure> figures;
  for (const OpCase& one : cases) {
    figures.push_back(measure(one, options.seconds, limits.of(one), run));
  }
  if (options.json) {
    fmt::print("{}\n", figures_to_json(figures));
    return 0;
  }
  fmt::print(
      "{} in {}, {} x {} tokens; {}\n\n{}\nAbove 100%: operands lie in a cache, or are changed "
      "where they are; a copy reads what it\noverwrites.\n",
      options.model, options.dtype, options.tokens / options.context, options.context,
      device->name(), figure_table(figures));
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser
      .add_option("--model", options->model,
                  "the model whose sizes operands have: " + bench_model_names())
      .show_default();
  parser.add_option("--tokens", options->tokens, "tokens of a micro-batch")
      .range(1, 1 << 20)
      .show_default();
  parser.add_option("--context", options->context, "tokens of a sequence, a divisor of --tokens")
      .range(1, 1 << 20)
      .show_default();
  parser.add_option("--dtype", options->dtype, "what weights and activations are stored in")
      .one_of({"f32", "bf16"})
      .show_default();
  parser.add_option("--filter", options->filter, "only ops that have this in their name");
  parser.add_option("--seconds", options->seconds, "time for each op, at least")
      .range(0.0, 60.0)
      .show_default();
  parser.add_option("--threads", options->threads, "CPU threads; 0: all").range(0, 1024);
  parser.add_flag("--json", options->json, "one line for programs");
  return [options](const Invocation&) { return run_ops(*options); };
}

}  // namespace

Benchmark bench_ops() {
  return {.name = "ops",
          .summary = "ops on operands of a model's sizes, against arithmetic or memory",
          .add = add};
}

}  // namespace atl::cli
