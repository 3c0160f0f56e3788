#pragma once

// What a run's settings mean for its model, memory and data.

#include <cstdint>

#include "atoll/train/config.h"
#include "atoll/train/corpus.h"
#include "atoll/train/state.h"

namespace atl::train {

/// The model and memory that rank `rank` of `num_ranks` ranks of a run of `config` on a vocabulary
/// of this size would have. Throws Error(kUser) when the ranks do not fit the
/// settings.
StateOptions state_options(const TrainConfig& config, std::int64_t vocab_size,
                           std::int64_t eos_token, int num_ranks = 1, int rank = 0);

/// What the optimizer of a run with these settings is made with.
optim::OptimizerOptions optimizer_options(const OptimSettings& settings);

/// How many of `num_ranks` ranks are data parallel, which have micro-batches of their own: each
/// stands for parallel.cp x parallel.pp x parallel.tp of them. Throws Error(kUser) when these, or
/// groups of parallel.ep, do not fit.
int data_parallel_ranks(const TrainConfig& config, int num_ranks);

/// How so many data-parallel ranks share a model: of each parallel.ep neighbours, which have other
/// experts, one shares with one of the next. Throws Error(kUser) as above.
parallel::DataParallelOptions data_parallel_options(const TrainConfig& config, int data_ranks,
                                                    int rank);

/// How rank `rank` of `num_ranks` of a run shares parameters with those that have the same part of
/// the model: the data-parallel ranks, and those that have other parts of their sequences.
parallel::DataParallelOptions sharing_options(const TrainConfig& config, int num_ranks, int rank);

/// Throws Error(kUser) when so many ranks do not fit the settings, whatever the model.
void check_ranks(const TrainConfig& config, int num_ranks);

/// Throws Error(kUser) with `remedy` where parallel.layout is auto: the planner has not been asked.
void require_chosen_layout(const TrainConfig& config, const std::string& remedy);

/// Makes device.bf16 what this process multiplies bf16 with. Throws Error(kUser) for `library` on a
/// CPU that has none.
void apply_bf16(const TrainConfig& config);

/// Makes device.attention what this process's GPU carries out attention with, where the run's
/// device is, or may be, a GPU.
void apply_attention(const TrainConfig& config);

/// Throws Error(kUser) where device.attention is cudnn and cuDNN serves no layer of `model` in this
/// run.
void check_attention(const TrainConfig& config, const nn::ModelConfig& model);

/// Throws Error(kUser) when the settings ask for evaluations and the corpus holds nothing out.
void require_held_out(const TrainConfig& config, const PreparedCorpus& corpus);

/// Where the settings say that the run's data comes from. Throws Error(kUser) for a chat template
/// that is no file.
CorpusOptions corpus_options(const TrainConfig& config);

}  // namespace atl::train
