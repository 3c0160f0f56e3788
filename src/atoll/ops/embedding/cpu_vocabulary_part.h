#pragma once

#include "atoll/ops/embedding/vocabulary_part.h"

namespace atl::ops::cpu {

/// Serves f32; see ops::softmax_part. In cross_entropy.cpp, whose exponential it shares.
void softmax_part(Run& run, const VocabularyPart& part, Tensor logits, Tensor targets,
                  Tensor statistics);

}  // namespace atl::ops::cpu
