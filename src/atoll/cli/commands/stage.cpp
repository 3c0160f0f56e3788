#include <fmt/format.h>
#include <poll.h>

#include <cstdio>
#include <memory>
#include <string>

#include "atoll/cli/commands.h"
#include "atoll/cli/models/open_generator.h"
#include "atoll/cli/models/weights.h"
#include "atoll/launch/process_group.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/model_identity.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/stages/stage_service.h"

namespace atl::cli {

namespace {

struct Options {
  std::string model;
  std::string listen = "127.0.0.1:7500";
  std::string identity;
  int threads = 0;
};

int run(const Options& options) {
  launch::SignalFd signals;  // before any thread is made
  const model_dir::HeldModel held = model_dir::hold_model(options.model);
  serve::stages::StageOptions stage = {
      .listen = options.listen,
      .model = model_dir::model_identity(held.path),
      .config = model_dir::read_model_config(held.path),
      .open = [&options, &held](const serve::stages::Assignment& assignment) {
        const serve::Weights weights = take_weights({.weights = assignment.weights});
        return open_step_model(held.path, weights, options.threads, assignment.room,
                               {assignment.first_layer, assignment.end_layer});
      }};
  if (!options.identity.empty()) stage.identity = options.identity;
  const serve::stages::StageService service(std::move(stage));
  fmt::print("stage at {}\n", service.address());
  std::fflush(stdout);
  pollfd fd = {.fd = signals.fd(), .events = POLLIN};
  while (signals.next() == 0) ::poll(&fd, 1, -1);
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("model", options->model, "Model directory, run or checkpoint").required();
  parser
      .add_option("--listen", options->listen,
                  "HOST:PORT where the server and the stage before call it; port 0: a free one")
      .show_default();
  parser.add_option(
      "--identity", options->identity,
      "Directory with its certificate (atoll certs issue); needed unless HOST is this "
      "machine");
  constexpr int kMostThreads = 1 << 12;
  parser.add_option("--threads", options->threads, "Threads that compute").range(1, kMostThreads);
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command stage_command() {
  return {.name = "stage",
          .summary = "Have some layers of a model that `atoll serve --stages` serves.",
          .example =
              "  atoll stage model --listen 127.0.0.1:7500\n"
              "  atoll stage model --listen a.example.org:7500 --identity identities/a",
          .stray = "the model is all that it takes",
          .add = add,
          .memory_advice = "more stages, or --weights=bf16 or int8 of `atoll serve`"};
}

}  // namespace atl::cli
