#pragma once

// The tokens that a run makes of data.text in its own directory: internal to prepare.cpp.

#include "atoll/train/corpus/corpus.h"

namespace atl::train {

/// Opens corpora, with the shard cache of the options if they have one.
using OpenCorpora = std::function<std::vector<data::Corpus>(
    const std::vector<std::filesystem::path>& directories, const CorpusOptions& options)>;

/// The tokens of the text in options.cache, whole. What is not there, or is damaged, is made
/// (again), by one process at a time. Tokens that something was trained on are proved by their
/// hash: throws Error(kUser) when the text gives others now.
std::vector<data::Corpus> open_or_make(const CorpusOptions& options, const OpenCorpora& open);

}  // namespace atl::train
