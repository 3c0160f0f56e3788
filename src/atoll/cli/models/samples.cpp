#include "atoll/cli/models/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/append_file.h"
#include "atoll/device/device.h"
#include "atoll/metrics/record.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/inference_engine.h"
#include "atoll/text/stream_decoder.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

// The draw of generate's own defaults.
constexpr double kTemperature = 0.8, kTopP = 0.95;

std::vector<std::int32_t> tokens_of(const std::string& prompt, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt, {.add_special = true});
  if (!tokens.empty()) return tokens;
  if (const auto start = tokenizer.end_of_text()) return {*start};
  throw user_error(
      "eval.samples: the tokenizer has no token that begins a text; give eval.prompts some text");
}

// What stands on a terminal: no character that moves its cursor but an end of line.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) {
        return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
      },
      ' ');
  return text;
}

class Writer {
 public:
  Writer(const train::TrainConfig& config, std::int64_t step, const fs::path& checkpoint)
      : config_(config),
        step_(step),
        device_(open_device({.threads = static_cast<int>(config.device.threads)})),
        tokenizer_(model_dir::load_tokenizer(checkpoint)),
        model_(model_dir::read_model_config(checkpoint)),
        stops_(model_dir::stop_tokens(checkpoint, tokenizer_)),
        file_(fs::path(config.run.dir) / kSamplesFile) {
    std::vector<std::string> prompts = config.eval.prompts;
    if (prompts.empty()) prompts.emplace_back();
    for (const std::string& text : prompts) prompts_.push_back({text, tokens_of(text, tokenizer_)});
    std::int64_t longest = 0;
    for (const Prompt& prompt : prompts_) longest = std::max(longest, std::ssize(prompt.tokens));
    engine_.emplace(*device_, model_,
                    std::min(longest + config.eval.sample_tokens, model_.max_positions));
    engine_->limit_vocabulary(tokenizer_.vocab_size());
    model_dir::load_parameters(checkpoint, engine_->model(), engine_->store(), device_->threads());
  }

  void write_all() {
    std::int64_t number = 0;
    for (const Prompt& prompt : prompts_) {
      for (std::int64_t i = 0; i < config_.eval.samples; ++i) write(prompt, number++);
    }
  }

 private:
  struct Prompt {
    std::string text;
    std::vector<std::int32_t> tokens;
  };

  std::string continued(const Prompt& prompt, std::int64_t number) {
    serve::TokenSampler sampler({.temperature = kTemperature,
                                 .top_p = kTopP,
                                 .seed = static_cast<std::uint64_t>(config_.run.seed + number)});
    StreamDecoder decoder(tokenizer_, {.skip_special = true});
    std::string shown;
    for (const std::int32_t token : prompt.tokens) {
      if (!tokenizer_.is_special(token)) shown += decoder.push(token);
    }
    shown += decoder.settle();
    std::string text;
    engine_->reset();
    engine_->generate(prompt.tokens, config_.eval.sample_tokens, sampler, -1,
                      [&](std::int32_t token) {
                        if (std::binary_search(stops_.begin(), stops_.end(), token)) return false;
                        text += decoder.push(token);
                        return true;
                      });
    return text + decoder.finish();
  }

  void write(const Prompt& prompt, std::int64_t number) {
    using Json = nlohmann::ordered_json;
    const std::string text = continued(prompt, number);
    const Json json = {{"step", step_},
                       {"time", metrics::wall_time_now()},
                       {"number", number},
                       {"prompt", prompt.text},
                       {"text", text}};
    const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    file_.append(line + "\n");
    if (config_.log.format == "json") {
      fmt::print("{}\n", line);
    } else {
      fmt::print("sample {} at step {}: {}{}\n", number + 1, step_, printable(prompt.text),
                 printable(text));
    }
    std::fflush(stdout);
  }

  const train::TrainConfig& config_;
  std::int64_t step_;
  std::unique_ptr<Device> device_;
  Tokenizer tokenizer_;
  nn::ModelConfig model_;
  std::vector<std::int32_t> stops_;
  AppendFile file_;
  std::vector<Prompt> prompts_;
  std::optional<serve::InferenceEngine> engine_;
};

}  // namespace

void write_samples(const train::TrainConfig& config, std::int64_t step,
                   const fs::path& checkpoint) {
  Writer(config, step, checkpoint).write_all();
}

}  // namespace atl::cli
