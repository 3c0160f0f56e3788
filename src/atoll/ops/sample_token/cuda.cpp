#include "atoll/ops/sample_token/cuda.h"

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/sample_token/kernels.cuh"

namespace atl::ops::cuda {

namespace {

// What kernels keep between them.
struct Room {
  Global<std::uint64_t> ranks, sums;  // (chunks, kLogitChunk)
  Global<std::uint64_t> best;         // (chunks)
  Global<std::uint32_t> bad;          // (chunks)
};

Spec words_spec(std::int64_t count) {
  return {Dtype::kI64, {count}};
}

Global<std::uint64_t> words(const Tensor& tensor) {
  return {static_cast<std::uint64_t*>(tensor.raw()), tensor.num_elements()};
}

template <typename T>
Global<const T> read(const Global<T>& memory) {
  return {memory.data, memory.size};
}

template <bool kSorts>
void launch_chunks(Run& run, const TokenDraw& draw, const Tensor& logits, const Room& room) {
  const auto chunks = static_cast<std::uint32_t>(room.best.size);
  using Chunks = LogitChunks<kSorts>;
  launch<SampleTokenKernels>(
      run,
      {.blocks_x = chunks, .threads = Chunks::kMaxThreads, .shared_bytes = Chunks::shared_bytes()},
      Chunks{input<float>(logits), room.ranks, room.best, room.bad});
  if (draw.temperature == 0) return;
  using Weights = ChunkWeights<kSorts>;
  launch<SampleTokenKernels>(run,
                             {.blocks_x = chunks,
                              .threads = Weights::kMaxThreads,
                              .shared_bytes = Weights::shared_bytes()},
                             Weights{input<float>(logits), read(room.ranks), read(room.best),
                                     room.sums, draw.temperature});
}

}  // namespace

Declined sample_token(Run& run, const TokenDraw& draw, Tensor logits, Tensor result) {
  return serve_gpu(run, [&] {
    const std::int64_t num_tokens = logits.num_elements();
    const std::int64_t chunks = num_blocks(num_tokens, kLogitChunk);
    Run inner = run;
    const Room room = {words(inner.take_scratch(words_spec(chunks * kLogitChunk))),
                       words(inner.take_scratch(words_spec(chunks * kLogitChunk))),
                       words(inner.take_scratch(words_spec(chunks))),
                       {reinterpret_cast<std::uint32_t*>(
                            inner.take_scratch({Dtype::kI32, {chunks}}).data<std::int32_t>()),
                        chunks}};
    const bool is_cut = draw.temperature != 0 && draw.is_cut(num_tokens);
    is_cut ? launch_chunks<true>(inner, draw, logits, room)
           : launch_chunks<false>(inner, draw, logits, room);
    launch<SampleTokenKernels>(
        inner, {.threads = ChooseToken::kMaxThreads, .shared_bytes = ChooseToken::shared_bytes()},
        ChooseToken{input<float>(logits), read(room.ranks), read(room.sums), read(room.best),
                    read(room.bad), output<std::int32_t>(result), draw.temperature, draw.top_k,
                    draw.share, draw.random, is_cut});
  });
}

std::size_t sample_token_scratch_bytes(std::int64_t num_tokens) {
  const std::int64_t chunks = num_blocks(num_tokens, kLogitChunk);
  return 2 * align_up(words_spec(chunks * kLogitChunk).bytes()) +
         align_up(words_spec(chunks).bytes()) + align_up(Spec{Dtype::kI32, {chunks}}.bytes());
}

}  // namespace atl::ops::cuda
