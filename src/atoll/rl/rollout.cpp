#include "atoll/rl/rollout.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"

namespace atl::rl {

namespace {

using Json = nlohmann::ordered_json;

// nlohmann writes the shortest digits that give a double back.
Json to_json_value(const Sample& sample) {
  return {{"number", sample.number},
          {"prompt", sample.prompt},
          {"tokens", sample.completion.tokens},
          {"logprobs", sample.completion.logprobs},
          {"whole", sample.completion.is_whole},
          {"rewards", sample.rewards},
          {"reward", sample.reward},
          {"reference", sample.reference}};
}

Sample sample_from(const Json& json) {
  Sample sample;
  json.at("number").get_to(sample.number);
  json.at("prompt").get_to(sample.prompt);
  json.at("tokens").get_to(sample.completion.tokens);
  json.at("logprobs").get_to(sample.completion.logprobs);
  json.at("whole").get_to(sample.completion.is_whole);
  json.at("rewards").get_to(sample.rewards);
  json.at("reward").get_to(sample.reward);
  json.at("reference").get_to(sample.reference);
  return sample;
}

}  // namespace

std::string to_json(std::span<const Rollout> rollouts) {
  Json list = Json::array();
  for (const Rollout& rollout : rollouts) {
    Json samples = Json::array();
    for (const Sample& sample : rollout.samples) samples.push_back(to_json_value(sample));
    list.push_back(
        {{"step", rollout.step}, {"weights", rollout.weights}, {"samples", std::move(samples)}});
  }
  return Json{{"rollouts", std::move(list)}}.dump();
}

std::vector<Rollout> rollouts_from_json(const std::string& json, const std::string& origin) {
  try {
    std::vector<Rollout> rollouts;
    const Json root = Json::parse(json);
    for (const Json& item : root.at("rollouts")) {
      Rollout rollout;
      item.at("step").get_to(rollout.step);
      item.at("weights").get_to(rollout.weights);
      for (const Json& sample : item.at("samples")) rollout.samples.push_back(sample_from(sample));
      rollouts.push_back(std::move(rollout));
    }
    return rollouts;
  } catch (const nlohmann::json::exception& error) {
    throw damaged_error("{}: {}", origin, error.what());
  }
}

}  // namespace atl::rl
