// Ring attention with threads as ranks, against attention of whole sequences.

#include "atoll/nn/ring_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "atoll/comm/mesh.h"
#include "atoll/ops/attention/attention_testing.h"

namespace atl::nn {
namespace {

using test::AttentionCall;
using test::OwnedTensor;
using test::TestRun;

struct Case {
  int num_ranks;
  ops::HeadLayout heads;
  std::int64_t batch = 2;
  std::int64_t length = 0;
  std::int64_t window = 0;
  bool documents = false;
  Dtype dtype = Dtype::kF64;
  double softcap = 0;

  std::string name() const {
    return fmt::format("{} ranks, {} of {} heads of {}, B {} T {} window {}{}", num_ranks,
                       heads.num_kv_heads, heads.num_heads, heads.head_dim, batch, length, window,
                       documents ? ", documents" : "");
  }
};

template <typename T>
AttentionCall<T> call_of(const Case& c) {
  AttentionCall<T> call(c.heads, c.batch, c.length);
  call.window = c.window;
  call.softcap = c.softcap;
  if (!c.documents) return call;
  const RngStream stream(3, RngPurpose::kSynthetic);
  call.positions = OwnedTensor<std::int32_t>({c.batch, c.length});
  for (std::int64_t i = 0; i < c.batch * c.length; ++i) {
    const bool begins = i % c.length == 0 || stream.word(static_cast<std::uint64_t>(i)) % 7 == 0;
    call.positions[i] = begins ? 0 : call.positions[i - 1] + 1;
  }
  return call;
}

// Between whole sequences (B, T, W) and the rows that `part` has of them.
template <typename T>
void copy_rows(const SequencePart& part, OwnedTensor<T>& whole, OwnedTensor<T>& mine,
               bool into_mine) {
  const std::int64_t rows = mine.shape.dim(1);
  const std::int64_t width = mine.size() / mine.shape.dim(0) / rows;
  for (std::int64_t b = 0; b < mine.shape.dim(0); ++b) {
    for (std::int64_t row = 0; row < rows; ++row) {
      T* there = &whole[(b * whole.shape.dim(1) + part.token(row, rows)) * width];
      T* here = &mine[(b * rows + row) * width];
      into_mine ? std::copy_n(there, width, here) : std::copy_n(here, width, there);
    }
  }
}

// What all ranks have sent, by rank, forward and in both passes.
struct Sent {
  std::vector<std::uint64_t> forward, both;
};

// Both passes on all ranks, with no more scratch than is planned; results are put together in
// `whole`.
template <typename T>
Sent attend(const Case& c, AttentionCall<T>& whole) {
  Sent sent;
  sent.forward.resize(static_cast<std::size_t>(c.num_ranks));
  sent.both = sent.forward;
  std::mutex mutex;
  comm::run_threads(c.num_ranks, {.timeout_s = 60}, [&](comm::World& world) {
    comm::Mesh mesh(world, {{"cp", c.num_ranks}});
    Axis axis = {c.num_ranks, world.rank(), &mesh.group("cp")};
    RingAttention ring(&axis);
    const SequencePart part = {SequenceOrder::kZigzag, c.num_ranks, world.rank()};
    const AttentionCore::Setup setup = {c.heads, whole.scale, c.window, c.softcap};
    const std::int64_t rows = c.length / c.num_ranks;
    OwnedTensor<T> qkv({c.batch, rows, c.heads.qkv_width()});
    OwnedTensor<T> dqkv(qkv.shape, test::number<T>(std::nan("")));
    OwnedTensor<T> dout({c.batch, rows, c.heads.query_width()});
    OwnedTensor<T> out(dout.shape, test::number<T>(std::nan("")));
    OwnedTensor<std::int32_t> positions({c.batch, rows});
    {
      const std::lock_guard lock(mutex);
      copy_rows(part, whole.qkv, qkv, true);
      copy_rows(part, whole.dout, dout, true);
      if (c.documents) copy_rows(part, whole.positions, positions, true);
    }
    Batch batch;
    if (c.documents) batch.positions = positions;
    const AttentionCore::Footprint footprint = ring.plan(setup, qkv.view().spec());
    ASSERT_EQ(footprint.kept.size(), 1U);
    OwnedTensor<ops::Compute<T>> lse(footprint.kept[0].shape);
    const Tensor kept[] = {lse};
    TestRun run(1, footprint.scratch_bytes);
    const auto number = static_cast<std::size_t>(world.rank());
    ring.forward(run, setup, &batch, qkv, out, kept);
    sent.forward[number] = axis.group->traffic().sent;
    ring.backward(run, setup, &batch, qkv, out, kept, dout, dqkv);
    sent.both[number] = axis.group->traffic().sent;
    const std::lock_guard lock(mutex);
    copy_rows(part, whole.out, out, false);
    copy_rows(part, whole.dqkv, dqkv, false);
  });
  return sent;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int ranks : {2, 3, 5}) {
    for (const std::int64_t window : {0, 1, 9, 50}) {
      for (const bool documents : {false, true}) {
        cases.push_back({ranks, {3, 1, 4}, 2, 60, window, documents});
      }
    }
  }
  cases.push_back({4, {2, 2, 3}, 1, 8, 0, false});  // one token in each part
  cases.push_back({2, {4, 2, 8}, 3, 4, 0, true});
  cases.push_back({3, {4, 2, 8}, 2, 60, 9, true, Dtype::kF64, 0.4});
  return cases;
}

TEST(RingAttention, GivesWhatOneRankGives) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name());
    TestRun run;
    AttentionCall<double> expected = call_of<double>(c), actual = call_of<double>(c);
    expected.forward(run);
    expected.backward(run);
    attend(c, actual);
    EXPECT_LE(test::error(actual.out, expected.out), 1e-13);
    EXPECT_LE(test::error(actual.dqkv, expected.dqkv), 1e-13);
  }
}

