// Attention by cuDNN as the fake GPU plays it: what the library is told, against ref in double. A
// real one gives the same bits each time.

#include "atoll/ops/attention/cuda_cudnn.h"

#include <gmock/gmock.h>

#include "atoll/ops/attention/gpu_attention.h"
#include "atoll/ops/attention/ref.h"
#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kScale = 0.25;  // an f32 number, as the library takes it

// cuDNN for as long as this lives.
class Chosen {
 public:
  explicit Chosen(std::size_t most_bytes = kMostWorkspaceBytes) {
    set_gpu_attention(GpuAttention::kCudnn, most_bytes);
  }
  ~Chosen() { set_gpu_attention(GpuAttention::kOwn); }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;
};

template <typename T, typename A>
struct Operands {
  OwnedTensor<T> qkv, dout, out, dqkv;
  OwnedTensor<A> lse;
  OwnedTensor<std::int32_t> positions;
  bool operator==(const Operands&) const = default;
};

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
};

template <typename T, typename A>
Operands<T, A> make(const Case& c) {
  const Shape qkv = {c.B, c.T, c.heads.qkv_width()}, out = {c.B, c.T, c.heads.query_width()};
  return {random_tensor<T>(qkv, 1),
          random_tensor<T>(out, 2),
          OwnedTensor<T>(out, test::number<T>(1e30)),
          OwnedTensor<T>(qkv, test::number<T>(1e30)),
          OwnedTensor<A>({c.B, c.heads.num_heads, c.T}, 1e30F),
          OwnedTensor<std::int32_t>({c.B, c.T})};
}

Operands<double, double> expected_of(const Case& c, const Operands<Bf16, float>& start) {
  auto exact = make<double, double>(c);
  exact.qkv = start.qkv.as<double>();
  exact.dout = start.dout.as<double>();
  test::TestRun host;
  ref::attention_forward<double>(host.run, c.heads, kScale, {}, exact.qkv, exact.out, exact.lse);
  ref::attention_backward<double>(host.run, c.heads, kScale, {}, exact.qkv, exact.out, exact.lse,
                                  exact.dout, exact.dqkv);
  return exact;
}

void run_on(Gpu& gpu, const Case& c, Operands<Bf16, float>& o) {
  const Tensor qkv = gpu(o.qkv), out = gpu(o.out), lse = gpu(o.lse);
  attention_forward(gpu.run, c.heads, kScale, {}, qkv, out, lse);
  attention_backward(gpu.run, c.heads, kScale, {}, qkv, out, lse, gpu(o.dout), gpu(o.dqkv));
}

// As of attention with tensor cores: attention_mma_test.cpp.
void expect_near(const Operands<Bf16, float>& got, const Operands<double, double>& exact) {
  EXPECT_LE(test::max_error_beyond_rounding(got.out, exact.out), 0x1p-9);
  EXPECT_LE(test::max_abs_difference(got.lse, exact.lse), 1e-5);
  EXPECT_LE(
      test::max_abs_difference(got.dqkv, exact.dqkv) / std::max(1.0, test::max_abs(exact.dqkv)),
      0x1p-7);
}

const Case kCases[] = {{{1, 1, 64}, 1, 2},
                       {{4, 2, 8}, 3, 7},
                       {{6, 1, 16}, 2, 20},
                       {{3, 3, 80}, 2, 33},
                       {{2, 1, 128}, 5, 40}};

TEST(CudaAttentionCudnn, MatchesRefInDouble) {
  const Chosen cudnn;
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("B {} T {} heads {}/{} of {}", c.B, c.T, c.heads.num_heads,
                             c.heads.num_kv_heads, c.heads.head_dim));
    const auto start = make<Bf16, float>(c);
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Operands<Bf16, float>& o) {
          run_on(gpu, c, o);
          gpu.finish();
          EXPECT_TRUE(gpu.device().totals().empty()) << "kernels of our own";
        },
        [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; },
        /*has_products=*/true);
    expect_near(got, expected_of(c, start));
  }
}

