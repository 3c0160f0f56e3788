// How much of a step's communication is left after backward: one rank of several, over TCP.
//
//   ranks_bench --rank 0 --ranks 2 --rendezvous tcp://HOST:PORT [RECIPE] [--key=value ...]
//
// Each round measures, one after the other and between meetings of all ranks: a micro-batch whose
// gradients stay where they are, the reductions alone, and both together, as a step has them. The
// time that both together take longer than the first is exposed. bench/exposed.py runs it over
// links of several rates.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/comm/gloo/world.h"
#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/train/config/config.h"
#include "atoll/train/model/options.h"

namespace atl::bench {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

/// The last stage, which notes when its forward pass ends: there backward begins.
class TimedHead final : public nn::Layer {
 public:
  explicit TimedHead(std::unique_ptr<nn::Layer> head) : head_(std::move(head)) {}
  nn::Footprint plan(Spec x) const override { return head_->plan(x); }
  void forward(Run& run, const nn::Pass& pass) override {
    head_->forward(run, pass);
    forward_end_ = Clock::now();
  }
  void backward_input(Run& run, const nn::Pass& pass) override { head_->backward_input(run, pass); }
  void backward_weight(Run& run, const nn::Pass& pass) override {
    head_->backward_weight(run, pass);
  }
  void visit(nn::ParamVisitor& visitor) override { head_->visit(visitor); }
  Clock::time_point forward_end() const { return forward_end_; }

 private:
  std::unique_ptr<nn::Layer> head_;
  Clock::time_point forward_end_;
};

/// Milliseconds of one round, the longest of all ranks.
struct Times {
  double compute = 0;   // a micro-batch without reductions
  double backward = 0;  // of these, its backward
  double comm = 0;      // the reductions alone
  double both = 0;      // a micro-batch with them
};

/// A rank of the run that `config` describes, with random tokens.
class Measured {
 public:
  Measured(const train::TrainConfig& config, comm::World& world)
      : world_(world),
        device_(open_device({.threads = config.device.threads})),
        stream_(device_->open_stream()),
        state_(
            train::state_options(config, config.data.vocab_size, -1, world.size(), world.rank())) {
    state_.allocate(*device_);
    if (state_.options().data_parallel.is_plain() || !single_round(state_)) {
      throw user_error("give ranks above 1, dp.zero below 3 and one micro-batch a rank");
    }
    state_.connect(world.all(), world.all(), nullptr);
    Run run = {.stream = stream_.get()};
    state_.store().initialise(run, 1);
    auto head = std::make_unique<TimedHead>(std::move(state_.model().stages.back()));
    head_ = head.get();
    state_.model().stages.back() = std::move(head);
    make_batch(config);
  }

  Times round() {
    Times times;
    const Clock::time_point begin = meet();
    pass(/*reduces=*/false, /*idle=*/false);
    const Clock::time_point end = Clock::now();
    times.compute = ms_between(begin, end);
    times.backward = ms_between(head_->forward_end(), end);
    times.comm = timed([&] { pass(/*reduces=*/true, /*idle=*/true); });
    times.both = timed([&] { pass(/*reduces=*/true, /*idle=*/false); });
    double* const first = &times.compute;
    world_.all().all_reduce({first, {Dtype::kF64, {4}}}, comm::Reduce::kMax);
    return times;
  }

  std::int64_t reduced_bytes() {
    return static_cast<std::int64_t>(state_.store().flat().in_compute_dtype().bytes());
  }
  /// Of the bucket that backward completes last.
  std::int64_t last_bucket_bytes() { return 4 * state_.store().layout().buckets().front().size(); }

 private:
  static bool single_round(train::TrainState& state) {
    const parallel::DataParallelOptions& shared = state.options().data_parallel;
    return shared.zero != parallel::Zero::kParameters && shared.rounds == 1 && !shared.exact &&
           shared.replicas == 1;
  }

  void make_batch(const train::TrainConfig& config) {
    const Spec spec{Dtype::kI32, {config.train.micro_batch, config.train.context}};
    tokens_.resize(static_cast<std::size_t>(2 * spec.shape.num_elements()));
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<std::int32_t>((i * 7919 + 13) %
                                             static_cast<std::size_t>(config.data.vocab_size));
    }
    batch_ = {.tokens = {tokens_.data(), spec},
              .targets = {tokens_.data() + spec.shape.num_elements(), spec}};
  }

