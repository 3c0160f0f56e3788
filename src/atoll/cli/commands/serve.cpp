#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/models/open_generator.h"
#include "atoll/cli/models/served_adapters.h"
#include "atoll/cli/models/served_model.h"
#include "atoll/cli/models/weights.h"
#include "atoll/cli/pages/serve_log.h"
#include "atoll/cli/pages/watch_beside.h"
#include "atoll/http/access.h"
#include "atoll/http/tls.h"
#include "atoll/launch/process_group.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/api/service.h"
#include "atoll/serve/page_assets.h"
#include "atoll/wire/secret_file.h"

namespace atl::cli {

namespace fs = std::filesystem;
namespace api = serve::api;

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  std::string base;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string key_file;
  std::string certificate;
  std::string key;
  std::vector<std::string> names;
  std::string model_name;
  std::string chat_template;
  std::int64_t max_context = 0;
  std::int64_t slots = 0;
  std::int64_t step_tokens = 0;
  std::int64_t max_queue = 256;
  std::int64_t max_queue_tokens = 0;
  std::int64_t cache_mib = 0;
  int threads = 0;
  int tensor_ranks = 1;
  std::int64_t drain_seconds = 30;
  std::int64_t follow_seconds = 0;
  std::string log;
  std::int64_t log_seconds = 5;
  WatchFlags watch;
  WeightsArguments weights;
  std::vector<std::string> adapters;  // NAME=DIRECTORY
  std::string adapter_directory;      // of those that come later; empty: none do
  std::int64_t max_adapters = 8;
  std::int64_t max_adapter_rank = 64;
  std::vector<std::string> stages;
  std::vector<std::string> spares;
  std::string layers;
  std::int64_t groups = 0;
  std::string identity;
};

// A model with all that its answers need.
struct OpenModel {
  model_dir::HeldModel held;
  AdapterBounds bounds;
  std::unique_ptr<serve::BatchGenerator> generator;
  std::unique_ptr<AdapterDirectory> loader;
  api::ServedModel served;
};

// Checks what may be checked before anything is opened.
api::ServiceOptions service_options(const Options& options) {
  api::ServiceOptions service{.host = options.host,
                              .port = options.port,
                              .names = options.names,
                              .assets = serve::page_assets()};
  if (options.certificate.empty() != options.key.empty()) {
    throw user_error("--certificate and --key belong together; give both, or none");
  }
  if (!options.key_file.empty()) {
    service.keys = api::KeyList::parse(wire::read_secret(options.key_file), options.key_file);
  }
  if (service.keys.is_empty() && !http::is_loopback(options.host)) {
    throw user_error(
        "--host={}: anybody on the network could use the model; give --api-key-file=FILE with a "
        "key a line, or listen at 127.0.0.1",
        options.host);
  }
  if (!options.certificate.empty()) {
    service.tls = std::make_shared<http::TlsContext>(options.certificate, options.key);
  }
  return service;
}

// What means nothing without stages, or nothing with them.
void check_stages(const Options& options) {
  const auto refuse = [](bool given, const char* option, const char* why) {
    if (given) throw user_error("{}: {}", option, why);
  };
  if (options.stages.empty()) {
    constexpr const char* kWhy = "it is about machines that --stages names, and there are none";
    refuse(!options.spares.empty(), "--spare", kWhy);
    refuse(!options.layers.empty(), "--layers", kWhy);
    refuse(options.groups != 0, "--groups", kWhy);
    refuse(!options.identity.empty(), "--identity", kWhy);
    return;
  }
  refuse(
      options.follow_seconds != 0, "--follow",
      "stages keep the layers that they have read; leave it out, and start server and stages anew "
      "for another checkpoint");
  refuse(!options.adapters.empty(), "--adapter",
         "stages have the model as it is; merge the adapter before (`atoll export --merge`)");
  refuse(!options.adapter_directory.empty(), "--adapter-dir",
         "stages have the model as it is; merge an adapter before (`atoll export --merge`)");
  refuse(options.threads != 0, "--threads", "the stages compute; give it to `atoll stage`");
  refuse(!options.weights.int8.empty(), "--int8",
         "each stage takes the best that its CPU has, which gives the same bits; leave it out");
}

