#pragma once

// What tests of checkpoints between layouts share: one rank of any layout, a thread of the test.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "atoll/ckpt/safetensors/set.h"
#include "atoll/ops/testing.h"
#include "atoll/optim/registry.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/model/connect_ranks.h"
#include "atoll/train/model/options.h"
#include "atoll/train/testing.h"

namespace atl::train::testing {

/// How ranks share a model and its step.
struct Layout {
  int shard = 1;
  int zero = 0;
  int replicas = 1;
  int tensor = 1;   ///< ranks that share each product
  int stages = 1;   ///< ranks that share the model's layers
  int context = 1;  ///< ranks that share each sequence
  int expert = 1;   ///< ranks that share the experts

  bool has_whole_model() const { return tensor == 1 && stages == 1 && expert == 1; }
  int ranks() const { return shard * replicas * tensor * stages * context * expert; }
  /// Does a run of any such layout have one rank's bits?
  bool is_exact() const { return replicas == 1 && context == 1 && has_whole_model(); }
  std::string name() const {
    return fmt::format("{}x{}zero{}tp{}pp{}cp{}ep{}", replicas, shard, zero, tensor, stages,
                       context, expert);
  }
};

/// A model, and how it is trained.
struct Variant {
  std::string name;
  std::string family = "llama";
  std::string kind = "adamw";
  Dtype dtype = Dtype::kF32;
  std::string masters = "f32";
  bool lora = false;
  bool exact = true;  ///< where the layout can
  std::string compress = "none";
  std::string compress_weights = "none";
  double compress_warmup = 0;  ///< of the 1,000 steps that a run has
  int compress_local_steps = 16;
  bool compress_feedback = true;
  std::string compress_owed = "keep";

  bool is_compressed() const { return compress != "none" || compress_weights != "none"; }
  bool has_experts() const { return family == "mixtral"; }
};

/// Whether such a layout trains such a model: see validate().
inline bool fits(const Variant& variant, const Layout& layout) {
  if (layout.tensor > 1 &&
      (optim::find_optimizer(variant.kind).whole_matrices || variant.masters == "stochastic")) {
    return false;
  }
  if (layout.stages > 1 && variant.masters == "stochastic") return false;
  if (layout.expert > 1 && (!variant.has_experts() || variant.masters == "stochastic")) {
    return false;
  }
  return true;
}

/// Matrices of more than parallel::kBlockElements, so that ranks hold parts of them.
inline nn::ModelConfig model_of(const Variant& variant) {
  nn::ModelConfig config = tiny_model(variant.family == "mixtral" ? "llama" : variant.family);
  config.family = variant.family;
  config.vocab_size = 311;
  config.hidden_size = 64;
  config.heads = {.num_heads = 4, .num_kv_heads = variant.family == "gpt2" ? 4 : 2, .head_dim = 16};
  config.intermediate_size = 150;
  config.max_positions = 8;
  if (variant.has_experts()) {
    config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 70};
  }
  return config;
}

/// Steps of four micro-batches of two sequences of eight tokens.
inline TrainConfig config_of(const Variant& variant, const Layout& layout) {
  TrainConfig config;
  config.train.batch_size = 8;
  config.train.micro_batch = 2;
  config.train.context = 8;
  config.train.exact = layout.is_exact() && variant.exact && !variant.is_compressed();
  config.dp.zero = layout.zero;
  config.dp.shard = layout.replicas > 1 ? layout.shard : 0;
  config.dp.bucket_mib = 0.1;
  config.parallel.tp = layout.tensor;
  config.parallel.pp = layout.stages;
  config.parallel.cp = layout.context;
  // Of the heads that each rank has then, a context axis cannot have parts too.
  if (layout.tensor > 1) config.parallel.cp_attention = "ring";
  config.parallel.ep = layout.expert;
  config.optim.kind = variant.kind;
  config.optim.masters = variant.masters;
  config.train.dtype = variant.dtype == Dtype::kBf16 ? "bf16" : "f32";
  if (variant.lora) config.lora.rank = 8;
  config.dp.compress = variant.compress;
  config.dp.compress_weights = variant.compress_weights;
  config.dp.compress_warmup = variant.compress_warmup;
  config.dp.compress_local_steps = variant.compress_local_steps;
  config.dp.compress_feedback = variant.compress_feedback;
  config.dp.compress_owed = variant.compress_owed;
  return config;
}

