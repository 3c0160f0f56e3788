#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/checkpoint/error_feedback_state.h"
#include "atoll/train/checkpoint/save.h"
#include "atoll/train/progress/held_out_history.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// What a checkpoint stores besides tensors: the progress of the run, and facts needed to go on.
struct Position {
  std::int64_t step = 0;    ///< optimizer steps taken; of an island, its own
  std::int64_t tokens = 0;  ///< trained on
  /// The steps that were skipped because no token in their batch had a loss; `step` includes them.
  std::int64_t without_loss = 0;
  std::string corpus_hash;
  std::string base_hash;        ///< of the weights that LoRA leaves as they are; empty: no LoRA
  std::string bf16;             ///< ops::Bf16Arithmetic of its products; empty: no bf16
  std::string gpu;              ///< the name of its GPU as the driver gives it; empty: a CPU
  std::int64_t line_steps = 0;  ///< taken since the last step line
  double line_loss = 0;         ///< the sum of the losses of these steps
  nn::PreferenceSums line_pairs = {};  ///< of these steps, where answers are compared
  std::string reference_hash = {};     ///< References::hash; empty: nothing is compared with
  HeldOutHistory held_out = {};        ///< the held-out losses so far
  ResidualState residual = {};         ///< of the ranks that wrote it; begin_save() fills it in
  /// The run's settings, (key, TOML value), as they were.
  std::vector<std::pair<std::string, std::string>> settings;
};

/// Files that a model directory carries unread: tokenizer.json, tokenizer_config.json,
/// generation_config.json. Name to content.
using CarriedFiles = std::map<std::string, std::string>;

/// Begins to write the checkpoint `root/step-<position.step>`; CheckpointSave::commit() of the
/// result completes it. With LoRA the checkpoint has only the adapter, and names `base` as the
/// directory of its base model. `extra`: one more file. Every rank must call it, with the same
/// position. An error on one rank is thrown on all ranks.
std::unique_ptr<CheckpointSave> begin_save(const std::filesystem::path& root, TrainState& state,
                                           const Position& position, const CarriedFiles& carried,
                                           const std::filesystem::path& base,
                                           CheckpointSave::Mode mode, ExtraPart extra = {});

/// Writes a checkpoint and returns its path, on every rank. See ckpt::CheckpointWriter for the
/// files that a failure leaves behind.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, TrainState& state,
                                      const Position& position, const CarriedFiles& carried,
                                      const std::filesystem::path& base = {});

/// The same for a state whose pieces are on the ranks of `group`: see CheckpointSave. `state` only
/// describes the model; its values are not used.
std::filesystem::path save_pieces(const std::filesystem::path& root, TrainState& state,
                                  const Position& position, const CarriedFiles& carried,
                                  const std::filesystem::path& base,
                                  std::vector<optim::StateTensor> pieces, comm::Group& group);

/// Reads the position of the run from a checkpoint.
Position read_position(const std::filesystem::path& checkpoint);

/// Reads what save_checkpoint wrote: the position, and this rank's part of parameters and optimizer
/// state, whatever ranks wrote them. Needs no other rank. The checkpoint must be verified. Throws
/// Error(kUser) when config.json describes another model. With LoRA the base model's parameters
/// must be loaded already.
Position load_checkpoint(const ckpt::CheckpointInfo& checkpoint, TrainState& state,
                         ThreadPool& threads);

/// Position::base_hash of all frozen parameters; the same however ranks share them; empty when no
/// parameter is frozen. Every rank must call it.
std::string hash_of_frozen(TrainState& state);

/// Reads the files of CarriedFiles that are in `directory`.
CarriedFiles read_carried(const std::filesystem::path& directory);
/// Replaces the tokenizer in `carried` by `tokenizer`, which made the tokens. Returns false when
/// `carried` had a different tokenizer.
bool carry_tokenizer(const Tokenizer& tokenizer, const nn::ModelConfig& config,
                     CarriedFiles& carried);
/// The carried files of a new model: its tokenizer, and the files that transformers needs.
CarriedFiles new_carried(const Tokenizer& tokenizer, const nn::ModelConfig& config);

}  // namespace atl::train
