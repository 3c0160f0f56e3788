#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/thread_pool.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/checkpoint_save.h"
#include "atoll/train/held_out_history.h"
#include "atoll/train/owed_state.h"
#include "atoll/train/state.h"

namespace atl::train {

/// What a checkpoint says beside tensors: how far the run is, and what it must go on with.
struct Position {
  std::int64_t step = 0;    ///< optimizer steps taken; of an island, its own
  std::int64_t tokens = 0;  ///< trained on
  /// Of these steps, those that were skipped as nothing in their batch had a loss.
  std::int64_t without_loss = 0;
  std::string corpus_hash;
  std::string base_hash;         ///< of the weights that LoRA leaves as they are; empty: no LoRA
  std::string bf16;              ///< ops::Bf16Arithmetic of its products; empty: it has none
  std::string gpu;               ///< what it computes on, as its driver calls it; empty: a CPU
  std::int64_t line_steps = 0;   ///< taken since the last step line
  double line_loss = 0;          ///< the sum of their losses
  HeldOutHistory held_out = {};  ///< what evaluations have shown
  OwedState owed = {};           ///< as the ranks that wrote it had it; begin_save() fills it in
  /// The run's settings, (key, TOML value), as they were.
  std::vector<std::pair<std::string, std::string>> settings;
};

/// Files that a model directory carries unread: tokenizer.json, tokenizer_config.json,
/// generation_config.json. Name to content.
using CarriedFiles = std::map<std::string, std::string>;

/// Begins to write `root/step-<position.step>`. With LoRA that is the adapter alone; `base` is its
/// base model. Every rank must call it, with the same position; see CheckpointSave.
std::unique_ptr<CheckpointSave> begin_save(const std::filesystem::path& root, TrainState& state,
                                           const Position& position, const CarriedFiles& carried,
                                           const std::filesystem::path& base,
                                           CheckpointSave::Mode mode, ExtraPart extra = {});

/// Writes it and returns its path, on every rank; see ckpt::CheckpointWriter for what a failure
/// leaves behind.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, TrainState& state,
                                      const Position& position, const CarriedFiles& carried,
                                      const std::filesystem::path& base = {});

/// The same of a state that is in pieces on the ranks of `group`: see CheckpointSave. `state` says
/// of which model; what it holds is not looked at.
std::filesystem::path save_pieces(const std::filesystem::path& root, TrainState& state,
                                  const Position& position, const CarriedFiles& carried,
                                  const std::filesystem::path& base,
                                  std::vector<optim::StateTensor> pieces, comm::Group& group);

/// How far the run of a checkpoint was.
Position read_position(const std::filesystem::path& checkpoint);

/// Reads back what save_checkpoint wrote: parameters, optimizer state, position; of the first two
/// what this rank holds, whatever ranks there were. Needs no other rank. The checkpoint must be
/// verified and of the same model; throws Error(kUser) when config.json is of another. With LoRA
/// the base model's parameters must be there already.
Position load_checkpoint(const ckpt::CheckpointInfo& checkpoint, TrainState& state,
                         ThreadPool& threads);

/// Position::base_hash of the parameters that are frozen, whole, however ranks share them; empty
/// when there are none. Every rank must call it.
std::string hash_of_frozen(TrainState& state);

/// The files of CarriedFiles that `directory` has.
CarriedFiles read_carried(const std::filesystem::path& directory);
/// Makes `tokenizer`, with which the tokens were made, the one that `carried` holds. Returns false
/// when `carried` held another one.
bool carry_tokenizer(const Tokenizer& tokenizer, const nn::ModelConfig& config,
                     CarriedFiles& carried);
/// Those of a new model: its tokenizer, and what transformers wants to know about it.
CarriedFiles new_carried(const Tokenizer& tokenizer, const nn::ModelConfig& config);

}  // namespace atl::train