  Clock::time_point meet() {
    world_.all().barrier();
    return Clock::now();
  }

  template <typename Body>
  double timed(const Body& body) {
    const Clock::time_point begin = meet();
    body();
    return ms_between(begin, Clock::now());
  }

  // A round that is not the last one reduces nothing.
  void pass(bool reduces, bool idle) {
    Run run = {.stream = stream_.get(),
               .loss_scale = 1.0 / static_cast<double>(batch_.tokens.spec().shape.num_elements())};
    state_.store().begin_round({.index = 0, .last = reduces});
    if (idle) {
      state_.runner().idle(run, /*training=*/true);
    } else {
      state_.runner().train(run, batch_);
    }
    if (reduces) state_.store().reduce(run);
  }

  comm::World& world_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  train::TrainState state_;
  TimedHead* head_ = nullptr;
  std::vector<std::int32_t> tokens_;
  Batch batch_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// One line of JSON, for the script: medians over rounds, differences taken within each.
void print(const std::vector<Times>& rounds, Measured& measured) {
  const auto of = [&](auto&& pick) {
    std::vector<double> values;
    for (const Times& times : rounds) values.push_back(pick(times));
    return median(values);
  };
  fmt::print("{{\"rounds\": {}, \"bytes\": {}, \"last_bucket_bytes\": {}, ", rounds.size(),
             measured.reduced_bytes(), measured.last_bucket_bytes());
  fmt::print("\"compute_ms\": {:.2f}, \"backward_ms\": {:.2f}, \"comm_ms\": {:.2f}, ",
             of([](const Times& t) { return t.compute; }),
             of([](const Times& t) { return t.backward; }),
             of([](const Times& t) { return t.comm; }));
  fmt::print("\"exposed_ms\": {:.2f}, \"expected_ms\": {:.2f}}}\n",
             of([](const Times& t) { return t.both - t.compute; }),
             of([](const Times& t) { return std::max(0.0, t.comm - t.backward); }));
}

struct Options {
  std::string recipe;
  int rank = 0, ranks = 2, rounds = 7;
  std::string rendezvous;
  std::vector<std::string> overrides;
};

void run(const Options& options) {
  train::TrainConfig config;
  Settings settings = train::make_settings(config);
  if (!options.recipe.empty()) settings.load_toml(options.recipe);
  for (const std::string& argument : options.overrides) settings.override(argument);

  std::unique_ptr<comm::RendezvousServer> server;
  if (options.rank == 0) {
    const std::string host_and_port = options.rendezvous.substr(std::string("tcp://").size());
    const std::size_t colon = host_and_port.rfind(':');
    server = std::make_unique<comm::RendezvousServer>(host_and_port.substr(0, colon),
                                                      std::stoi(host_and_port.substr(colon + 1)));
  }
  const auto world = comm::open_gloo({.rank = options.rank,
                                      .size = options.ranks,
                                      .rendezvous = options.rendezvous,
                                      .shared_memory = false},
                                     {.timeout_s = 300});
  Measured measured(config, *world);
  measured.round();  // the first has cold caches and connections
  std::vector<Times> rounds;
  for (int i = 0; i < options.rounds; ++i) rounds.push_back(measured.round());
  if (options.rank == 0) print(rounds, measured);
}

}  // namespace
}  // namespace atl::bench

int main(int argc, char** argv) {
  CLI::App app("Exposed communication of one rank of several, over TCP");
  atl::bench::Options options;
  app.add_option("recipe", options.recipe, "TOML file");
  app.add_option("--rank", options.rank)->required();
  app.add_option("--ranks", options.ranks);
  app.add_option("--rendezvous", options.rendezvous, "tcp://HOST:PORT, which rank 0 opens")
      ->required()
      ->check([](const std::string& text) {
        return text.starts_with("tcp://") && text.rfind(':') > 6 ? "" : "not tcp://HOST:PORT";
      });
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  options.overrides = app.remaining();
  try {
    atl::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
