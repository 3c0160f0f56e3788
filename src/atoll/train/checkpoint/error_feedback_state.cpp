#include "atoll/train/checkpoint/error_feedback_state.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/parallel/compress/error_feedback_sharing.h"
#include "atoll/parallel/compress/onebit_optimizer.h"
#include "atoll/parallel/compress/weight_differences.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace {

using parallel::Compression;

// The residual of momenta is no gradient: a step sums it with the others' as momenta.
bool is_of_momenta(const ResidualState& residual) {
  return residual.codec == parallel::compression_name(Compression::kOneBitAdam) ||
         residual.codec == parallel::compression_name(Compression::kZeroOneAdam);
}

const parallel::CompressionOptions& compression(const TrainState& state) {
  return state.options().data_parallel.compression;
}

// The codec whose residuals this state has a place for.
std::string codec_of(const TrainState& state) {
  const parallel::CompressionOptions& options = compression(state);
  return options.feedback ? parallel::compression_name(options.gradients) : "";
}

// The most that AdamW's momentum can be of the root of its second moment, after so many steps of
// any gradients: by the inequality of Cauchy and Schwarz, of sums over the steps that are k ago,
//   (sum (1-b1) b1^k g_k)^2  <=  sum ((1-b1) b1^k)^2 / ((1-b2) b2^k)  *  sum (1-b2) b2^k g_k^2.
double most_momentum(double beta1, double beta2, std::int64_t steps) {
  const double ratio = beta1 * beta1 / beta2;
  double sum = 0, power = 1;
  for (std::int64_t k = 0; k < steps && power > 1e-18 * sum; ++k, power *= ratio) sum += power;
  return (1 - beta1) * std::sqrt(sum / (1 - beta2));
}

// Reads vectors of a checkpoint for a state whose residual is of another kind.
class ResidualReader {
 public:
  ResidualReader(const ckpt::SafetensorsSet& files, const ResidualState& residual,
                 std::int64_t step, TrainState& state)
      : files_(files),
        residual_(residual),
        own_name_(parallel::residual_name(state.options().data_parallel.rank)),
        rank_(state.options().data_parallel.rank),
        num_ranks_(state.options().data_parallel.num_ranks),
        is_same_codec_(residual.codec == codec_of(state)),
        folds_gradients_(!residual.codec.empty() && !is_same_codec_ && !is_of_momenta(residual)),
        folds_momenta_(!residual.codec.empty() && !is_same_codec_ && is_of_momenta(residual)) {
    if (!folds_momenta_) return;
    const optim::OptimizerOptions& adamw = state.options().optimizer;
    const double beta1 = adamw.number("beta1"), beta2 = adamw.number("beta2");
    most_per_root_ = most_momentum(beta1, beta2, step);
    if (residual.second_updates <= 0) return;
    const auto of_all = [&](std::int64_t updates) {
      return 1 - std::pow(beta2, static_cast<double>(updates));
    };
    second_factor_ = static_cast<float>(of_all(step) / of_all(residual.second_updates));
  }

  bool folds_gradients() const { return folds_gradients_; }

  void read(const std::string& name, const nn::Param& param, const Tensor& whole) const {
    const std::string prefix = name + ".";
    if (name == kResidualGradient) return read_gradient(param, whole);
    if (name == own_name_) return read_own(param, whole);
    if (name == parallel::kResidualSum && !(is_same_codec_ && has(prefix, param))) {
      return write_on_host<float>(whole, [](auto to) { std::ranges::fill(to, 0.0F); });
    }
    // Of a run without differences: what values were filled with.
    if (name == parallel::kPublished && !has(prefix, param)) return;
    ckpt::read_param(files_, {&param, whole}, prefix);
    if (folds_momenta_ && name == "exp_avg") fold(param, whole);
    if (folds_momenta_ && name == "exp_avg_sq") correct_second(whole);
  }

 private:
  bool has(const std::string& prefix, const nn::Param& param) const {
    return files_.contains(prefix + param.files.front().name);
  }

