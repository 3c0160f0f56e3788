#include "atoll/cli/bench/bench.h"

#include <memory>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/cli/commands.h"
#include "atoll/train/model/memory_check.h"

namespace atl::cli {

namespace {

struct Offered {
  ArgumentParser parser;
  Benchmark benchmark;
  Action action;
};

int run(const std::vector<Offered>& benchmarks, const Invocation& invocation) {
  for (const Offered& offered : benchmarks) {
    if (!offered.parser.is_parsed()) continue;
    if (!offered.benchmark.takes_overrides && !invocation.overrides.empty()) {
      throw user_error("atoll bench {} takes no settings of a recipe, and {} is one; see --help",
                       offered.benchmark.name, invocation.overrides.front());
    }
    return offered.action(invocation);
  }
  throw user_error(
      "what is to be measured? say `atoll bench` step, ops, tokenizer, generate, serve or "
      "checkpoint");
}

Action add(ArgumentParser& parser) {
  parser.require_subcommand(0, 1);
  std::vector<Offered> benchmarks;
  for (const Benchmark& benchmark : {bench_step(), bench_ops(), bench_tokenizer(), bench_generate(),
                                     bench_serve(), bench_checkpoint()}) {
    ArgumentParser sub = parser.add_subcommand(benchmark.name, benchmark.summary);
    benchmarks.push_back({sub, benchmark, benchmark.add(sub)});
  }
  return [benchmarks = std::move(benchmarks)](const Invocation& invocation) {
    return run(benchmarks, invocation);
  };
}

}  // namespace

Command bench_command() {
  return {.name = "bench",
          .summary = "Measure this machine: training, ops, text, generation, checkpoints.",
          .example =
              "  atoll bench step recipes/kjv-demo.toml\n"
              "  atoll bench step recipes/gpt2-124m.toml --train.micro_batch=4 "
              "--train.batch_size=4 --train.context=256\n"
              "  atoll bench ops --filter mlp\n"
              "  atoll bench tokenizer\n"
              "  atoll bench generate\n"
              "  atoll bench serve\n"
              "  atoll bench checkpoint --dir runs",
          .stray = "what can be measured are step, ops, tokenizer, generate, serve and checkpoint",
          .takes_overrides = true,
          .add = add,
          .memory_advice = train::kTrainingMemoryAdvice};
}

}  // namespace atl::cli
