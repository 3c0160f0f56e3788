#include "atoll/ops/sample_token/sample_token.h"

#include <algorithm>
#include <bit>
#include <span>

#include "atoll/ops/implementations.h"
#include "atoll/ops/sample_token/cpu.h"
#include "atoll/ops/sample_token/cuda.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Args {
  const TokenDraw& draw;
  Tensor logits, result;
};

Spec words_spec(std::int64_t count) {
  return {Dtype::kI64, {count}};
}

std::span<std::uint64_t> words(Run& run, std::int64_t count) {
  const Tensor memory = run.take_scratch(words_spec(count));
  return {static_cast<std::uint64_t*>(memory.raw()), static_cast<std::size_t>(count)};
}

Declined on_host(Run& run, const Args& args) {
  return serve_host(run, [&] {
    Run inner = run;
    const std::int64_t count = args.logits.num_elements();
    const auto ranks = words(inner, count), weights = words(inner, count);
    const DrawnToken drawn = cpu::sample_token(
        args.draw, {args.logits.data<float>(), static_cast<std::size_t>(count)}, ranks, weights);
    args.result.data<std::int32_t>()[0] = drawn.token;
    args.result.data<std::int32_t>()[1] = std::bit_cast<std::int32_t>(drawn.logit);
  });
}

constexpr Implementation<Args> kSampleToken[] = {
    {"cpu", on_host},
    {"cuda",
     [](Run& run, const Args& a) { return cuda::sample_token(run, a.draw, a.logits, a.result); }},
};

}  // namespace

void sample_token(Run& run, const TokenDraw& draw, Tensor logits, Tensor result) {
  const std::int64_t count = logits.num_elements();
  ATOLL_CHECK(count > 0 && count < kMaxTokens, "{} logits", count);
  check_size("sample_token", Dtype::kF32, count, {logits});
  check_size("sample_token", Dtype::kI32, 2, {result});
  dispatch<Args>("sample_token", kSampleToken, run, {draw, logits, result});
}

std::size_t sample_token_scratch_bytes(std::int64_t num_tokens) {
  return std::max(2 * align_up(words_spec(num_tokens).bytes()),
                  cuda::sample_token_scratch_bytes(num_tokens));
}

}  // namespace atl::ops
