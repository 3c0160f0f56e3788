#pragma once

// What tests of stages share: services of a tiny model behind links as bad as is wanted, and
// requests of every kind.

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/serve/batch/batch_testing.h"
#include "atoll/serve/stages/layer_split.h"
#include "atoll/serve/stages/pipeline_executor.h"
#include "atoll/serve/stages/stage_service.h"
#include "atoll/wire/testing/relay.h"

namespace atl::serve::stages::test {

/// As main() of atoll does: OpenSSL writes to connections that have ended.
inline const auto kOldHandler = std::signal(SIGPIPE, SIG_IGN);

inline constexpr StepRoom kRoom = {.max_positions = 160, .max_rows = 32, .num_blocks = 80};

/// A tiny model of so many layers.
inline nn::ModelConfig config_of(const std::string& family, std::int64_t num_layers = 4) {
  nn::ModelConfig config = atl::test::tiny_config(family);
  config.num_layers = num_layers;
  return config;
}

/// A stage whose layers have the values that training would begin with.
inline StageOptions stage_options(const nn::ModelConfig& config,
                                  const std::string& listen = "127.0.0.1:0") {
  return {.listen = listen,
          .model = "tiny",
          .config = config,
          .open = [config](const Assignment& assignment) {
            auto model = std::make_unique<StepModel>(
                open_cpu(1), config, parse_weights(assignment.weights), assignment.room,
                StepLayers{assignment.first_layer, assignment.end_layer});
            model->initialise(5);
            return model;
          }};
}

/// A stage of a tiny model behind a link.
struct Stage {
  Stage(const nn::ModelConfig& config, const wire::test::LinkOptions& link)
      : service(std::make_unique<StageService>(stage_options(config))),
        listen(service->address()),
        relay(listen, link) {}

  /// The process is gone, and so are its connections.
  void kill() { service.reset(); }
  /// It is back at the same address, without layers.
  void restart(const nn::ModelConfig& config) {
    service = std::make_unique<StageService>(stage_options(config, listen));
  }

  std::unique_ptr<StageService> service;
  std::string listen;
  wire::test::Relay relay;
};

/// Stages and spares of a model, and the options of a server that uses them.
class Machines {
 public:
  Machines(const nn::ModelConfig& config, std::size_t stages, std::size_t spares = 0,
           const wire::test::LinkOptions& link = {}) {
    if (stages > 0) options.layers = split_evenly(config, stages);
    for (std::size_t i = 0; i < stages + spares; ++i) {
      all.push_back(std::make_unique<Stage>(config, link));
      (i < stages ? options.stages : options.spares).push_back(all.back()->relay.address());
    }
    options.config = config;
    options.model = "tiny";
    options.room = kRoom;
    options.vocab_size = config.vocab_size;
    options.timeout_ms = 60'000;  // tests that wait for it set their own
  }

  std::unique_ptr<BatchGenerator> generator(std::int64_t slots = 8) const {
    auto executor = std::make_unique<PipelineExecutor>(options);
    executor->wait_until_ready();
    return std::make_unique<BatchGenerator>(std::move(executor), BatchOptions{.slots = slots});
  }

  PipelineOptions options;
  std::vector<std::unique_ptr<Stage>> all;
};

/// Allows every third token, another third after each.
class EveryThird final : public TokenConstraint {
 public:
  void mask(std::span<std::uint64_t> allowed) override {
    for (std::size_t token = 0; token < allowed.size() * 64; ++token) {
      if (token % 3 != turn_ % 3) allowed[token / 64] &= ~(std::uint64_t{1} << (token % 64));
    }
  }
  void accept(std::int32_t /*token*/) override { ++turn_; }
  bool is_over() const override { return turn_ >= 25; }

 private:
  std::size_t turn_ = 0;
};

/// One of many kinds of requests; some begin alike.
inline GenerationRequest request_of(std::uint64_t kind) {
  const RngStream words(kind % 5 < 2 ? 1 : kind, RngPurpose::kSynthetic, 6);
  GenerationRequest request;
  for (std::uint64_t i = 0; i < 1 + kind * 13 % 70; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(words.word(i) % atl::test::kTinyVocab));
  }
  request.max_new_tokens = 5 + static_cast<std::int64_t>(kind * 7 % 40);
  request.sampling = {.temperature = kind % 3 == 0 ? 0.0 : 1.0,
                      .top_k = kind % 4 == 0 ? 5 : 0,
                      .top_p = kind % 7 == 0 ? 0.8 : 1.0,
                      .seed = kind};
  request.sequence = static_cast<std::int64_t>(kind % 2);
  request.top_logprobs = static_cast<int>(kind % 3) - 1;
  request.prompt_logprobs = kind % 11 == 3;
  if (kind % 8 == 2) request.pooling = Pooling::kMean;
  if (kind % 6 == 1) {
    request.changes = {.min_p = 0.02,
                       .presence_penalty = 0.3,
                       .frequency_penalty = 0.2,
                       .repetition_penalty = 1.1,
                       .bias = {{3, 1.5}, {7, -100}}};
  }
  if (kind % 6 == 4) request.constraint = std::make_unique<EveryThird>();
  return request;
}

/// All that a client gets.
struct Answer {
  std::vector<TokenResult> tokens, prompt;
  std::vector<float> embedding;
  Finish finish = Finish::kFailed;
  std::string error;

  bool operator==(const Answer& other) const {
    const auto same = [](const std::vector<TokenResult>& a, const std::vector<TokenResult>& b) {
      return std::ranges::equal(a, b, [](const TokenResult& x, const TokenResult& y) {
        return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
      });
    };
    return same(tokens, other.tokens) && same(prompt, other.prompt) &&
           embedding == other.embedding && finish == other.finish && error == other.error;
  }
};

/// For GoogleTest.
inline void PrintTo(const Answer& answer, std::ostream* out) {
  *out << answer.tokens.size() << " tokens, finish " << static_cast<int>(answer.finish) << ", "
       << answer.error << ":";
  for (const TokenResult& token : answer.tokens) *out << " " << token.token;
}

/// Requests under way at a generator.
class Clients {
 public:
  Clients(BatchGenerator& generator, std::uint64_t count) {
    for (std::uint64_t kind = 0; kind < count; ++kind) {
      collectors_.push_back(std::make_shared<atl::test::Collector>());
      numbers_.push_back(generator.submit(request_of(kind), collectors_.back()).value());
    }
  }
  atl::test::Collector& operator[](std::size_t i) { return *collectors_[i]; }
  std::uint64_t number(std::size_t i) const { return numbers_[i]; }
  std::vector<Answer> answers() {
    std::vector<Answer> answers;
    for (const auto& collector : collectors_) {
      const GenerationResult result = collector->wait();
      answers.push_back({collector->tokens(), collector->prompt(), result.embedding, result.finish,
                         result.error});
    }
    return answers;
  }

 private:
  std::vector<std::shared_ptr<atl::test::Collector>> collectors_;
  std::vector<std::uint64_t> numbers_;
};

/// What one process answers.
inline std::vector<Answer> expected_answers(const nn::ModelConfig& config, std::uint64_t count,
                                            Weights weights = Weights::kF32) {
  BatchGenerator generator(atl::test::tiny_model(config, kRoom, 1, weights), {.slots = 4});
  return Clients(generator, count).answers();
}

}  // namespace atl::serve::stages::test