/// Of rank `rank`; `Layout{}`: of one that is alone.
inline StateOptions options_of(const Variant& variant, const Layout& layout, int rank) {
  StateOptions options = state_options(config_of(variant, layout), model_of(variant).vocab_size,
                                       /*eos_token=*/-1, layout.ranks(), rank);
  options.model = model_of(variant);
  return options;
}

/// Flat vectors by name: of values "", and of the optimizer's state.
using Vectors = std::map<std::string, std::string>;

/// One rank of a layout, a thread of the test.
class RankOf {
 public:
  RankOf(comm::World& world, const Variant& variant, const Layout& layout)
      : layout_(layout),
        ranks_(world, config_of(variant, layout)),
        run_(1, 1 << 22),
        state(options_of(variant, layout, world.rank())) {
    state.allocate(*run_.device);
    groups_ = connect_ranks(state, ranks_);
    state.store().initialise(run_, 5);
    state.optimizer().init_masters(run_, state.store().values());
  }

  ThreadPool& threads() { return run_.device->threads(); }

  /// What a load must replace.
  void forget() {
    for (const auto& piece : parallel::held_pieces(state.store(), &state.optimizer())) {
      std::memset(piece.tensor.raw(), 0, piece.tensor.bytes());
    }
  }

  /// Of batch `batch`, or of the one that has the step's number.
  StepResult step(std::int64_t number, std::int64_t batch = -1) {
    if (batch < 0) batch = number;
    const std::vector<std::int64_t> mine = ranks_.plan().of(ranks_.data_rank());
    std::size_t next = 0;
    std::vector<test::OwnedTensor<std::int32_t>> tokens;
    tokens.reserve(2 * mine.size());
    return take_step(
        state, run_.stream,
        {.step = number, .num_micro_batches = 4, .lr = 0.01, .clip = 1, .plan = &ranks_.plan()},
        [&] {
          const auto seed = static_cast<std::uint64_t>(8 * batch + 2 * mine.at(next++));
          tokens.push_back(test::random_tokens({2, 8}, 311, seed));
          tokens.push_back(test::random_tokens({2, 8}, 311, seed + 1));
          return Batch{*(tokens.end() - 2), tokens.back(), 0};
        });
  }

  /// Whether what this rank holds is what `whole` has there. Parts of models lie elsewhere: what is
  /// written of them says what they are.
  ::testing::AssertionResult holds(const Vectors& whole) {
    if (!layout_.has_whole_model()) return ::testing::AssertionSuccess();
    for (const auto& piece : parallel::held_pieces(state.store(), &state.optimizer())) {
      const std::size_t size = dtype_size(piece.tensor.dtype());
      const std::string& expected = whole.at(piece.name);
      const auto begin = static_cast<std::size_t>(piece.begin) * size;
      if (expected.compare(begin, piece.tensor.bytes(), Bench::bytes(piece.tensor)) != 0) {
        return ::testing::AssertionFailure()
               << "\"" << piece.name << "\" from " << piece.begin << " on";
      }
    }
    return ::testing::AssertionSuccess();
  }

  /// Of one rank: everything.
  Vectors vectors() {
    Vectors all;
    for (const auto& piece : parallel::held_pieces(state.store(), &state.optimizer())) {
      std::string& whole = all[piece.name];
      const std::size_t begin =
          static_cast<std::size_t>(piece.begin) * dtype_size(piece.tensor.dtype());
      if (whole.size() < begin + piece.tensor.bytes()) whole.resize(begin + piece.tensor.bytes());
      whole.replace(begin, piece.tensor.bytes(), Bench::bytes(piece.tensor));
    }
    return all;
  }

 private:
  Layout layout_;
  Ranks ranks_;
  test::TestRun run_;
  ModelGroups groups_;

 public:
  TrainState state;
};

/// Every tensor of a checkpoint by its name, whatever file it is in.
inline std::map<std::string, std::string> tensors_of(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> all;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    const ckpt::SafetensorsFile file(entry.path());
    for (const ckpt::SafetensorsEntry& tensor : file.entries()) {
      const auto bytes = file.bytes(tensor.name);
      const bool is_new =
          all.emplace(tensor.name,
                      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
              .second;
      EXPECT_TRUE(is_new) << tensor.name;
    }
  }
  return all;
}

/// Where a run is after so many steps.
inline Position position_of(std::int64_t step) {
  return {.step = step, .tokens = 64 * step, .corpus_hash = "00ff"};
}

}  // namespace atl::train::testing
