#include "atoll/ops/embedding/vocabulary_part.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/ops/embedding/cpu.h"
#include "atoll/ops/embedding/cpu_vocabulary_part.h"
#include "atoll/ops/embedding/cuda_vocabulary_part.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/embedding/ref_vocabulary_part.h"
#include "atoll/ops/positions.h"
#include "atoll/ops/serve.h"
#include "atoll/tensor/batch.h"

namespace atl::ops {

namespace {

struct LocalTokens {
  const VocabularyPart& part;
  Tensor tokens, local;
};
struct LocalPositions {
  Tensor positions;
  std::int64_t rows_per_sequence, first_row;
  Tensor to;
};
struct ClearForeignRows {
  const VocabularyPart& part;
  Tensor tokens, y;
};
struct EmbeddingPartBackward {
  const VocabularyPart& part;
  Tensor tokens, dy, dtable;
};
struct SoftmaxPart {
  const VocabularyPart& part;
  Tensor logits, targets, statistics;
};
struct CrossEntropyPart {
  const VocabularyPart& part;
  int index;
  double factor;
  Tensor statistics, targets, exps, loss;
  bool gradient;
};

void local_tokens_on_host(const LocalTokens& a) {
  for (std::int64_t i = 0; i < a.tokens.num_elements(); ++i) {
    const std::int32_t token = a.tokens.data<std::int32_t>()[i];
    if (token < 0 || token >= a.part.total) {
      throw damaged_error(
          "token {} at position {} of the micro-batch is outside the model's vocabulary of {}; was "
          "the data made with this model's tokenizer?",
          token, i, a.part.total);
    }
    a.local.data<std::int32_t>()[i] =
        a.part.contains(token) ? token - static_cast<std::int32_t>(a.part.first) : 0;
  }
}

void local_positions_on_host(const LocalPositions& a) {
  const std::int32_t* from = position_data(a.positions);
  for (std::int64_t i = 0; i < a.to.num_elements(); ++i) {
    a.to.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(position_of(from, a.first_row + i, a.rows_per_sequence));
  }
}

void clear_on_host(Run& run, const ClearForeignRows& a) {
  const std::int64_t rows = a.y.shape().num_rows();
  const std::size_t row_bytes = a.y.bytes() / static_cast<std::size_t>(rows);
  run.threads().run_chunked(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (a.part.contains(a.tokens.data<std::int32_t>()[row])) continue;
      std::memset(static_cast<std::byte*>(a.y.raw()) + static_cast<std::size_t>(row) * row_bytes, 0,
                  row_bytes);
    }
  });
}

// The first two move a few integers, the third writes zeroes: plain loops are all it takes.
constexpr Implementation<LocalTokens> kLocalTokens[] = {
    {"cpu", [](Run& run,
               const LocalTokens& a) { return serve_host(run, [&] { local_tokens_on_host(a); }); }},
    {"cuda",
     [](Run& run, const LocalTokens& a) {
       return cuda::local_tokens(run, a.part, a.tokens, a.local);
     }},
};
constexpr Implementation<LocalPositions> kLocalPositions[] = {
    {"cpu",
     [](Run& run, const LocalPositions& a) {
       return serve_host(run, [&] { local_positions_on_host(a); });
     }},
    {"cuda",
     [](Run& run, const LocalPositions& a) {
       return cuda::local_positions(run, a.positions, a.rows_per_sequence, a.first_row, a.to);
     }},
};
constexpr Implementation<ClearForeignRows> kClearForeignRows[] = {
    {"cpu",
     [](Run& run, const ClearForeignRows& a) {
       return serve_host(run, [&] { clear_on_host(run, a); });
     }},
    {"cuda",
     [](Run& run, const ClearForeignRows& a) {
       return cuda::clear_foreign_rows(run, a.part, a.tokens, a.y);
     }},
};

constexpr Implementation<EmbeddingPartBackward> kEmbeddingPartBackward[] = {
    {"cpu",
     [](Run& run, const EmbeddingPartBackward& a) {
       return serve_f32_or_bf16(run, a.dy.dtype(), [&] {
         cpu::embedding_part_backward(run, a.part.first, a.tokens, a.dy, a.dtable);
       });
     }},
    {"cuda",
     [](Run& run, const EmbeddingPartBackward& a) {
       return cuda::embedding_part_backward(run, a.part, a.tokens, a.dy, a.dtable);
     }},
    {"ref",
     [](Run& run, const EmbeddingPartBackward& a) {
       return serve_any_storage(run, a.dy.dtype(), [&]<typename T>(T) {
         ref::embedding_part_backward<T>(a.part, a.tokens, a.dy, a.dtable);
       });
     }},
};

constexpr Implementation<SoftmaxPart> kSoftmaxPart[] = {
    {"cpu",
     [](Run& run, const SoftmaxPart& a) {
       return serve_f32(run, a.logits.dtype(),
                        [&] { cpu::softmax_part(run, a.part, a.logits, a.targets, a.statistics); });
     }},
    {"cuda",
     [](Run& run, const SoftmaxPart& a) {
       return cuda::softmax_part(run, a.part, a.logits, a.targets, a.statistics);
     }},
    {"ref",
     [](Run& run, const SoftmaxPart& a) {
       return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
         ref::softmax_part<T>(run.threads(), a.part, a.logits, a.targets, a.statistics);
       });
     }},
};