  std::vector<float> vector_of(const std::string& name, const nn::Param& param) const {
    std::vector<float> values(static_cast<std::size_t>(param.spec.shape.num_elements()));
    ckpt::read_param(files_, {&param, Tensor(values.data(), {Dtype::kF32, param.spec.shape})},
                     name + ".");
    return values;
  }

  std::vector<std::vector<float>> all_residual(const nn::Param& param) const {
    std::vector<std::vector<float>> all;
    // Of some codecs not all parameters have a residual.
    for (int r = 0; r < residual_.ranks && has(parallel::residual_name(r) + ".", param); ++r) {
      all.push_back(vector_of(parallel::residual_name(r), param));
    }
    return all;
  }

  void read_own(const nn::Param& param, const Tensor& whole) const {
    std::vector<std::vector<float>> all;
    if (is_same_codec_) all = all_residual(param);
    const std::vector<std::span<const float>> old(all.begin(), all.end());
    std::vector<float> mine(static_cast<std::size_t>(whole.num_elements()));
    if (!old.empty()) parallel::share_residual(old, num_ranks_, rank_, 0, mine);
    write_on_host<float>(whole, [&](auto to) { std::ranges::copy(mine, to.begin()); });
  }

  // The sum over ranks is what one rank would not have lost, and what was to be added already when
  // the checkpoint was written.
  void read_gradient(const nn::Param& param, const Tensor& whole) const {
    std::vector<std::vector<float>> all;
    if (folds_gradients_) all = all_residual(param);
    const std::string prefix = std::string(kResidualGradient) + ".";
    if (has(prefix, param)) all.push_back(vector_of(kResidualGradient, param));
    write_on_host<float>(whole, [&](std::span<float> to) {
      for (std::size_t i = 0; i < to.size(); ++i) {
        double sum = 0;
        for (const std::vector<float>& one : all) sum += static_cast<double>(one[i]);
        to[i] = static_cast<float>(sum);
      }
    });
  }

  // AdamW takes a second moment for one that has an update of each step, and undoes the bias of so
  // many.
  void correct_second(const Tensor& second) const {
    update_on_host<float>(second, [&](auto v) {
      for (float& one : v) one *= second_factor_;
    });
  }

  // A mean of momenta goes to the momentum, but for what no gradients of that second moment could
  // have made of it: signs pay little in each step to an element whose second moment is small, so
  // that the residual may be any multiple of it, and AdamW would take all of that in one step.
  void fold(const nn::Param& param, const Tensor& momentum) const {
    const std::vector<std::vector<float>> all = all_residual(param);
    const std::vector<float> sum = vector_of(parallel::kResidualSum, param);
    const std::vector<float> second = vector_of("exp_avg_sq", param);
    update_on_host<float>(momentum, [&](std::span<float> to) {
      for (std::size_t i = 0; i < to.size(); ++i) {
        double residual = 0;
        for (const std::vector<float>& one : all) residual += static_cast<double>(one[i]);
        residual = residual / residual_.ranks + static_cast<double>(sum[i]);
        const auto before = static_cast<double>(to[i]);
        const double root = std::sqrt(static_cast<double>(second_factor_ * second[i]));
        const double most = std::max(std::abs(before), most_per_root_ * root);
        to[i] = static_cast<float>(
            std::clamp(before + residual * static_cast<double>(residual_.steps), -most, most));
      }
    });
  }

  const ckpt::SafetensorsSet& files_;
  ResidualState residual_;
  std::string own_name_;
  int rank_;
  int num_ranks_;
  bool is_same_codec_;
  bool folds_gradients_;
  bool folds_momenta_;
  double most_per_root_ = 0;
  float second_factor_ = 1;
};

// Of a run that was saved between reading it and the next step that was taken.
bool holds_residual_gradient(const ckpt::SafetensorsSet& files) {
  const std::string prefix = std::string(kResidualGradient) + ".";
  for (const ckpt::SafetensorsFile& file : files.files()) {
    for (const ckpt::SafetensorsEntry& tensor : file.entries()) {
      if (tensor.name.starts_with(prefix)) return true;
    }
  }
  return false;
}

}  // namespace

