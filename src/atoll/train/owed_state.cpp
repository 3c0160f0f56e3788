#include "atoll/train/owed_state.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/parallel/onebit_optimizer.h"
#include "atoll/parallel/owed_sharing.h"
#include "atoll/parallel/weight_differences.h"
#include "atoll/parallel/whole_state.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace {

using parallel::Compression;

const parallel::CompressionOptions& compression(const TrainState& state) {
  return state.options().data_parallel.compression;
}

// The codec whose owed values this state has a place for.
std::string codec_of(const TrainState& state) {
  const parallel::CompressionOptions& options = compression(state);
  return options.feedback ? parallel::compression_name(options.gradients) : "";
}

// Reads vectors of a checkpoint for a state that may owe in another way.
class OwedReader {
 public:
  OwedReader(const ckpt::SafetensorsSet& files, const OwedState& owed, std::int64_t step,
             TrainState& state)
      : files_(files),
        owed_(owed),
        own_name_(parallel::owed_name(state.options().data_parallel.rank)),
        rank_(state.options().data_parallel.rank),
        num_ranks_(state.options().data_parallel.num_ranks),
        is_same_codec_(owed.codec == codec_of(state)),
        folds_(!owed.codec.empty() && !is_same_codec_) {
    if (!folds_) return;
    const optim::OptimizerOptions& adamw = state.options().optimizer;
    gradient_rest_ = 1 - adamw.number("beta1");
    if (owed.second_updates <= 0) return;
    const auto of_all = [&](std::int64_t updates) {
      return 1 - std::pow(adamw.number("beta2"), static_cast<double>(updates));
    };
    second_factor_ = static_cast<float>(of_all(step) / of_all(owed.second_updates));
  }

  void read(const std::string& name, const nn::Param& param, const Tensor& whole) const {
    const std::string prefix = name + ".";
    if (name == own_name_) return read_own(param, whole);
    if (name == parallel::kOwedSum && !(is_same_codec_ && has(prefix, param))) {
      return write_on_host<float>(whole, [](auto to) { std::ranges::fill(to, 0.0F); });
    }
    // Of a run without differences: what values were filled with.
    if (name == parallel::kPublished && !has(prefix, param)) return;
    ckpt::read_param(files_, {&param, whole}, prefix);
    if (folds_ && name == "exp_avg") fold(param, whole);
    if (folds_ && name == "exp_avg_sq") correct_second(whole);
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

  std::vector<std::vector<float>> all_owed(const nn::Param& param) const {
    std::vector<std::vector<float>> all;
    // Of some codecs not all parameters owe anything.
    for (int r = 0; r < owed_.ranks && has(parallel::owed_name(r) + ".", param); ++r) {
      all.push_back(vector_of(parallel::owed_name(r), param));
    }
    return all;
  }

  void read_own(const nn::Param& param, const Tensor& whole) const {
    std::vector<std::vector<float>> all;
    if (is_same_codec_) all = all_owed(param);
    const std::vector<std::span<const float>> old(all.begin(), all.end());
    std::vector<float> mine(static_cast<std::size_t>(whole.num_elements()));
    if (!old.empty()) parallel::share_owed(old, num_ranks_, rank_, 0, mine);
    write_on_host<float>(whole, [&](auto to) { std::ranges::copy(mine, to.begin()); });
  }

  // AdamW takes a second moment for one that has an update of each step, and undoes the bias of so
  // many.
  void correct_second(const Tensor& second) const {
    update_on_host<float>(second, [&](auto v) {
      for (float& one : v) one *= second_factor_;
    });
  }

  // What is owed of gradients goes where the next gradient goes; of momentum, to the momentum.
  void fold(const nn::Param& param, const Tensor& momentum) const {
    const bool is_momentum = owed_.codec == parallel::compression_name(Compression::kOneBitAdam) ||
                             owed_.codec == parallel::compression_name(Compression::kZeroOneAdam);
    const std::vector<std::vector<float>> all = all_owed(param);
    const std::vector<float> sum =
        is_momentum ? vector_of(parallel::kOwedSum, param) : std::vector<float>();
    const double weight = is_momentum ? 1.0 / owed_.ranks : gradient_rest_;
    update_on_host<float>(momentum, [&](auto to) {
      for (std::size_t i = 0; i < to.size(); ++i) {
        double owed = 0;
        for (const std::vector<float>& one : all) owed += static_cast<double>(one[i]);
        owed *= weight;
        if (is_momentum) owed += static_cast<double>(sum[i]);
        to[i] = static_cast<float>(static_cast<double>(to[i]) +
                                   owed * static_cast<double>(owed_.steps));
      }
    });
  }

  const ckpt::SafetensorsSet& files_;
  OwedState owed_;
  std::string own_name_;
  int rank_;
  int num_ranks_;
  bool is_same_codec_;
  bool folds_;
  double gradient_rest_ = 0;
  float second_factor_ = 1;
};

}  // namespace

OwedState owed_state(const TrainState& state) {
  OwedState owed = {.codec = codec_of(state)};
  if (!owed.codec.empty()) owed.ranks = state.options().data_parallel.num_ranks;
  if (const parallel::OneBitOptimizer* onebit = state.onebit()) {
    owed.second_updates = onebit->second_updates();
    owed.steps = onebit->owed_steps();
  }
  return owed;
}

void check_owed(const OwedState& owed, const TrainState& state,
                const std::filesystem::path& checkpoint) {
  if (owed.codec.empty() || owed.codec == codec_of(state)) return;
  if (!state.options().folds_owed) {
    throw user_error(
        "{}: {} owe each other values of dp.compress = {}, and this run has {}; set it back, or "
        "add "
        "what is owed to AdamW's momentum with --dp.compress_owed=fold",
        checkpoint.string(), counted(owed.ranks, "rank"), owed.codec,
        codec_of(state).empty() ? "none" : codec_of(state));
  }
  if (state.options().optimizer.kind != "adamw" || state.options().build.dtype != Dtype::kF32) {
    throw user_error(
        "{}: dp.compress_owed = fold adds what is owed to the f32 momentum of AdamW, and this run "
        "has optim.kind = {}; set dp.compress back to {}",
        checkpoint.string(), state.options().optimizer.kind, owed.codec);
  }
}

void load_state_vectors(const ckpt::SafetensorsSet& files, const OwedState& owed, std::int64_t step,
                        TrainState& state, ThreadPool& threads) {
  const OwedReader reader(files, owed, step, state);
  std::vector<optim::StateTensor> pieces = state.optimizer().state();
  for (optim::StateTensor& piece : state.store().state()) pieces.push_back(std::move(piece));
  parallel::fill_pieces(state.store().layout(), pieces, &threads,
                        [&](const std::string& name, const nn::Param& param, const Tensor& whole) {
                          reader.read(name, param, whole);
                        });
  if (parallel::OneBitOptimizer* onebit = state.onebit()) {
    const OwedState kept = owed.codec == codec_of(state) ? owed : OwedState();
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

void load_factors(const ckpt::CheckpointInfo& checkpoint, const OwedState& owed,
                  TrainState& state) {
  const std::vector<Tensor> factors = state.store().factors();
  const std::filesystem::path path = checkpoint.path / kFactorsFile;
  if (factors.empty() || owed.codec != codec_of(state) || !std::filesystem::exists(path)) return;
  const ckpt::SafetensorsFile file(path);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::string name = factor_name(i);
    if (!file.contains(name) || file.spec(name) != factors[i].spec()) continue;
    write_on_host<float>(factors[i], [&](auto to) { file.read_f32(name, std::span<float>(to)); });
  }
}

}  // namespace atl::train