TEST(CudaAttentionCudnn, TellsTheLibraryWhatIsAsked) {
  const Chosen cudnn;
  const Case c = {{4, 2, 8}, 3, 7};
  auto o = make<Bf16, float>(c);
  Gpu gpu;
  run_on(gpu, c, o);
  gpu.finish();
  EXPECT_THAT(
      gpu.device().library_calls(),
      ElementsAre("attention forward of 3 sequences of 7, 4 heads and 2 of keys, 8 elements, scale "
                  "0.25, causal; q 3 4 7 8 by 448 8 64 1; k 3 2 7 8 by 448 8 64 1; v 3 2 7 8 by "
                  "448 8 64 1; out 3 4 7 8 by 224 8 32 1; stats 3 4 7 1 by 28 7 1 1",
                  HasSubstr("causal, deterministic; q 3 4 7 8 by 448 8 64 1;")));
}

// What is told in chunks is the gradient of the whole batch.
TEST(CudaAttentionCudnn, TakesTheBatchInChunksThatFit) {
  const Case c = {{2, 1, 8}, 5, 9};
  const auto start = make<Bf16, float>(c);
  const SdpaCall two = {true, 2, 2, 1, 9, 8, 1};
  const auto run = [&](std::size_t most_bytes, std::vector<std::string>& calls) {
    const Chosen cudnn(most_bytes);
    auto o = start;
    Gpu gpu(0, attention_scratch_bytes(c.heads, start.qkv.as<Bf16>().view().spec()));
    run_on(gpu, c, o);
    gpu.finish();
    calls = gpu.device().library_calls();
    return o;
  };
  std::vector<std::string> whole_calls, calls;
  const auto whole = run(kMostWorkspaceBytes, whole_calls);
  const auto chunks = run(sdpa_workspace_bytes(two), calls);
  EXPECT_TRUE(chunks == whole) << "other bits";
  EXPECT_THAT(whole_calls, ElementsAre(HasSubstr("forward of 5"), HasSubstr("backward of 5")));
  EXPECT_THAT(calls, ElementsAre(HasSubstr("forward of 5"), HasSubstr("backward of 2"),
                                 HasSubstr("backward of 2"), HasSubstr("backward of 1")));
}

TEST(CudaAttentionCudnn, SharesABatchEvenly) {
  SdpaCall call = {true, 32, 12, 12, 1024, 64, 1};
  EXPECT_EQ(cuda::sequences_per_call(call), 32) << "807 MB";
  call.heads = 32, call.kv_heads = 8;
  EXPECT_EQ(cuda::sequences_per_call(call), 16) << "2.4 GB as a whole";
  call.length = 4096, call.batch = 3;
  EXPECT_EQ(cuda::sequences_per_call(call), 1) << "1.1 GB each";
  call.length = 8192;
  EXPECT_EQ(cuda::sequences_per_call(call), 0) << "4.4 GB each";
}

// The kernels or calls of forward and backward.
std::vector<std::string> served_by(const Case& c, const AttentionMask& mask) {
  auto o = make<Bf16, float>(c);
  Gpu gpu;
  AttentionMask seen = mask;
  if (mask.positions.defined()) seen.positions = gpu(o.positions);
  const Tensor qkv = gpu(o.qkv), out = gpu(o.out), lse = gpu(o.lse);
  attention_forward(gpu.run, c.heads, kScale, seen, qkv, out, lse);
  attention_backward(gpu.run, c.heads, kScale, seen, qkv, out, lse, gpu(o.dout), gpu(o.dqkv));
  gpu.finish();
  std::vector<std::string> all = gpu.device().library_calls();
  for (const auto& [name, total] : gpu.device().totals()) all.push_back(name);
  return all;
}

TEST(CudaAttentionCudnn, LeavesToOurKernelsWhatItIsNotGiven) {
  const Case c = {{2, 1, 16}, 2, 6};
  const auto own =
      ElementsAre("attention_mma_forward", "attention_mma_keys", "attention_mma_queries");
  EXPECT_THAT(served_by(c, {}), own) << "device.attention is own";
  const Chosen cudnn;
  const auto calls = ElementsAre(StartsWith("attention forward"), StartsWith("attention backward"));
  EXPECT_THAT(served_by(c, {}), calls);
  EXPECT_THAT(served_by(c, {.window = 6}), calls) << "a window of all there is";
  EXPECT_THAT(served_by(c, {.window = 5}), own);
  auto any = make<Bf16, float>(c);
  EXPECT_THAT(served_by(c, {.positions = any.positions}), own);
  EXPECT_THAT(served_by({{2, 1, 136}, 1, 3}, {}).front(), StartsWith("attention_backward"));
  EXPECT_THAT(served_by({{2, 1, 16}, 1, 1}, {}), own) << "one row";
  const Chosen little(1);
  EXPECT_THAT(served_by(c, {}), ElementsAre(StartsWith("attention forward"), "attention_mma_keys",
                                            "attention_mma_queries"))
      << "no workspace for the gradient of one sequence";
}

