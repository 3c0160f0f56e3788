#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "atoll/base/log.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/recipe.h"
#include "atoll/train/trainer.h"
#include "atoll/watch/tensorboard.h"

namespace atl::cli {

namespace {

int run(const std::string& path, const Invocation& invocation) {
  const Recipe recipe(path, invocation.overrides);
  train::Trainer trainer(recipe.config(), recipe.settings());
  std::unique_ptr<watch::TensorBoardSink> tensorboard;
  if (recipe.config().log.tensorboard) {
    const std::int64_t first = trainer.first_step();
    tensorboard =
        std::make_unique<watch::TensorBoardSink>(recipe.config().run.dir, first == 0 ? -1 : first);
    trainer.add_sink(*tensorboard);
  }
  const train::TrainOutcome outcome = trainer.run();
  if (outcome.signal == 0) {
    log::info("finished; the model is in {}", outcome.checkpoint.string());
    return 0;
  }
  log::info("stopped by {} after step {} and saved {}; the same command goes on from there",
            outcome.signal == SIGINT ? "Ctrl-C" : "SIGTERM", outcome.step,
            outcome.checkpoint.string());
  return 128 + outcome.signal;  // what a shell reports of a process that the signal ended
}

Action add(CLI::App& app) {
  const auto path = std::make_shared<std::string>();
  app.add_option("recipe", *path, "TOML file; docs/configuration.md lists its keys");
  return [path](const Invocation& invocation) { return run(*path, invocation); };
}

}  // namespace

Command train_command() {
  return {.name = "train",
          .summary = "Train a model; the same command again goes on where it stopped.",
          .example = "  atoll train recipes/kjv-demo.toml --train.steps=200 --run.dir=runs/short",
          .takes_overrides = true,
          .add = add};
}

}  // namespace atl::cli
