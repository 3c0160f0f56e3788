// Muon where ranks have parts of matrices: the bits of one rank that has them whole.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "atoll/comm/world.h"
#include "atoll/ops/testing.h"
#include "atoll/optim/matrix_parts.h"
#include "atoll/optim/optimizer.h"

namespace atl::optim {
namespace {

using test::OwnedTensor;
using test::TestRun;

constexpr int kSteps = 3;

// A whole matrix and how ranks share it.
struct Shared {
  std::int64_t rows, cols;
  std::vector<MatrixParts::Part> of_ranks;
};

// Uneven rows, uneven columns, rows that do not lie together, rows that two ranks share between
// four; one matrix more than ranks.
std::vector<Shared> matrices(int ranks) {
  const auto rows = [](std::int64_t begin, std::int64_t count, std::int64_t columns) {
    return MatrixParts::Part{{{begin, count}}, 0, columns};
  };
  const auto columns = [](std::int64_t rows, std::int64_t begin, std::int64_t count) {
    return MatrixParts::Part{{{0, rows}}, begin, count};
  };
  if (ranks == 2) {
    return {{7, 5, {rows(0, 4, 5), rows(4, 3, 5)}},
            {4, 9, {columns(4, 0, 5), columns(4, 5, 4)}},
            {6, 6, {{{{0, 1}, {2, 1}, {4, 1}}, 0, 6}, {{{1, 1}, {3, 1}, {5, 1}}, 0, 6}}}};
  }
  return {{8, 6, {rows(0, 2, 6), rows(2, 2, 6), rows(4, 2, 6), rows(6, 2, 6)}},
          {4, 6, {rows(0, 2, 6), rows(0, 2, 6), rows(2, 2, 6), rows(2, 2, 6)}},
          {3, 9, {columns(3, 0, 3), columns(3, 3, 2), columns(3, 5, 2), columns(3, 7, 2)}},
          {5, 6, {rows(0, 2, 6), rows(2, 1, 6), rows(3, 1, 6), rows(4, 1, 6)}},
          {9, 6, {rows(0, 3, 6), rows(3, 2, 6), rows(5, 2, 6), rows(7, 2, 6)}}};
}

std::int64_t padded(std::int64_t elements) {
  return (elements + 15) / 16 * 16;
}

// Values or gradients of matrix m, and of the vector after the last.
OwnedTensor<float> numbers(const Shape& shape, int seed) {
  return test::random_tensor<float>(shape, static_cast<std::uint64_t>(seed));
}

// The optimizer of one rank, with its parts of all matrices and a vector that all have.
class Rank {
 public:
  Rank(const std::vector<Shared>& matrices, int ranks, int rank)
      : matrices_(matrices), rank_(rank), run_(1, 64) {
    std::int64_t at = 0;
    for (const Shared& shared : matrices) {
      parts_.push_back({shared.rows, shared.cols, shared.of_ranks});
    }
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const MatrixParts::Part part = part_of(m);
      ParamRange range = {at,          padded(part.num_elements()), true, true, part.num_rows(),
                          part.columns};
      if (ranks > 1) range.parts = &parts_[m];
      ranges_.push_back(range);
      at += range.count;
    }
    ranges_.push_back({at, 16, false});
    const Spec flat = {Dtype::kF32, {at + 16}};
    optimizer_ = make_optimizer({.kind = "muon", .peak_lr = 0.1}, flat, ranges_);
    optimizer_->request(plan_);
    const int scratch = plan_.request_forever("scratch", "scratch", optimizer_->scratch_bytes());
    plan_.place();
    arena_ = std::make_unique<Arena>(*run_.device, plan_);
    optimizer_->bind(*arena_);
    run_.run.scratch = {arena_->data(scratch), optimizer_->scratch_bytes()};
    values_ = fill(0);
  }

  void train(comm::Group* group) {
    for (int step = 1; step <= kSteps; ++step) {
      OwnedTensor<float> grads = fill(100 * step);
      optimizer_->update(run_, {.lr = 0.1, .grad_scale = 0.5, .step = step, .parts = group},
                         values_, grads);
    }
  }

  // This rank's values as whole matrices have them.
  void put(std::vector<OwnedTensor<float>>& whole) const {
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      const MatrixParts::Part part = part_of(m);
      for (std::int64_t i = 0; i < part.num_elements(); ++i) {
        whole[m][place(m, i)] = values_[ranges_[m].begin + i];
      }
    }
    for (std::int64_t i = 0; i < 16; ++i) whole.back()[i] = values_[ranges_.back().begin + i];
  }