TEST(CudaAttentionCudnn, IsNotGivenF32NorCaches) {
  const Chosen cudnn;
  const Case c = {{2, 1, 16}, 1, 5};
  auto o = make<float, float>(c);
  Gpu gpu;
  attention_forward(gpu.run, c.heads, kScale, {}, gpu(o.qkv), gpu(o.out), gpu(o.lse));
  auto cached = make<Bf16, float>(c);
  OwnedTensor<Bf16> keys({1, 5, c.heads.kv_width()}), values = keys;
  attention_cached(gpu.run, c.heads, kScale, {}, 0, gpu(cached.qkv), gpu(keys), gpu(values),
                   gpu(cached.out));
  gpu.finish();
  EXPECT_THAT(gpu.device().library_calls(), ElementsAre());
}

TEST(CudaAttentionCudnn, CappedScoresAreLeftToTheKernelsOfAnyHead) {
  const Chosen cudnn;
  const Case c = {{2, 1, 16}, 2, 6};
  auto o = make<Bf16, float>(c);
  Gpu gpu;
  const AttentionScores capped = {kScale, 2};
  const Tensor qkv = gpu(o.qkv), out = gpu(o.out), lse = gpu(o.lse);
  attention_forward(gpu.run, c.heads, capped, {}, qkv, out, lse);
  attention_backward(gpu.run, c.heads, capped, {}, qkv, out, lse, gpu(o.dout), gpu(o.dqkv));
  gpu.finish();
  EXPECT_THAT(gpu.device().library_calls(), ElementsAre());
  EXPECT_TRUE(gpu.device().totals().contains("attention_forward"));
  EXPECT_TRUE(gpu.device().totals().contains("attention_backward_key"));
}

TEST(CudaAttentionCudnn, PlansNothingUnlessItIsChosen) {
  const HeadLayout heads = {12, 12, 64};
  const Spec qkv = {Dtype::kBf16, {32, 1024, heads.qkv_width()}};
  EXPECT_EQ(cuda::attention_cudnn_scratch_bytes(heads, qkv), 0u);
  const Chosen cudnn;
  EXPECT_NEAR(static_cast<double>(attention_scratch_bytes(heads, qkv)), 806.9e6, 0.1e6);
  EXPECT_EQ(cuda::attention_cudnn_scratch_bytes(heads, {Dtype::kF32, qkv.shape}), 0u);
}

// A GPU's sums are its own, but the same each time. Workspaces are of other bytes at each turn.
TEST(RealGpuAttentionCudnn, MatchesDoubleAHundredTimes) {
  if (!test::has_real_gpu()) GTEST_SKIP() << "no GPU, or built without nvcc";
  if (!has_cudnn()) GTEST_SKIP() << "built without cuDNN";
  const auto device = open_cuda(0);
  if (!cudnn_problem().empty()) GTEST_SKIP() << cudnn_problem();
  const Chosen cudnn;
  const Case large[] = {{{12, 12, 64}, 4, 1024}, {{32, 8, 128}, 2, 512}, {{4, 2, 80}, 3, 200}};
  for (const Case& c : large) {
    const auto start = make<Bf16, float>(c);
    auto first = start;
    for (int turn = 0; turn < 100; ++turn) {
      auto now = start;
      Gpu gpu(test::kRealGpu, attention_scratch_bytes(c.heads, now.qkv.view().spec()));
      run_on(gpu, c, now);
      gpu.finish();
      if (turn == 0) first = now;
      ASSERT_TRUE(now == first) << "other bits at turn " << turn;
    }
    expect_near(first, expected_of(c, start));
  }
}

}  // namespace
}  // namespace atl::ops
