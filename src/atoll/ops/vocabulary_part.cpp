#include "atoll/ops/vocabulary_part.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/ops/cpu/vocabulary_part.h"
#include "atoll/ops/positions.h"
#include "atoll/ops/ref/vocabulary_part.h"
#include "atoll/ops/serve.h"
#include "atoll/tensor/batch.h"

namespace atl::ops {

namespace {

struct SoftmaxPart {
  const VocabularyPart& part;
  Tensor logits, targets, statistics;
};
struct CrossEntropyPart {
  const VocabularyPart& part;
  int index;
  double grad_scale;
  Tensor statistics, targets, exps, loss;
  bool gradient;
};

constexpr Implementation<SoftmaxPart> kSoftmaxPart[] = {
    {"cpu",
     [](Run& run, const SoftmaxPart& a) {
       return serve_f32(run, a.logits.dtype(),
                        [&] { cpu::softmax_part(run, a.part, a.logits, a.targets, a.statistics); });
     }},
    {"ref",
     [](Run& run, const SoftmaxPart& a) {
       return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
         ref::softmax_part<T>(run.threads(), a.part, a.logits, a.targets, a.statistics);
       });
     }},
};

constexpr Implementation<CrossEntropyPart> kCrossEntropyPart[] = {
    {"ref",
     [](Run& run, const CrossEntropyPart& a) {
       return serve_any_float(run, a.exps.dtype(), [&]<typename T>(T) {
         ref::cross_entropy_part<T>(run.threads(), a.part, a.index, a.grad_scale, a.statistics,
                                    a.targets, a.exps, a.loss, a.gradient);
       });
     }},
};

void check_targets(const VocabularyPart& part, const Tensor& targets) {
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

void local_tokens(Run& /*run*/, const VocabularyPart& part, Tensor tokens, Tensor local) {
  check_size("local_tokens", Dtype::kI32, tokens.num_elements(), {tokens, local});
  for (std::int64_t i = 0; i < tokens.num_elements(); ++i) {
    const std::int32_t token = tokens.data<std::int32_t>()[i];
    if (token < 0 || token >= part.total) {
      throw damaged_error(
          "token {} at position {} of the micro-batch is outside the model's vocabulary of {}; was "
          "the data made with this model's tokenizer?",
          token, i, part.total);
    }
    local.data<std::int32_t>()[i] =
        part.contains(token) ? token - static_cast<std::int32_t>(part.first) : 0;
  }
}

void local_positions(Run& /*run*/, Tensor positions, std::int64_t rows_per_sequence,
                     std::int64_t first_row, Tensor to) {
  check_size("local_positions", Dtype::kI32, to.num_elements(), {to});
  ATOLL_CHECK(!positions.defined() || first_row + to.num_elements() <= positions.num_elements(),
              "rows {} to {} of positions {}", first_row, first_row + to.num_elements(),
              positions.spec().to_string());
  const std::int32_t* from = position_data(positions);
  for (std::int64_t i = 0; i < to.num_elements(); ++i) {
    to.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(position_of(from, first_row + i, rows_per_sequence));
  }
}

void clear_foreign_rows(Run& run, const VocabularyPart& part, Tensor tokens, Tensor y) {
  const std::int64_t rows = y.shape().num_rows();
  check_size("clear_foreign_rows", Dtype::kI32, rows, {tokens});
  if (rows == 0) return;
  const std::size_t row_bytes = y.bytes() / static_cast<std::size_t>(rows);
  run.threads().run_chunked(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (part.contains(tokens.data<std::int32_t>()[row])) continue;
      std::memset(static_cast<std::byte*>(y.raw()) + static_cast<std::size_t>(row) * row_bytes, 0,
                  row_bytes);
    }
  });
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

void cross_entropy_part(Run& run, const VocabularyPart& part, int index, double grad_scale,
                        Tensor statistics, Tensor targets, Tensor exps, Tensor loss,
                        bool gradient) {
  const std::int64_t rows = exps.dim(0);
  ATOLL_CHECK(statistics.shape().rank() == 3 && statistics.dim(1) == rows &&
                  statistics.dim(2) == kNumSoftmaxStatistics && index < statistics.dim(0),
              "statistics {} of {} rows", statistics.spec().to_string(), rows);
  check_size("cross_entropy_part", Dtype::kI32, rows, {targets});
  check_size("cross_entropy_part", exps.dtype(), rows, {loss});
  dispatch<CrossEntropyPart>("cross_entropy_part", kCrossEntropyPart, run,
                             {part, index, grad_scale, statistics, targets, exps, loss, gradient},
                             cost_of({exps, exps}));
}

}  // namespace atl::ops