 private:
  MatrixParts::Part part_of(std::size_t m) const {
    const Shared& shared = matrices_[m];
    if (rank_ < 0) return {{{0, shared.rows}}, 0, shared.cols};
    return shared.of_ranks[static_cast<std::size_t>(rank_)];
  }
  std::int64_t place(std::size_t m, std::int64_t i) const {
    const MatrixParts::Part part = part_of(m);
    std::int64_t row = i / part.columns;
    for (const MatrixParts::Rows& stretch : part.rows) {
      if (row < stretch.count) {
        row += stretch.begin;
        break;
      }
      row -= stretch.count;
    }
    return row * matrices_[m].cols + part.column_begin + i % part.columns;
  }
  OwnedTensor<float> fill(int seed) const {
    OwnedTensor<float> flat({ranges_.back().begin + 16}, 0.0F);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      const OwnedTensor<float> whole =
          numbers({matrices_[m].rows * matrices_[m].cols}, seed + static_cast<int>(m));
      for (std::int64_t i = 0; i < part_of(m).num_elements(); ++i) {
        flat[ranges_[m].begin + i] = whole[place(m, i)];
      }
    }
    const OwnedTensor<float> vector = numbers({16}, seed + 50);
    for (std::int64_t i = 0; i < 16; ++i) flat[ranges_.back().begin + i] = vector[i];
    return flat;
  }

  const std::vector<Shared>& matrices_;
  int rank_;  // -1: all of the matrices is here
  std::vector<MatrixParts> parts_;
  std::vector<ParamRange> ranges_;
  TestRun run_;
  std::unique_ptr<Optimizer> optimizer_;
  MemoryPlan plan_;
  std::unique_ptr<Arena> arena_;
  OwnedTensor<float> values_;
};

std::vector<OwnedTensor<float>> empty(const std::vector<Shared>& matrices) {
  std::vector<OwnedTensor<float>> whole;
  for (const Shared& shared : matrices) whole.emplace_back(Shape{shared.rows * shared.cols});
  whole.emplace_back(Shape{16});
  return whole;
}

// What all ranks send in an update: parts to the rank that puts a matrix together, those that
// several have once, and the result's parts back to all.
std::uint64_t elements_sent(const std::vector<Shared>& matrices, int ranks) {
  std::int64_t sum = 0;
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    const MatrixParts parts = {matrices[m].rows, matrices[m].cols, matrices[m].of_ranks};
    const std::size_t owner = m % static_cast<std::size_t>(ranks);
    for (std::size_t r = 0; r < parts.of_ranks.size(); ++r) {
      if (r == owner) continue;
      sum += (parts.first_with_part_of(r) == r ? 2 : 1) * parts.of_ranks[r].num_elements();
    }
  }
  return static_cast<std::uint64_t>(sum);
}

TEST(MuonParts, HaveTheBitsOfWholeMatrices) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const std::vector<Shared> all = matrices(ranks);
    std::vector<OwnedTensor<float>> expected = empty(all);
    Rank alone(all, 1, -1);
    alone.train(nullptr);
    alone.put(expected);
    std::vector<std::vector<OwnedTensor<float>>> found(static_cast<std::size_t>(ranks), expected);
    std::atomic<std::uint64_t> sent = 0;
    comm::run_threads(ranks, {.timeout_s = 60}, [&](comm::World& world) {
      Rank rank(all, ranks, world.rank());
      rank.train(&world.all());
      std::vector<OwnedTensor<float>>& mine = found[static_cast<std::size_t>(world.rank())];
      rank.put(mine);
      sent += world.all().traffic().sent;
    });
    EXPECT_EQ(sent, kSteps * sizeof(float) * elements_sent(all, ranks));
    // Each has its own parts over what is expected: all of it is the same, on every rank.
    for (const std::vector<OwnedTensor<float>>& mine : found) EXPECT_TRUE(mine == expected);
  }
}

TEST(MuonParts, NeedTheOtherRanks) {
  const std::vector<Shared> all = matrices(2);
  Rank rank(all, 2, 0);
  EXPECT_THROW(rank.train(nullptr), Error);
}

}  // namespace
}  // namespace atl::optim