// What ranks that share products cannot do.
void check_tensor_ranks(const Options& options) {
  if (options.tensor_ranks == 1) return;
  const auto refuse = [&](bool given, const char* option, const char* why) {
    if (given) throw user_error("--tp={} with {}: {}", options.tensor_ranks, option, why);
  };
  refuse(!options.stages.empty(), "--stages",
         "each machine has whole layers there, whose products it computes alone; leave one of the "
         "two out");
  refuse(!options.adapters.empty(), "--adapter",
         "ranks have their part of the model as it is; merge the adapter before (`atoll export "
         "--merge`), or leave --tp out");
  refuse(!options.adapter_directory.empty(), "--adapter-dir",
         "ranks have their part of the model as it is; merge an adapter before (`atoll export "
         "--merge`), or leave --tp out");
  refuse(options.follow_seconds != 0, "--follow",
         "ranks keep the weights that they have read; leave one of the two out");
  refuse(options.threads != 0 && options.threads < options.tensor_ranks, "fewer --threads",
         "each rank needs a thread of its own; give more threads, or fewer ranks");
}

void check_adapters(const Options& options) {
  const std::string& directory = options.adapter_directory;
  if (directory.empty() || fs::is_directory(directory)) return;
  throw user_error("--adapter-dir={}: there is no such directory", directory);
}

GeneratorNeeds needs_of(const Options& options, const model_dir::ModelPath& path,
                        const AdapterBounds& bounds) {
  return {
      .path = path,
      .max_context = options.max_context,
      .slots = options.slots,
      .step_tokens = options.step_tokens,
      .weights = take_weights(options.weights),
      .max_queue = options.max_queue,
      .max_queue_tokens = options.max_queue_tokens,
      .cache_bytes = static_cast<std::size_t>(options.cache_mib) << 20,
      .threads = options.threads,
      .stages = {options.stages, options.spares, options.layers, options.identity, options.groups},
      .tensor_ranks = options.tensor_ranks,
      .max_adapters = bounds.max_adapters,
      .adapter_rank = bounds.rank,
      .weights_name = options.weights.weights};
}

AdapterBounds bounds_of(const Options& options, const std::vector<serve::StepAdapter>& adapters,
                        const nn::ModelConfig& config) {
  const bool loads = !options.adapter_directory.empty();
  const AdapterBounds bounds =
      adapter_bounds(adapters, loads ? options.max_adapters : 0, options.max_adapter_rank, config);
  if (loads) {
    const std::size_t one = adapter_bytes(config, options.max_adapter_rank);
    const auto most =
        static_cast<std::size_t>(bounds.max_adapters) + 1;  // one takes another's place
    log::info("room for {} adapters of rank {}: {} at most", bounds.max_adapters,
              options.max_adapter_rank, format_bytes(most * one));
  }
  return bounds;
}

OpenModel open_model(const Options& options) {
  model_dir::HeldModel held = model_dir::hold_model(options.model, options.base);
  const nn::ModelConfig config = model_dir::read_model_config(held.path);
  std::vector<serve::StepAdapter> adapters = open_adapters(options.adapters, config);
  const AdapterBounds bounds = bounds_of(options, adapters, config);
  auto generator =
      open_generator(needs_of(options, held.path, bounds), checkpoint_of(options.model, held.path));
  api::ServedModel served = served_model(
      {options.model, options.model_name, options.chat_template, options.weights.weights},
      held.path, *generator);
  for (serve::StepAdapter& adapter : adapters) {
    if (adapter.name == served.name) {
      throw user_error("--adapter {}: the model itself is called so; --model-name gives it another",
                       adapter.name);
    }
    generator->put_adapter(std::move(adapter));
  }
  std::unique_ptr<AdapterDirectory> loader;
  if (!options.adapter_directory.empty()) {
    loader = std::make_unique<AdapterDirectory>(options.adapter_directory, config, *generator);
  }
  served.adapter_loader = loader.get();
  return {std::move(held), bounds, std::move(generator), std::move(loader), std::move(served)};
}

// Looks for newer checkpoints of a run, and has the generator serve them.
class Follower {
 public:
  // `model` must outlive this.
  Follower(const Options& options, OpenModel& model) : options_(options), model_(model) {
    if (options.follow_seconds > 0) thread_ = std::thread([this] { run(); });
  }
  ~Follower() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    const auto pause = std::chrono::seconds(options_.follow_seconds);
    while (!changed_.wait_for(lock, pause, [this] { return ends_; })) {
      try {
        look();
      } catch (const std::exception& error) {
        log::warning("--follow: {}; what is served stays", error.what());
      }
    }
  }

  void look() {
    if (model_.generator->is_replacing()) return;
    model_dir::HeldModel newest = model_dir::hold_model(options_.model, options_.base);
    if (newest.path.directory() == model_.held.path.directory()) return;
    const std::string version = checkpoint_of(options_.model, newest.path);
    if (!replace_model(needs_of(options_, newest.path, model_.bounds), version,
                       *model_.generator)) {
      return;
    }
    log::info("serving {} from now on", version);
    model_.held = std::move(newest);
  }

  const Options& options_;
  OpenModel& model_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

