#pragma once

#include "atoll/ops/embedding/vocabulary_part.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

Declined local_tokens(Run& run, const VocabularyPart& part, Tensor tokens, Tensor local);
Declined clear_foreign_rows(Run& run, const VocabularyPart& part, Tensor tokens, Tensor y);
Declined local_positions(Run& run, Tensor positions, std::int64_t rows_per_sequence,
                         std::int64_t first_row, Tensor to);
Declined embedding_part_backward(Run& run, const VocabularyPart& part, Tensor tokens, Tensor dy,
                                 Tensor dtable);
Declined softmax_part(Run& run, const VocabularyPart& part, Tensor logits, Tensor targets,
                      Tensor statistics);
Declined cross_entropy_part(Run& run, const VocabularyPart& part, int index, double factor,
                            Tensor statistics, Tensor targets, Tensor exps, Tensor loss,
                            bool gradient);

}  // namespace atl::ops::cuda
