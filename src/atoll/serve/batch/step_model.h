#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/nn/lora_rules.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/serve/batch/step_adapters.h"
#include "atoll/serve/head_logits.h"
#include "atoll/serve/model_ranks.h"
#include "atoll/serve/rounded_store.h"

namespace atl::serve {

/// What a StepModel has room for.
struct StepRoom {
  std::int64_t max_positions = 0;  ///< of one sequence
  std::int64_t max_rows = 0;       ///< of one step
  std::int64_t num_blocks = 0;     ///< of the cache of keys and values
};

/// The blocks of a model that a process has. One that begins with block 0 has the embedding too;
/// one that ends with the last block has the last norm and the head.
struct StepLayers {
  std::int64_t first = 0;
  std::int64_t end = -1;  ///< behind the last one; -1: that of the model

  std::int64_t end_in(const nn::ModelConfig& config) const {
    return end < 0 ? config.num_layers : end;
  }
  bool has_head(const nn::ModelConfig& config) const { return end_in(config) == config.num_layers; }
  std::int64_t count(const nn::ModelConfig& config) const { return end_in(config) - first; }
};

/// A model that takes rows of several sequences through its layers in one step. The keys and values
/// of all sequences lie in blocks of one memory, planned beforehand. Which blocks a sequence has is
/// its caller's business.
///
/// The logits of a row depend on the tokens of its sequence alone, bit for bit (Run::row_stable):
/// not on the other rows of the step, nor on the steps in which the sequence's tokens came. Several
/// of these may have the layers of one model between them: what pass_on() of one gives is the
/// `input` of the next, and the last one's logits have the same bits as those of one model.
class StepModel {
 public:
  /// Positions that a block holds.
  static constexpr std::int64_t kBlockSize = 16;
  /// Blocks that hold so many positions.
  static constexpr std::int64_t blocks_for(std::int64_t positions) {
    return (positions + kBlockSize - 1) / kBlockSize;
  }

  /// `adapter_rank`: of a model with all layers, the greatest rank of a Linear of an adapter that
  /// pieces may have; 0: none may have one.
  /// `ranks`: those that share each product of a model with all layers, which must outlive it;
  /// null: this one has all of it. Each of them makes a StepModel with the same arguments and takes
  /// the same steps at the same time; the logits are the leader's. `lora`: the model has these
  /// adapters in itself, as one that is trained does; null: none. Parameters are zero until
  /// someone fills store(). Throws Error(kUser) for a device that is not a CPU, and where so many
  /// ranks cannot share the model.
  StepModel(std::unique_ptr<Device> device, const nn::ModelConfig& config, Weights weights,
            const StepRoom& room, const StepLayers& layers = {}, const KeepStored& keep = {},
            std::int64_t adapter_rank = 0, ModelRanks* ranks = nullptr,
            const nn::LoraOptions* lora = nullptr);

  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;

  nn::Model& model() { return *model_; }
  parallel::ParamStore& store() { return *store_; }
  const StepRoom& room() const { return room_; }
  std::int64_t adapter_rank() const { return served_.max_rank; }
  bool has_head() const { return layers_.has_head(model_->config); }
  /// Gives the parameters the values that training would begin with.
  void initialise(std::uint64_t seed);
  ThreadPool& threads() { return stream_->threads(); }

  /// Bytes of weights that a step reads: all but embeddings that no head shares.
  std::size_t bytes_per_step() const;
  /// Bytes that a block of the cache takes in these layers.
  static std::size_t block_bytes(const nn::ModelConfig& config, const StepLayers& layers = {});

  /// Whose logits are wanted.
  enum class Wanted : std::uint8_t { kNothing, kLast, kAll };
  /// Tokens that continue a sequence.
  struct Piece {
    std::span<const std::int32_t> tokens;
    std::int64_t first_position = 0;
    /// Of the whole sequence; no other piece of the step may write to those that this one does.
    std::span<const std::int32_t> blocks;
    Wanted wanted = Wanted::kLast;
    bool wants_hidden = false;
    const StepAdapter* adapter = nullptr;  ///< whose rows these are; null: of the model as it is
  };
  /// What follows a row of a piece.
  struct RowLogits {
    std::size_t piece = 0;
    std::int64_t row = 0;           ///< of the piece
    std::span<const float> logits;  ///< (V)
  };
  /// Rows of logits, valid for the call; ascending by piece and row.
  using TakeLogits = std::function<void(std::span<const RowLogits> rows)>;

  /// The head's input for all rows of a piece that wants it: (rows, C), valid for the call.
  using TakeHidden = std::function<void(std::size_t piece, std::span<const float> hidden)>;

  /// Takes the pieces, of max_rows together at most, and gives the hidden states that are wanted,
  /// then the logits, some rows at a time. Only where has_head(). `input`: of a model without the
  /// first layers, the hidden states that those gave, (rows, C).
  void step(std::span<const Piece> pieces, const TakeLogits& take,
            const TakeHidden& take_hidden = {}, std::span<const float> input = {});
  /// The same for a model without a head: the hidden states of all rows, (rows, C).
  std::vector<float> pass_on(std::span<const Piece> pieces, std::span<const float> input = {});

 private:
  static constexpr std::int64_t kLogitRows = 16;
  struct Row {
    std::size_t piece = 0;
    std::int64_t of_piece = 0;
    std::int64_t of_step = 0;
  };

  void plan_memory();
  void make_adapter_room(std::int64_t rank);
  void name_adapter_rows(std::span<const Piece> pieces);
  // Where the Linears have the factors of an adapter of this step. `used`: places of the step's
  // other adapters.
  std::size_t place_of(const StepAdapter& adapter, std::vector<bool>& used);
  // How many ranks share each product.
  int tensor_size() const { return ranks_ == nullptr ? 1 : ranks_->layout().tensor; }
  // The hidden states of so many rows and of those that fill them up; of ranks that share rows,
  // this one's.
  Tensor forward(std::span<const Piece> pieces, std::span<const float> input);
  void take_input(std::int64_t rows, std::span<const float> input);
  void give_logits(const Tensor& hidden, std::span<const Row> rows, const TakeLogits& take);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  StepRoom room_;
  StepLayers layers_;
  ModelRanks* ranks_;
  std::vector<std::int64_t> sizes_;   // rows of a step that memory is planned for, ascending
  std::vector<float> input_;          // (rows, C), what the first of these layers reads
  nn::ServedAdapters served_;         // of the step under way; the model's Linears read it
  std::vector<nn::Linear*> linears_;  // where there is room for adapters
  // StepAdapter::number of those that the Linears have factors of, by place. These may be gone: a
  // place is looked at only for an adapter of a step.
  std::vector<std::uint64_t> places_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<parallel::ParamStore> store_;
  HeadLogits head_;
  std::vector<parallel::Runner> runners_;  // one a size
  std::unique_ptr<Arena> arena_;
  nn::KvCache cache_;
  std::vector<std::int32_t> tokens_, positions_;  // of a step
  Tensor all_rows_;                               // of ranks that share rows: (rows, C)
  Tensor gathered_;                               // the rows whose logits are wanted
  Tensor logits_;
  std::span<std::byte> head_scratch_;
};

}  // namespace atl::serve