// Where the load is logged; empty: nowhere.
std::string log_directory(const Options& options, const std::string& model) {
  if (!options.log.empty() || !options.watch.is_asked()) return options.log;
  return (fs::path("runs") / ("serve-" + model)).string();
}

// The log of the load, and the page that shows it.
class Watched {
 public:
  Watched(const Options& options, const std::string& model, const api::Service& service,
          const serve::Generator& generator) {
    const std::string directory = log_directory(options, model);
    if (!directory.empty()) {
      log_.emplace(directory, std::chrono::seconds(options.log_seconds), service.times(),
                   generator);
    }
    page_.emplace(options.watch, std::vector<std::string>{directory});
  }

 private:
  std::optional<ServeLog> log_;
  std::optional<WatchBeside> page_;
};

constexpr std::chrono::milliseconds kTick{50};

// Waits for a signal, at most for a tick.
int next_signal(launch::SignalFd& signals) {
  pollfd fd = {.fd = signals.fd(), .events = POLLIN};
  ::poll(&fd, 1, static_cast<int>(kTick.count()));
  return signals.next();
}

// The model, read on a thread of its own; nothing when a signal came first.
std::optional<OpenModel> open_until_signal(const Options& options, launch::SignalFd& signals) {
  std::future<OpenModel> opening =
      std::async(std::launch::async, [&options] { return open_model(options); });
  while (opening.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    // Reading cannot be broken off, and there is nothing to save.
    if (next_signal(signals) != 0) std::_Exit(0);
  }
  return opening.get();
}

// Requests that run may end, until the time is over or somebody insists.
void drain(api::Service& service, launch::SignalFd& signals, std::chrono::seconds most) {
  service.refuse_new();
  const Clock::time_point end = Clock::now() + most;
  while (!service.is_idle()) {
    if (Clock::now() >= end) {
      log::warning("--drain={}: requests that still ran are cancelled", most.count());
      return;
    }
    if (next_signal(signals) != 0) return;
  }
}

int run(const Options& options) {
  check_stages(options);
  check_tensor_ranks(options);
  check_adapters(options);
  launch::SignalFd signals;  // before any thread is made
  std::optional<OpenModel> model;
  api::Service service(service_options(options));  // before the model is read: the port may be used
  model = open_until_signal(options, signals);
  const std::string name = model->served.name;
  service.serve(std::move(model->served));
  const Watched watched(options, name, service, *model->generator);
  fmt::print("serving {} at {}\n", name, service.url());
  std::fflush(stdout);
  {
    const Follower follower(options, *model);
    while (next_signal(signals) == 0) {
    }
  }
  drain(service, signals, std::chrono::seconds(options.drain_seconds));
  return 0;
}

void add_engine(ArgumentParser& parser, Options& options) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  parser
      .add_option("--context", options.max_context,
                  "Tokens that a prompt and its answer may have together; the model's positions")
      .range(std::int64_t{1}, kMost);
  parser.add_option("--slots", options.slots, "Answers that are generated at once")
      .range(std::int64_t{1}, kMost);
  parser
      .add_option("--step-tokens", options.step_tokens,
                  "Tokens that a step reads or writes, of all together")
      .range(std::int64_t{1}, kMost);
  parser
      .add_option("--max-queue", options.max_queue,
                  "Answers that may wait; a request beyond it gets status 429")
      .range(std::int64_t{1}, kMost)
      .show_default();
  parser
      .add_option("--max-queue-tokens", options.max_queue_tokens,
                  "Tokens that the prompts of these may have")
      .range(std::int64_t{1}, kMost);
  parser.add_option("--cache", options.cache_mib, "MiB for keys and values")
      .range(std::int64_t{1}, std::int64_t{1} << 30);
  constexpr int kMostThreads = 1 << 12;
  parser.add_option("--threads", options.threads, "Threads that compute").range(1, kMostThreads);
  constexpr int kMostRanks = 256;
  parser
      .add_option("--tp", options.tensor_ranks,
                  "Ranks of this process that share each product, and the threads: one for each "
                  "socket or memory of a machine that has several")
      .range(1, kMostRanks)
      .show_default();
  add_weights(parser, options.weights);
}

