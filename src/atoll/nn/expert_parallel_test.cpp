// What moves between the ranks of an expert axis: every row to its expert and back, as many as were
// sent, and never more than were planned. Gradients of whole models: parallel/hybrid_test.cpp.

#include "atoll/nn/expert_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "atoll/base/error.h"
#include "atoll/comm/world.h"
#include "atoll/ops/routing/expert_rows.h"
#include "atoll/ops/testing.h"

namespace atl::nn {
namespace {

using test::OwnedTensor;
using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 5, kTopK = 2, kExperts = 4, kWidth = 3;

// The choices of one rank's tokens, and what stands between them and the experts.
class Rank {
 public:
  /// chooses(token, j): the expert that is the j-th choice of a token of this rank.
  Rank(comm::Group& group, const std::function<std::int64_t(std::int64_t, std::int64_t)>& chooses,
       std::int64_t capacity = kTokens)
      : axis_{group.size(), group.rank(), &group},
        setup_{kExperts, kTopK, kExperts / group.size()},
        dispatch(&axis_),
        run(1, 1 << 16) {
    footprint = dispatch.plan(setup_, {Dtype::kF64, {kTokens, kWidth}}, capacity);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t j = 0; j < kTopK; ++j) {
        experts[t * kTopK + j] = static_cast<std::int32_t>(chooses(t, j));
      }
    }
    ops::assign_rows(run, experts, capacity, places, sources, offsets);
    for (const Spec& spec : footprint.kept) kept_.emplace_back(spec.shape);
    for (OwnedTensor<std::int32_t>& one : kept_) views_.push_back(one);
    // The least that plan() asks for.
    run.run.scratch = run.run.scratch.first(footprint.scratch);
  }

  TokenDispatch::Choices choices() { return {places, sources, offsets, views_}; }
  void begin() { dispatch.begin(run, setup_, choices()); }

 private:
  Axis axis_;
  TokenDispatch::Setup setup_;

 public:
  ExpertParallelDispatch dispatch;
  test::TestRun run;
  TokenDispatch::Footprint footprint;
  OwnedTensor<std::int32_t> experts{{kTokens, kTopK}}, places{{kTokens, kTopK}},
      sources{{kTokens * kTopK}}, offsets{{kExperts + 1}};

 private:
  std::vector<OwnedTensor<std::int32_t>> kept_;
  std::vector<Tensor> views_;
};

void on_ranks(int size, const std::function<void(comm::Group&)>& body) {
  comm::run_threads(size, {.timeout_s = 60}, [&](comm::World& world) { body(world.all()); });
}

// A number that says whose row it is.
double mark(int rank, std::int64_t token) {
  return 100 * rank + static_cast<double>(token);
}

OwnedTensor<double> tokens_of(int rank) {
  OwnedTensor<double> x({kTokens, kWidth});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = mark(rank, i / kWidth);
  return x;
}

// Uneven, and another on each rank: rank 3 sends nothing to experts 0 and 3.
std::int64_t choice(int rank, std::int64_t token, std::int64_t j) {
  return rank == 3 ? 1 + j : (token * token + rank + j * (1 + token % 3)) % kExperts;
}

auto choice_of(const comm::Group& group) {
  return [rank = group.rank()](auto t, auto j) { return choice(rank, t, j); };
}

// Rows of an expert lie together, by rank and then by token: what the sums over them go by.
TEST(ExpertParallel, RowsComeInTheOrderOfRanksAndTokens) {
  for (const int size : {2, 4}) {
    on_ranks(size, [&](comm::Group& group) {
      Rank rank(group, choice_of(group));
      rank.begin();
      const TokenDispatch::Rows here = rank.dispatch.rows(rank.choices());
      OwnedTensor<double> x = tokens_of(group.rank()), rows({here.count, kWidth});
      rank.dispatch.to_experts(rank.run, rank.choices(), x, rows);
      const std::int64_t num_here = kExperts / size;
      std::vector<double> wanted;
      for (std::int64_t i = 0; i < num_here; ++i) {
        EXPECT_EQ(here.offsets.data<std::int32_t>()[i], std::ssize(wanted) / kWidth);
        for (int r = 0; r < size; ++r) {
          for (std::int64_t t = 0; t < kTokens; ++t) {
            for (std::int64_t j = 0; j < kTopK; ++j) {
              if (choice(r, t, j) != group.rank() * num_here + i) continue;
              wanted.insert(wanted.end(), kWidth, mark(r, t));
            }
          }
        }
      }
      EXPECT_EQ(rows.values, wanted);
    });
  }
}