ResidualState residual_state(const TrainState& state) {
  ResidualState residual = {.codec = codec_of(state)};
  if (!residual.codec.empty()) residual.ranks = state.options().data_parallel.num_ranks;
  if (const parallel::OneBitOptimizer* onebit = state.onebit()) {
    residual.second_updates = onebit->second_updates();
    residual.steps = onebit->residual_steps();
  }
  return residual;
}

void check_residual(const ResidualState& residual, const TrainState& state,
                    const std::filesystem::path& checkpoint) {
  if (residual.codec.empty() || residual.codec == codec_of(state)) return;
  if (!state.options().folds_residual) {
    throw user_error(
        "{}: {} have residuals of dp.compress = {}, and this run has {}; set it back, or "
        "add the residual to {} with --dp.compress_owed=fold",
        checkpoint.string(), counted(residual.ranks, "rank"), residual.codec,
        codec_of(state).empty() ? "none" : codec_of(state),
        is_of_momenta(residual) ? "AdamW's momentum" : "the next step's gradient");
  }
  if (!is_of_momenta(residual)) return;
  if (state.options().optimizer.kind != "adamw" || state.options().build.dtype != Dtype::kF32) {
    throw user_error(
        "{}: dp.compress_owed = fold adds the residual of dp.compress = {} to the f32 momentum "
        "of AdamW, and this run has optim.kind = {} and train.dtype = {}; set them back to adamw "
        "and f32, or dp.compress to {}",
        checkpoint.string(), residual.codec, state.options().optimizer.kind,
        dtype_name(state.options().build.dtype), residual.codec);
  }
}

void load_state_vectors(const ckpt::SafetensorsSet& files, const ResidualState& residual,
                        std::int64_t step, TrainState& state, ThreadPool& threads) {
  const ResidualReader reader(files, residual, step, state);
  std::vector<optim::StateTensor> pieces = state.optimizer().state();
  for (optim::StateTensor& piece : state.store().state()) pieces.push_back(std::move(piece));
  state.residual_gradient().drop();
  if (reader.folds_gradients() || holds_residual_gradient(files)) {
    state.residual_gradient().allocate(state.store());
  }
  for (optim::StateTensor& piece : state.residual_gradient().state()) {
    pieces.push_back(std::move(piece));
  }
  parallel::fill_pieces(state.store().layout(), pieces, &threads,
                        [&](const std::string& name, const nn::Param& param, const Tensor& whole) {
                          reader.read(name, param, whole);
                        });
  if (parallel::OneBitOptimizer* onebit = state.onebit()) {
    const ResidualState kept = residual.codec == codec_of(state) ? residual : ResidualState();
    onebit->restored(kept.second_updates, kept.steps);
  }
}

namespace {

constexpr const char* kFactorsFile = "factors.safetensors";

std::string factor_name(std::size_t i) {
  return fmt::format("factors.{}", i);
}

}  // namespace

ExtraPart factors_part(const TrainState& state) {
  ExtraPart part;
  const std::vector<Tensor> factors = state.store().factors();
  if (factors.empty()) return part;
  part.file = kFactorsFile;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const HostRead read(factors[i]);
    const auto copy =
        std::make_shared<std::vector<std::byte>>(read.bytes().begin(), read.bytes().end());
    part.sources.push_back({factor_name(i), factors[i].spec(), [copy](const ckpt::ByteSink& sink) {
                              sink(copy->data(), copy->size());
                            }});
  }
  return part;
}

void load_factors(const ckpt::CheckpointInfo& checkpoint, const ResidualState& residual,
                  TrainState& state) {
  const std::vector<Tensor> factors = state.store().factors();
  const std::filesystem::path path = checkpoint.path / kFactorsFile;
  if (factors.empty() || residual.codec != codec_of(state) || !std::filesystem::exists(path))
    return;
  const ckpt::SafetensorsFile file(path);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::string name = factor_name(i);
    if (!file.contains(name) || file.spec(name) != factors[i].spec()) continue;
    write_on_host<float>(factors[i], [&](auto to) { file.read_f32(name, std::span<float>(to)); });
  }
}

}  // namespace atl::train