void add_access(ArgumentParser& parser, Options& options) {
  constexpr int kLastPort = 65535;
  parser
      .add_option("--host", options.host,
                  "Address to listen at; other than this machine's own "
                  "it needs --api-key-file")
      .show_default();
  parser.add_option("--port", options.port, "Port to listen at; 0: a free one")
      .range(0, kLastPort)
      .show_default();
  parser.add_option("--api-key-file", options.key_file,
                    "File with a key a line that clients must show (Authorization: Bearer KEY), "
                    "and that others may not read");
  parser.add_option("--certificate", options.certificate,
                    "PEM file to serve by TLS with, and --key");
  parser.add_option("--key", options.key, "PEM file with its key");
  parser.add_option("--name", options.names, "Name by which clients may call this server, too");
}

void add_adapters(ArgumentParser& parser, Options& options) {
  parser.add_option("--adapter", options.adapters,
                    "NAME=DIRECTORY of a LoRA adapter of the model, which requests get whose "
                    "\"model\" is NAME; may be given several times");
  parser.add_option("--adapter-dir", options.adapter_directory,
                    "Directory of adapters that clients may load and unload while the server runs "
                    "(POST /v1/load_lora_adapter); without it they may load none");
  constexpr std::int64_t kMostAdapters = 4096;
  parser
      .add_option("--max-adapters", options.max_adapters,
                  "Adapters that there may be at once, with --adapter-dir")
      .range(std::int64_t{1}, kMostAdapters)
      .show_default();
  parser
      .add_option("--max-adapter-rank", options.max_adapter_rank,
                  "Rank that these may have: memory is planned for it")
      .range(std::int64_t{1}, kMostAdapters)
      .show_default();
}

void add_stages(ArgumentParser& parser, Options& options) {
  parser
      .add_option("--stages", options.stages,
                  "HOST:PORT of each `atoll stage`, in the order of the layers: the model is on "
                  "those machines")
      .delimiter(',');
  parser.add_option("--layers", options.layers,
                    "Layers of each stage, as in 0-11,12-23; shares of equal bytes");
  parser
      .add_option("--spare", options.spares,
                  "HOST:PORT of an `atoll stage` that takes the place of one that is lost")
      .delimiter(',');
  constexpr std::int64_t kMostGroups = 64;
  parser
      .add_option("--groups", options.groups,
                  "Groups of answers whose steps are under way at once; as many as keep all stages "
                  "busy")
      .range(std::int64_t{1}, kMostGroups);
  parser.add_option("--identity", options.identity,
                    "Directory with this machine's certificate (atoll certs issue); needed unless "
                    "all stages are on it");
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("model", options->model, "Model directory, run, checkpoint or adapter")
      .required();
  parser.add_option("--base", options->base, model_dir::kBaseHelp);
  add_adapters(parser, *options);
  parser.add_option("--model-name", options->model_name,
                    "What clients call the model; its directory's name");
  parser.add_option("--chat-template", options->chat_template,
                    "Jinja file, a model directory, or the name of one of the model's templates");
  add_access(parser, *options);
  add_engine(parser, *options);
  add_stages(parser, *options);
  constexpr std::int64_t kMostSeconds = 86400;
  parser
      .add_option("--follow", options->follow_seconds,
                  "Seconds between looks for a newer checkpoint of the run, which then answers new "
                  "requests; 0: never")
      .range(std::int64_t{0}, kMostSeconds)
      .show_default();
  parser
      .add_option("--drain", options->drain_seconds,
                  "Seconds that requests have to end in after SIGTERM or Ctrl-C")
      .range(std::int64_t{0}, kMostSeconds)
      .show_default();
  parser.add_option("--log", options->log,
                    "Directory for metrics.jsonl: load, latencies and cache, for atoll watch; with "
                    "--watch runs/serve-NAME");
  parser.add_option("--log-every", options->log_seconds, "Seconds between its records")
      .range(std::int64_t{1}, kMostSeconds)
      .show_default();
  add_watch_flags(parser, options->watch);
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command serve_command() {
  return {.name = "serve",
          .summary = "Serve a model to programs that speak OpenAI's API.",
          .example =
              "  atoll serve runs/kjv-demo\n"
              "  atoll serve model --host 0.0.0.0 --api-key-file keys --drain 60\n"
              "  atoll serve model --stages a:7500,b:7500 --identity identities/server\n"
              "  curl localhost:8000/v1/completions -d '{\"prompt\": \"In the\"}'",
          .stray = "the model is all that it takes",
          .add = add,
          .memory_advice = "--weights=bf16 or int8, or a smaller --cache"};
}

}  // namespace atl::cli