constexpr Implementation<CrossEntropyPart> kCrossEntropyPart[] = {
    {"cuda",
     [](Run& run, const CrossEntropyPart& a) {
       return cuda::cross_entropy_part(run, a.part, a.index, a.factor, a.statistics, a.targets,
                                       a.exps, a.loss, a.gradient);
     }},
    {"ref",
     [](Run& run, const CrossEntropyPart& a) {
       return serve_any_float(run, a.exps.dtype(), [&]<typename T>(T) {
         ref::cross_entropy_part<T>(run.threads(), a.part, a.index, a.factor * run.loss_scale,
                                    a.statistics, a.targets, a.exps, a.loss, a.gradient);
       });
     }},
};

// A GPU's are checked before they are copied there.
void check_targets(const VocabularyPart& part, const Tensor& targets) {
  if (!is_readable(targets)) return;
  for (std::int64_t row = 0; row < targets.num_elements(); ++row) {
    const std::int32_t target = targets.data<std::int32_t>()[row];
    if (target == kIgnoreTarget || (target >= 0 && target < part.total)) continue;
    throw damaged_error(
        "row {} of the batch has target {}, but the model's vocabulary is [0, {}); tokenize the "
        "data with this model's tokenizer",
        row, target, part.total);
  }
}

}  // namespace

void local_tokens(Run& run, const VocabularyPart& part, Tensor tokens, Tensor local) {
  check_size("local_tokens", Dtype::kI32, tokens.num_elements(), {tokens, local});
  dispatch<LocalTokens>("local_tokens", kLocalTokens, run, {part, tokens, local});
}

void local_positions(Run& run, Tensor positions, std::int64_t rows_per_sequence,
                     std::int64_t first_row, Tensor to) {
  check_size("local_positions", Dtype::kI32, to.num_elements(), {to});
  ATOLL_CHECK(!positions.defined() || first_row + to.num_elements() <= positions.num_elements(),
              "rows {} to {} of positions {}", first_row, first_row + to.num_elements(),
              positions.spec().to_string());
  dispatch<LocalPositions>("local_positions", kLocalPositions, run,
                           {positions, rows_per_sequence, first_row, to});
}

void clear_foreign_rows(Run& run, const VocabularyPart& part, Tensor tokens, Tensor y) {
  const std::int64_t rows = y.shape().num_rows();
  check_size("clear_foreign_rows", Dtype::kI32, rows, {tokens});
  if (rows == 0) return;
  dispatch<ClearForeignRows>("clear_foreign_rows", kClearForeignRows, run, {part, tokens, y});
}

void embedding_part_backward(Run& run, const VocabularyPart& part, Tensor tokens, Tensor dy,
                             Tensor dtable) {
  constexpr const char* kOp = "embedding_part_backward";
  check_size(kOp, Dtype::kI32, dy.shape().num_rows(), {tokens});
  check_spec(kOp, {compute_dtype(dy.dtype()), {part.size, dy.dim(-1)}}, {dtable});
  dispatch<EmbeddingPartBackward>(kOp, kEmbeddingPartBackward, run, {part, tokens, dy, dtable},
                                  embedding_backward_cost(tokens, dy, dtable));
}

void softmax_part(Run& run, const VocabularyPart& part, Tensor logits, Tensor targets,
                  Tensor statistics) {
  const std::int64_t rows = logits.dim(0);
  ATOLL_CHECK(logits.shape().rank() == 2 && logits.dim(1) == part.size && part.size > 0,
              "logits {} of {} tokens", logits.spec().to_string(), part.size);
  check_size("softmax_part", Dtype::kI32, rows, {targets});
  check_size("softmax_part", Dtype::kF64, rows * kNumSoftmaxStatistics, {statistics});
  check_targets(part, targets);
  dispatch<SoftmaxPart>("softmax_part", kSoftmaxPart, run, {part, logits, targets, statistics},
                        cost_of({logits, logits}));
}

void cross_entropy_part(Run& run, const VocabularyPart& part, int index, double factor,
                        Tensor statistics, Tensor targets, Tensor exps, Tensor loss,
                        bool gradient) {
  const std::int64_t rows = exps.dim(0);
  ATOLL_CHECK(statistics.shape().rank() == 3 && statistics.dim(1) == rows &&
                  statistics.dim(2) == kNumSoftmaxStatistics && index < statistics.dim(0),
              "statistics {} of {} rows", statistics.spec().to_string(), rows);
  check_size("cross_entropy_part", Dtype::kI32, rows, {targets});
  check_size("cross_entropy_part", exps.dtype(), rows, {loss});
  dispatch<CrossEntropyPart>("cross_entropy_part", kCrossEntropyPart, run,
                             {part, index, factor, statistics, targets, exps, loss, gradient},
                             cost_of({exps, exps}));
}

}  // namespace atl::ops
