#include "atoll/tune/report/coordinate_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/data/loader.h"
#include "atoll/tensor/host_access.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/config/mup.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/model/options.h"
#include "atoll/train/step/step.h"

namespace atl::tune {

namespace {

using Values = std::vector<float>;

constexpr std::int64_t kLogitRows = 16;  // tokens whose logits are looked at

Values values_of(const Tensor& tensor) {
  const HostRead read(tensor);
  const auto all = read.elements<float>();
  return {all.begin(), all.end()};
}

double rms_of_difference(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// Rows times a head's weight: (rows, C) x (V, C).
Values logits_of(const Values& x, const Values& weight, std::size_t width) {
  Values logits;
  for (std::size_t row = 0; row + width <= x.size(); row += width) {
    for (std::size_t token = 0; token < weight.size(); token += width) {
      double sum = 0;
      for (std::size_t c = 0; c < width; ++c) {
        sum += static_cast<double>(x[row + c]) * static_cast<double>(weight[token + c]);
      }
      logits.push_back(static_cast<float>(sum));
    }
  }
  return logits;
}

// A stage that keeps what it gave, where somebody wants it.
class Probe final : public nn::Layer {
 public:
  Probe(std::unique_ptr<nn::Layer> stage, std::optional<Values>& seen)
      : stage_(std::move(stage)), seen_(seen) {}

  nn::Footprint plan(Spec x) const override { return stage_->plan(x); }
  void forward(Run& run, const nn::Pass& pass) override {
    stage_->forward(run, pass);
    if (run.training) return;
    run.stream->synchronize();
    seen_ = values_of(pass.y);
  }
  void backward_input(Run& run, const nn::Pass& pass) override {
    stage_->backward_input(run, pass);
  }
  void backward_weight(Run& run, const nn::Pass& pass) override {
    stage_->backward_weight(run, pass);
  }
  void visit(nn::ParamVisitor& visitor) override { stage_->visit(visitor); }

 private:
  std::unique_ptr<nn::Layer> stage_;
  std::optional<Values>& seen_;
};

// A model in training, of which somebody looks at the activations.
class Watched {
 public:
  Watched(const train::TrainConfig& config, const train::PreparedCorpus& corpus)
      : config_(config),
        device_(open_device({.threads = static_cast<int>(config.device.threads)})),
        stream_(device_->open_stream()),
        state_(train::state_options(config, corpus.vocab_size(),
                                    corpus.tokenizer.end_of_text().value_or(-1))),
        samples_(corpus, config.data.weights, static_cast<std::uint64_t>(config.run.seed),
                 config.train.context, data::parse_packing(config.data.packing, "data.packing")),
        loader_(samples_.get(), loader_options()),
        fixed_(samples_.get(), loader_options()),
        batch_(fixed_.next()) {
    state_.allocate(*device_);
    Run run = {.stream = stream_.get()};
    state_.store().initialise(run, static_cast<std::uint64_t>(config.run.seed));
    state_.optimizer().init_masters(run, state_.store().values());
    nn::Model& model = state_.model();
    seen_.resize(model.stages.size());
    for (std::size_t i = 0; i + 1 < model.stages.size(); ++i) {
      model.stages[i] = std::make_unique<Probe>(std::move(model.stages[i]), seen_[i]);
    }
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // In the order of activations(). The final norm's, whose scale stands for what divides logits, is
  // seen in the logits.
  std::vector<Values> look() {
    state_.runner().evaluate({.stream = stream_.get()}, batch_);
    std::vector<Values> all;
    for (const std::size_t i : shown()) all.push_back(*seen_[i]);
    const auto width = static_cast<std::size_t>(state_.options().model.hidden_size);
    Values last = *seen_[seen_.size() - 2];
    last.resize(std::min(last.size(), kLogitRows * width));
    if (state_.model().head == nullptr) {
      throw user_error(
          "the coordinate check does not know heads that cap their logits, as those of "
          "the family {}; take another",
          state_.options().model.family);
    }
    all.push_back(logits_of(last, values_of(state_.model().head->weight()->value), width));
    return all;
  }
  std::vector<std::string> activations() {
    std::vector<std::string> names;
    for (const std::size_t i : shown()) names.push_back(state_.model().stage_names[i]);
    names.emplace_back("logits");
    return names;
  }
  void train(std::int64_t step) {
    const train::StepResult result =
        train::take_step(state_, *stream_,
                         {.step = step,
                          .seed = static_cast<std::uint64_t>(config_.run.seed),
                          .num_micro_batches = config_.train.batch_size / config_.train.micro_batch,
                          .lr = config_.optim.lr,
                          .clip = config_.optim.clip},
                         [&] { return loader_.next(); });
    if (result.taken()) return;
    throw user_error("step {} of the model of width {} is not finite; lower optim.lr ({})",
                     step + 1, config_.model.hidden_size, config_.optim.lr);
  }

 private:
  data::LoaderOptions loader_options() const {
    return {.micro_batch = config_.train.micro_batch, .global_batch = config_.train.batch_size};
  }
  std::vector<std::size_t> shown() {
    std::vector<std::size_t> all;
    const std::vector<std::string>& names = state_.model().stage_names;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == "embedding" || names[i].starts_with("block ")) all.push_back(i);
    }
    return all;
  }

  const train::TrainConfig& config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  train::TrainState state_;
  train::TrainSamples samples_;
  data::Loader loader_, fixed_;
  Batch batch_;  // of fixed_, from which nothing else is taken
  std::vector<std::optional<Values>> seen_;
};

void check_recipe(const train::TrainConfig& config, const CoordinateOptions& options) {
  if (!config.model.is_inline()) {
    throw user_error(
        "the coordinate check makes models of other widths, and {} says what the model is; give a "
        "recipe with its shape (model.hidden_size and the like)",
        config.model.from.empty() ? "model.config" : "model.from");
  }
  if (config.lora.rank > 0) {
    throw user_error("the coordinate check is of whole models; leave lora.rank out");
  }
  const auto [least, most] = std::minmax_element(options.widths.begin(), options.widths.end());
  if (options.widths.size() < 2 || *least == *most) {
    throw user_error("a slope over widths needs at least two of them");
  }
}

std::int64_t head_dim_of(const train::ModelSettings& model) {
  return model.head_dim != 0 ? model.head_dim : model.hidden_size / model.num_attention_heads;
}

void check_base(const train::TrainConfig& config) {
  train::TrainConfig checked = config;
  Settings settings = train::make_settings(checked);
  train::validate_parametrisation(checked, settings);
}

}  // namespace

train::TrainConfig at_width(const train::TrainConfig& config, std::int64_t width) {
  train::TrainConfig result = config;
  const auto scaled = [&](const char* key, std::int64_t size) {
    if (size * width % config.model.hidden_size != 0) {
      throw user_error(
          "at width {} instead of {}, {} = {} would not be a whole number; choose other widths",
          width, config.model.hidden_size, key, size);
    }
    return size * width / config.model.hidden_size;
  };
  train::ModelSettings& model = result.model;
  model.hidden_size = width;
  if (model.intermediate_size != 0) {
    model.intermediate_size = scaled("model.intermediate_size", model.intermediate_size);
  }
  if (model.head_dim != 0) {
    model.num_attention_heads = scaled("model.num_attention_heads", model.num_attention_heads);
    if (model.num_key_value_heads != 0) {
      model.num_key_value_heads = scaled("model.num_key_value_heads", model.num_key_value_heads);
    }
  } else if (width % model.num_attention_heads != 0) {
    throw user_error("width {} is not a multiple of model.num_attention_heads = {}", width,
                     model.num_attention_heads);
  }
  return result;
}

CoordinateCheck check_coordinates(const train::TrainConfig& config,
                                  const std::string& parametrisation,
                                  const CoordinateOptions& options) {
  check_recipe(config, options);
  CoordinateCheck check = {.parametrisation = parametrisation, .widths = options.widths};
  std::sort(check.widths.begin(), check.widths.end());
  train::TrainConfig base = config;
  base.train.dtype = "f32";
  base.train.fp8 = "off";
  base.model.parametrisation = parametrisation;
  if (parametrisation == "mup") {
    const train::ModelSettings first = at_width(config, check.widths.front()).model;
    if (base.model.mup_base_width == 0) base.model.mup_base_width = first.hidden_size;
    if (base.model.mup_base_head_dim == 0) base.model.mup_base_head_dim = head_dim_of(first);
  } else {
    base.model.mup_base_width = base.model.mup_base_head_dim = 0;
  }
  check.base_width = base.model.mup_base_width;
  check.base_head_dim = base.model.mup_base_head_dim;
  check_base(base);
  const train::PreparedCorpus corpus = train::prepare_corpus(train::corpus_options(base));

  // Sums over seeds of log RMS, by step, width and activation.
  std::vector<std::vector<std::vector<double>>> sums(static_cast<std::size_t>(options.steps));
  for (const std::int64_t width : check.widths) {
    for (auto& of_step : sums) of_step.emplace_back();
    for (std::int64_t seed = 0; seed < options.seeds; ++seed) {
      train::TrainConfig wide = at_width(base, width);
      wide.run.seed = config.run.seed + seed;
      Watched watched(wide, corpus);
      check.activations = watched.activations();
      const std::vector<Values> before = watched.look();
      for (std::int64_t step = 0; step < options.steps; ++step) {
        watched.train(step);
        const std::vector<Values> after = watched.look();
        std::vector<double>& row = sums[static_cast<std::size_t>(step)].back();
        row.resize(after.size());
        for (std::size_t i = 0; i < after.size(); ++i) {
          row[i] += std::log(rms_of_difference(before[i], after[i]));
        }
      }
    }
  }
  for (std::size_t step = 0; step < sums.size(); ++step) {
    for (std::size_t w = 0; w < check.widths.size(); ++w) {
      for (std::size_t i = 0; i < check.activations.size(); ++i) {
        check.changes.push_back({check.widths[w], static_cast<std::int64_t>(step) + 1,
                                 check.activations[i],
                                 std::exp(sums[step][w][i] / static_cast<double>(options.seeds))});
      }
    }
  }
  return check;
}

double CoordinateCheck::rms(std::int64_t width, std::int64_t step,
                            const std::string& activation) const {
  const auto found =
      std::find_if(changes.begin(), changes.end(), [&](const CoordinateChange& change) {
        return change.width == width && change.step == step && change.activation == activation;
      });
  ATOLL_CHECK(found != changes.end(), "no {} of width {} after step {}", activation, width, step);
  return found->rms;
}

double CoordinateCheck::slope(const std::string& activation, std::int64_t step) const {
  const auto count = static_cast<double>(widths.size());
  double mean_x = 0, mean_y = 0;
  for (const std::int64_t width : widths) {
    mean_x += std::log(static_cast<double>(width)) / count;
    mean_y += std::log(rms(width, step, activation)) / count;
  }
  double together = 0, square = 0;
  for (const std::int64_t width : widths) {
    const double x = std::log(static_cast<double>(width)) - mean_x;
    together += x * (std::log(rms(width, step, activation)) - mean_y);
    square += x * x;
  }
  return together / square;
}

double CoordinateCheck::largest_slope() const {
  double largest = -HUGE_VAL;
  for (const std::string& activation : activations) {
    largest = std::max(largest, slope(activation, last_step()));
  }
  return largest;
}

}  // namespace atl::tune