TEST(RingAttention, IsExactUpToRoundingInF32AndBf16) {
  for (const bool documents : {false, true}) {
    const Case c = {3, {4, 2, 32}, 2, 6 * 37, documents ? 0 : 70, documents};
    TestRun run;
    AttentionCall<double> exact = call_of<double>(c);
    AttentionCall<float> single = call_of<float>(c);
    exact.forward(run);
    exact.backward(run);
    attend(c, single);
    const double bound = test::attention_tolerance(32, 2 * c.length);
    EXPECT_LE(test::error(single.out, exact.out), bound);
    EXPECT_LE(test::error(single.dqkv, exact.dqkv), bound);

    AttentionCall<Bf16> narrow = call_of<Bf16>(c);
    AttentionCall<double> same = call_of<double>(c);  // the numbers that bf16 has
    same.qkv = narrow.qkv.as<double>();
    same.dout = narrow.dout.as<double>();
    same.forward(run);
    attend(c, narrow);
    EXPECT_LE(test::max_error_beyond_rounding(narrow.out, same.out), bound);
    same.out = narrow.out.as<double>();  // backward reads what was stored
    same.backward(run);
    EXPECT_LE(test::max_error_beyond_rounding(narrow.dqkv, same.dqkv),
              bound * std::max(1.0, test::max_abs(same.dqkv)));
  }
}

// 2 B (T / P) kv_width (P - 1) elements forward; backward again, and as many gradients.
TEST(RingAttention, SendsKeysAndValuesOnce) {
  for (const int ranks : {2, 3, 4}) {
    const Case c = {ranks, {6, 2, 8}, 2, 48};
    AttentionCall<Bf16> narrow = call_of<Bf16>(c);
    AttentionCall<float> single = call_of<float>(c);
    const Sent in_bf16 = attend(c, narrow), in_f32 = attend(c, single);
    const auto elements = static_cast<std::uint64_t>(2 * c.batch * (c.length / ranks) *
                                                     c.heads.kv_width() * (ranks - 1));
    EXPECT_THAT(in_f32.forward, testing::Each(elements * 4));
    EXPECT_THAT(in_f32.both, testing::Each(elements * (4 + 4 + 4)));
    EXPECT_THAT(in_bf16.forward, testing::Each(elements * 2));
    EXPECT_THAT(in_bf16.both, testing::Each(elements * (2 + 2 + 4)));
  }
}

std::int64_t pairs_of(int num_ranks, int rank, int owner, std::int64_t length) {
  std::int64_t pairs = 0;
  for (const ops::AttentionBlock& block :
       RingAttention::blocks(num_ranks, rank, owner, length, 0)) {
    pairs += ops::visible_pairs(block, 0);
  }
  return pairs;
}

// All pairs are some rank's, and at no step of the ring does a rank have more of them than others.
TEST(RingAttention, WorkIsEven) {
  constexpr std::int64_t kLength = 8192;
  for (const int ranks : {2, 3, 4, 8, 16}) {
    const std::int64_t length = kLength / (2 * ranks) * 2 * ranks;
    std::int64_t all = 0;
    for (int step = 0; step < ranks; ++step) {
      const std::int64_t of_first = pairs_of(ranks, 0, (ranks - step) % ranks, length);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::int64_t pairs = pairs_of(ranks, rank, (rank + ranks - step) % ranks, length);
        EXPECT_NEAR(static_cast<double>(pairs), static_cast<double>(of_first),
                    0.05 * static_cast<double>(of_first));
        all += pairs;
      }
    }
    EXPECT_EQ(all, length * (length + 1) / 2);
  }
}

// Memory of a rank shrinks as ranks join; keys of all of them never meet.
TEST(RingAttention, NeedsMemoryOfItsOwnRowsAlone) {
  const AttentionCore::Setup setup = {{8, 2, 64}, 0.125, 0};
  const auto bytes = [&](int num_ranks) {
    Axis axis = {num_ranks, 0};
    const Spec qkv = {Dtype::kF32, {1, 32768 / num_ranks, setup.heads.qkv_width()}};
    const AttentionCore::Footprint footprint = RingAttention(&axis).plan(setup, qkv);
    return static_cast<double>(footprint.scratch_bytes + footprint.kept[0].bytes());
  };
  for (const int ranks : {4, 8, 16}) EXPECT_NEAR(bytes(ranks) * ranks, bytes(2) * 2, 1 << 16);
}

TEST(RingAttention, WindowsLeaveBlocksOut) {
  // Parts of 8 tokens: with a window of 3, queries see their own part and the one before.
  std::size_t blocks = 0;
  for (int rank = 0; rank < 4; ++rank) {
    for (int owner = 0; owner < 4; ++owner) {
      blocks += RingAttention::blocks(4, rank, owner, 64, 3).size();
    }
  }
  EXPECT_EQ(blocks, 8U + 7U);
}

}  // namespace
}  // namespace atl::nn