// The expert of number e multiplies by e + 1: y is x times the sum over the choices.
TEST(ExpertParallel, WhatExpertsMakeOfRowsComesBackToTheirTokens) {
  on_ranks(2, [&](comm::Group& group) {
    Rank rank(group, choice_of(group));
    rank.begin();
    const TokenDispatch::Rows here = rank.dispatch.rows(rank.choices());
    OwnedTensor<double> x = tokens_of(group.rank()), y({kTokens, kWidth});
    OwnedTensor<double> rows({here.count, kWidth});
    rank.dispatch.to_experts(rank.run, rank.choices(), x, rows);
    for (std::int64_t i = 0; i < kExperts / 2; ++i) {
      const auto* offsets = here.offsets.data<std::int32_t>();
      for (std::int64_t at = offsets[i] * kWidth; at < offsets[i + 1] * kWidth; ++at) {
        rows[at] *= static_cast<double>(group.rank() * kExperts / 2 + i + 1);
      }
    }
    rank.dispatch.from_experts(rank.run, rank.choices(), rows, {}, y);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      double factor = 0;
      for (std::int64_t j = 0; j < kTopK; ++j) {
        factor += static_cast<double>(choice(group.rank(), t, j) + 1);
      }
      EXPECT_EQ(y[t * kWidth], factor * mark(group.rank(), t)) << t;
    }
  });
}

// Everybody wants the experts of one rank: as many rows come as were planned for, and to the other
// rank none.
TEST(ExpertParallel, ThePlanIsWhatCanCome) {
  on_ranks(2, [&](comm::Group& group) {
    Rank rank(group, [](auto /*t*/, auto j) { return j; });
    rank.begin();
    const TokenDispatch::Rows here = rank.dispatch.rows(rank.choices());
    EXPECT_EQ(rank.footprint.rows, 2 * kTokens * kTopK);
    EXPECT_EQ(here.offsets.data<std::int32_t>()[kExperts / 2],
              group.rank() == 0 ? rank.footprint.rows : 0);
    EXPECT_EQ(here.count, group.rank() == 0 ? rank.footprint.rows : 1);
    OwnedTensor<double> x = tokens_of(group.rank()), y({kTokens, kWidth});
    OwnedTensor<double> rows({here.count, kWidth});
    rank.dispatch.to_experts(rank.run, rank.choices(), x, rows);
    rank.dispatch.from_experts(rank.run, rank.choices(), rows, {}, y);
    for (std::int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], kTopK * x[i]);
  });
  // One expert a rank: a token goes to it once.
  on_ranks(4, [&](comm::Group& group) {
    EXPECT_EQ(Rank(group, choice_of(group)).footprint.rows, 4 * kTokens);
  });
}

TEST(ExpertParallel, CapacityBoundsThePlan) {
  constexpr std::int64_t kCapacity = 2;
  on_ranks(2, [&](comm::Group& group) {
    Rank rank(
        group, [](auto /*t*/, auto j) { return j; }, kCapacity);
    rank.begin();
    const TokenDispatch::Rows here = rank.dispatch.rows(rank.choices());
    EXPECT_EQ(rank.footprint.rows, 2 * (kExperts / 2) * kCapacity);
    EXPECT_EQ(here.count, group.rank() == 0 ? rank.footprint.rows : 1);
  });
}

// A choice has a row, and no expert knows of it.
TEST(ExpertParallel, RowsThatNobodyReceivesAreAnError) {
  on_ranks(2, [&](comm::Group& group) {
    Rank rank(group, choice_of(group));
    if (group.rank() == 1) --rank.offsets[kExperts];
    try {
      rank.begin();
      ADD_FAILURE() << "nothing was said";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 of the expert axis has rows for 10 choices of "
                                          "experts, and the experts receive 9"));
    }
  });
}

}  // namespace
}  // namespace atl::nn
