// The codes that kernels make of a GPU's memory, beside those of compress/ of a CPU's: the same
// bytes, the same residual, the same sums.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "atoll/compress/testing.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/compress/piece_coder.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {
namespace {

nn::ModelConfig tiny_model() {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 61;
  config.hidden_size = 20;  // pieces that end within a block
  config.num_layers = 2;
  config.heads = {.num_heads = 2, .num_kv_heads = 2, .head_dim = 10};
  config.intermediate_size = 37;
  config.max_positions = 32;
  return config;
}

constexpr int kRanks = 2;
constexpr std::size_t kRank = 1;

struct Made {
  std::vector<std::byte> codes;
  std::vector<float> residual, sum;

  bool operator==(const Made& other) const {
    return codes == other.codes && residual.size() == other.residual.size() &&
           std::memcmp(residual.data(), other.residual.data(), residual.size() * sizeof(float)) ==
               0 &&
           std::memcmp(sum.data(), other.sum.data(), sum.size() * sizeof(float)) == 0;
  }
};

std::vector<float> values(std::int64_t n, std::uint64_t seed) {
  std::vector<float> all = test::codec_values(static_cast<std::size_t>(n), seed);
  if (seed != 1) return all;
  all[7] = std::numeric_limits<float>::infinity();
  all[static_cast<std::size_t>(n) - 300] = 0x1p127F;
  return all;
}

void write(const Tensor& tensor, const std::vector<float>& from) {
  write_on_host<float>(
      tensor, [&](std::span<float> to) { std::copy(from.begin(), from.end(), to.begin()); });
}

enum class With { kNothing, kResidual, kMinus };

// Encodes all of every bucket, and sums what two ranks would have sent of one part.
Made make(Device& device, const std::string& codec, With with) {
  const auto model = nn::build_model(tiny_model(), {.dtype = Dtype::kF32});
  const FlatLayout layout(*model, {.num_ranks = kRanks, .bucket_bytes = 8000});
  PieceCoder coder(layout, codec);
  const Spec flat = layout.flat();
  const std::int64_t n = flat.shape.num_elements();
  MemoryPlan plan;
  const int x_request = plan.request_forever("x", "x", flat.bytes());
  const int other_request = plan.request_forever("residual", "residual", flat.bytes());
  const int sum_request = plan.request_forever("sum", "sum", flat.bytes());
  std::vector<int> code_requests;
  for (const BucketCodes& codes : coder.buckets()) {
    code_requests.push_back(
        plan.request_forever("codes", "codes", static_cast<std::size_t>(2 * codes.bytes())));
  }
  coder.request(plan);
  plan.place();
  const Arena arena(device, plan);
  coder.bind(arena);
  const Tensor x = arena.tensor(x_request, flat), other = arena.tensor(other_request, flat);
  const Tensor sum = arena.tensor(sum_request, flat);
  write(x, values(n, 1));
  write(other, values(n, 2));
  write(sum, values(n, 3));
  const auto stream = device.open_stream();
  Run run = {.stream = stream.get()};
  Made made;
  for (std::size_t b = 0; b < coder.buckets().size(); ++b) {
    const Bucket& bucket = layout.buckets()[b];
    const BucketCodes& codes = coder.buckets()[b];
    const Tensor sent = arena.tensor(code_requests[b], {Dtype::kU8, {2 * codes.bytes()}});
    const Tensor own = sent.rows(0, codes.bytes());
    coder.encode(run, coder.all(b),
                 {.x = x.rows(bucket.begin, bucket.end),
                  .x_first = bucket.begin,
                  .residual = with == With::kResidual ? other : Tensor(),
                  .minus = with == With::kMinus ? other : Tensor()},
                 own);
    // The second source's codes are the first one's.
    copy_now(own, sent.rows(codes.bytes(), 2 * codes.bytes()));
    coder.decode(run, coder.part(b, kRank),
                 {.codes = sent.rows(codes.byte_parts[kRank], 2 * codes.bytes()),
                  .byte_first = codes.byte_parts[kRank],
                  .sources = 2,
                  .source_bytes = codes.bytes(),
                  .adds = with == With::kMinus,
                  .to = sum.rows(bucket.begin, bucket.end),
                  .to_first = bucket.begin});
    stream->synchronize();
    const HostRead read(own);
    made.codes.insert(made.codes.end(), read.bytes().begin(), read.bytes().end());
  }
  const HostRead residual(other), sums(sum);
  made.residual.assign(residual.elements<float>().begin(), residual.elements<float>().end());
  for (const float one : sums.elements<float>()) {
    made.sum.push_back(std::isnan(one) ? std::numeric_limits<float>::quiet_NaN() : one);
  }
  return made;
}

TEST(GpuCodes, AreTheCodecsBytes) {
  for (const char* codec : {"int8", "int4"}) {
    for (const With with : {With::kNothing, With::kResidual, With::kMinus}) {
      const auto cpu = open_cpu(2);
      const Made expected = make(*cpu, codec, with);
      fake_cuda::FakeCudaDevice gpu({.seed = 3});
      EXPECT_TRUE(make(gpu, codec, with) == expected) << codec << " " << static_cast<int>(with);
      EXPECT_GT(expected.codes.size(), 1000u);
    }
  }
}

}  // namespace
}  // namespace atl::parallel
