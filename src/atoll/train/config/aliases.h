#pragma once

#include "atoll/base/settings/settings.h"

namespace atl::train {

/// Registers what nanoGPT, llm.c, torchtitan, transformers' Trainer and their like call the keys of
/// a run, so that an option of theirs is answered with ours. The keys must be registered before.
void add_names_elsewhere(Settings& settings);

}  // namespace atl::train
