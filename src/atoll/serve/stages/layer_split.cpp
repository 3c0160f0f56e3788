#include "atoll/serve/stages/layer_split.h"

#include <charconv>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/parallel/schedule/stage_costs.h"

namespace atl::serve::stages {

namespace {

class Bytes final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    if (!seen_.insert(&param).second) return;
    sum += static_cast<double>(param.spec.shape.num_elements()) * sizeof(float);
  }
  double sum = 0;

 private:
  std::set<const nn::Param*> seen_;
};

std::optional<std::int64_t> read_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

StepLayers read_range(std::string_view word, const std::string& text) {
  const std::size_t dash = word.find('-');
  const auto first = read_number(word.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : read_number(word.substr(dash + 1));
  if (first && last && *first >= 0 && *last >= *first) return {*first, *last + 1};
  throw user_error(
      "--layers={}: \"{}\" is no range of layers; write FIRST-LAST for each stage, as "
      "in --layers 0-11,12-23",
      text, word);
}

}  // namespace

LayerBytes layer_bytes(const nn::ModelConfig& config) {
  const auto model = nn::build_model(config, {.max_positions = 1});
  LayerBytes bytes;
  for (std::size_t i = 0; i < model->stages.size(); ++i) {
    Bytes counted;
    model->stages[i]->visit(counted);
    if (i == 0) {
      bytes.embedding = counted.sum;
    } else if (std::cmp_less_equal(i, config.num_layers)) {
      bytes.layers.push_back(counted.sum);
    } else {
      bytes.head += counted.sum;
    }
  }
  return bytes;
}

double stage_bytes(const LayerBytes& bytes, const StepLayers& layers) {
  const auto begin = bytes.layers.begin();
  double sum = std::accumulate(begin + layers.first, begin + layers.end, 0.0);
  if (layers.first == 0) sum += bytes.embedding;
  if (layers.end == std::ssize(bytes.layers)) sum += bytes.head;
  return sum;
}

std::vector<StepLayers> split_evenly(const nn::ModelConfig& config, std::size_t stages) {
  if (std::cmp_greater(stages, config.num_layers)) {
    throw user_error("--stages names {}, and the model has {}; name at most one stage a layer",
                     counted(static_cast<std::int64_t>(stages), "stage"),
                     counted(config.num_layers, "layer"));
  }
  const LayerBytes bytes = layer_bytes(config);
  std::vector<double> costs = bytes.layers;
  costs.front() += bytes.embedding;
  costs.back() += bytes.head;
  const std::vector<std::size_t> bounds = parallel::balanced_bounds(costs, stages);
  std::vector<StepLayers> split;
  for (std::size_t i = 0; i < stages; ++i) {
    split.push_back(
        {static_cast<std::int64_t>(bounds[i]), static_cast<std::int64_t>(bounds[i + 1])});
  }
  return split;
}

std::vector<StepLayers> parse_layers(const std::string& text, const nn::ModelConfig& config,
                                     std::size_t stages) {
  std::vector<StepLayers> split;
  std::string_view left = text;
  for (;;) {
    const std::size_t comma = left.find(',');
    split.push_back(read_range(left.substr(0, comma), text));
    const std::int64_t expected = split.size() == 1 ? 0 : split[split.size() - 2].end;
    if (split.back().first != expected) {
      throw user_error("--layers={}: stage {} begins with layer {}, and layer {} comes next", text,
                       split.size(), split.back().first, expected);
    }
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (split.back().end != config.num_layers) {
    throw user_error("--layers={}: the last layer is {}, and the model's is {}", text,
                     split.back().end - 1, config.num_layers - 1);
  }
  if (split.size() != stages) {
    throw user_error("--layers={} is for {}, and --stages names {}", text,
                     counted(static_cast<std::int64_t>(split.size()), "stage"),
                     static_cast<std::int64_t>(stages));
  }
  return split;
}

}  // namespace atl::serve::stages
