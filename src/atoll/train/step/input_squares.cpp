#include "atoll/train/step/input_squares.h"

#include <memory>

#include "atoll/base/check.h"
#include "atoll/data/evaluation.h"
#include "atoll/nn/linear.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace {

// Sums of one layer.
struct Sums {
  std::vector<double> squares;  // (in)
  std::int64_t rows = 0;

  void add(const Tensor& x) {
    const HostRead host(x);
    const std::span<const float> values = host.elements<float>();
    squares.resize(static_cast<std::size_t>(x.dim(-1)));
    for (std::size_t at = 0; at < values.size(); at += squares.size(), ++rows) {
      for (std::size_t i = 0; i < squares.size(); ++i) {
        squares[i] += double{values[at + i]} * values[at + i];
      }
    }
  }

  std::vector<float> means() const {
    std::vector<float> result;
    for (const double sum : squares) {
      result.push_back(static_cast<float>(sum / static_cast<double>(rows)));
    }
    return result;
  }
};

// Observes every linear layer while it lives.
class Observed final : public nn::ParamVisitor {
 public:
  explicit Observed(nn::Model& model) { model.visit(*this); }
  ~Observed() override {
    for (const Layer& layer : layers_) layer.linear->observe_input({});
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

  void param(nn::Param& /*param*/) override {}
  void linear(nn::Linear& linear) override {
    Sums& sums = *layers_.emplace_back(Layer{&linear, std::make_unique<Sums>()}).sums;
    linear.observe_input([&sums](const Tensor& x) { sums.add(x); });
  }

  InputSquares means() const {
    InputSquares result;
    for (const Layer& layer : layers_) {
      if (layer.sums->rows == 0) continue;
      const std::vector<float> means = layer.sums->means();
      for (const nn::FileTensor& file : layer.linear->weight().files) result[file.name] = means;
    }
    return result;
  }

 private:
  struct Layer {
    nn::Linear* linear;
    std::unique_ptr<Sums> sums;
  };
  std::vector<Layer> layers_;
};

}  // namespace

InputSquares input_squares(TrainState& state, Stream& stream, const data::TokenSource& source,
                           std::int64_t max_tokens) {
  ATOLL_CHECK_EQ(state.num_data_ranks(), 1);
  const Observed observed(state.model());
  data::EvaluationBatches batches(source, {.micro_batch = state.options().micro_batch,
                                           .context = state.options().context,
                                           .max_targets = max_tokens});
  for (std::int64_t number = 0; number < batches.num_batches(); ++number) {
    state.runner().evaluate({.stream = &stream}, state.own_part(*batches.next()));
  }
  return observed.means();
}

}  // namespace atl::train
