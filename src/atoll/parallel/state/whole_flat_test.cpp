// Places of a rank's elements in the whole model: what stochastic rounding draws by, and who has
// which matrix.

#include "atoll/parallel/state/whole_flat.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "atoll/nn/models/family.h"
#include "atoll/optim/matrix_parts.h"
#include "atoll/parallel/draw_testing.h"
#include "atoll/parallel/schedule/stage_cut.h"

namespace atl::parallel {
namespace {

struct Part {
  int tensor = 1, tensor_rank = 0;
  int expert = 1, expert_rank = 0;
  int stages = 1, stage = 0;
};

// Sizes that no number of ranks divides.
nn::ModelConfig uneven_model(const Part& part) {
  nn::ModelConfig config =
      layout_test::small_model(part.expert > 1 ? "mixtral" : "qwen2", 4, part.expert > 1 ? 4 : 1);
  config.intermediate_size = 11;
  config.tie_embeddings = false;
  return config;
}

std::unique_ptr<nn::Model> build(const Part& part) {
  auto model = nn::build_model(uneven_model(part), {.tensor_size = part.tensor,
                                                    .tensor_rank = part.tensor_rank,
                                                    .expert_size = part.expert,
                                                    .expert_rank = part.expert_rank});
  if (part.stages > 1) {
    Pipeline pipeline = {part.stages, part.stages, {0}};
    for (int r = 1; r < part.stages; ++r) pipeline.bounds.push_back(static_cast<std::size_t>(r));
    pipeline.bounds.push_back(model->stages.size());
    keep_stages(*model, pipeline, part.stage);
  }
  return model;
}

// The number that the whole model's flat vector has for each element of a rank's.
std::map<std::int64_t, std::int64_t> places(const FlatLayout& layout, const FlatLayout& whole) {
  std::map<std::int64_t, std::int64_t> found;
  for (std::size_t i = 0; i < layout.trained().size(); ++i) {
    const nn::Param& param = *layout.trained()[i];
    std::size_t at = 0;
    while (whole.trained()[at]->name != nn::whole_param(param).name) ++at;
    const std::int64_t count = param.spec.shape.num_elements();
    std::vector<double> numbers(
        static_cast<std::size_t>(nn::whole_param(param).spec.shape.num_elements()));
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      numbers[n] = static_cast<double>(whole.offset(at)) + static_cast<double>(n);
    }
    std::vector<double> mine = numbers;
    if (param.cut) {
      mine.resize(static_cast<std::size_t>(count));
      nn::copy_slice(param.cut->slices[static_cast<std::size_t>(param.cut->rank)],
                     {numbers.data(), {Dtype::kF64, nn::whole_param(param).spec.shape}},
                     {mine.data(), {Dtype::kF64, param.spec.shape}});
    }
    for (std::int64_t n = 0; n < count; ++n) {
      found[layout.offset(i) + n] = static_cast<std::int64_t>(mine[static_cast<std::size_t>(n)]);
    }
  }
  return found;
}

TEST(DrawnByWhole, EachElementDrawsByItsPlaceInTheWholeModel) {
  for (const Part& part : {Part{.tensor = 2, .tensor_rank = 1}, Part{.tensor = 4, .tensor_rank = 2},
                           Part{.stages = 3, .stage = 1}, Part{.stages = 2, .stage = 1},
                           Part{.expert = 2, .expert_rank = 1},
                           Part{.tensor = 2, .tensor_rank = 1, .expert = 2, .expert_rank = 1},
                           Part{.tensor = 2, .expert = 4, .expert_rank = 3},
                           Part{.tensor = 2, .tensor_rank = 1, .stages = 2, .stage = 1}}) {
    SCOPED_TRACE(fmt::format("tp {} ep {} pp {}", part.tensor, part.expert, part.stages));
    const auto model = build(part);
    const auto whole_model = nn::build_model(uneven_model(part), {});
    for (const int shards : {1, 3}) {
      const FlatLayout layout(*model, {.num_ranks = shards});
      const FlatLayout whole(*whole_model, {});
      const auto runs = runs_in_whole(layout, whole, [](const nn::Param&) { return true; });
      const auto expected = places(layout, whole);
      std::map<std::int64_t, std::int64_t> drawn;
      for (int r = 0; r < shards; ++r) {
        const auto ranges = layout.ranges_of(r);
        const auto found = drawn_by_whole(runs, ranges);
        std::int64_t covered = 0, wanted = 0;
        for (const optim::ParamRange& range : ranges) wanted += range.count;
        for (const optim::ParamRange& range : found) {
          covered += range.count;
          // A rank's share is one vector: its ranges lie one after the other in it.
          EXPECT_EQ(range.in_values(), range.in_grads());
          for (std::int64_t i = 0; i < range.count; ++i) {
            if (expected.contains(range.begin + i)) drawn[range.begin + i] = range.in_draws() + i;
          }
        }
        EXPECT_EQ(covered, wanted);
        EXPECT_EQ(found.front().in_values(), ranges.front().in_values());
      }
      EXPECT_TRUE(drawn == expected);
    }
  }
}

// Each element of the whole model is counted by one of the ranks that have parts of it.
TEST(RunsInWhole, CountEachElementOnce) {
  for (const Part& all : {Part{.tensor = 4}, Part{.expert = 4}, Part{.tensor = 2, .expert = 2},
                          Part{.tensor = 4, .expert = 2}}) {
    SCOPED_TRACE(fmt::format("tp {} ep {}", all.tensor, all.expert));
    const auto whole_model = nn::build_model(uneven_model(all), {});
    const FlatLayout whole(*whole_model, {});
    std::vector<int> counted(static_cast<std::size_t>(whole.flat().shape.num_elements()));
    std::int64_t in_norm = 0, elements = 0;
    for (int e = 0; e < all.expert; ++e) {
      for (int t = 0; t < all.tensor; ++t) {
        Part part = all;
        part.tensor_rank = t;
        part.expert_rank = e;
        const auto model = build(part);
        const FlatLayout layout(*model, {});
        for (const FlatRun& run :
             runs_in_whole(layout, whole, [](const nn::Param&) { return true; })) {
          for (std::int64_t i = 0; run.counts && i < run.count; ++i) {
            ++counted[static_cast<std::size_t>(run.begin + i)];
          }
        }
        for (const nn::Param* param : layout.trained()) {
          const Shape& shape = param->spec.shape;
          in_norm += nn::counted_rows(*param) * (shape.num_elements() / shape.dim(0));
        }
      }
    }
    for (std::size_t i = 0; i < whole.trained().size(); ++i) {
      const std::int64_t count = whole.trained()[i]->spec.shape.num_elements();
      elements += count;
      for (std::int64_t n = 0; n < count; ++n) {
        ASSERT_EQ(counted[static_cast<std::size_t>(whole.offset(i) + n)], 1)
            << whole.trained()[i]->name << " " << n;
      }
    }
    EXPECT_EQ(in_norm, elements);
  }
}

// Muon puts a matrix together from the ranks that share products: they must all have given it to
// the same data-parallel rank, however unevenly it is cut.
TEST(WholeMatrices, AreTheSameDataParallelRanksOnAllThatShareThem) {
  for (const int tensor : {2, 4}) {
    for (const int shards : {2, 3, 5}) {
      std::vector<std::vector<std::string>> of_ranks;
      std::int64_t matrices = 0;
      for (int t = 0; t < tensor; ++t) {
        const auto model = build({.tensor = tensor, .tensor_rank = t});
        const FlatLayout layout(*model, {.num_ranks = shards, .whole_matrices = true});
        std::vector<std::string>& mine = of_ranks.emplace_back();
        for (int r = 0; r < shards; ++r) {
          for (const optim::ParamRange& range : layout.ranges_of(r)) {
            if (range.parts == nullptr) continue;
            EXPECT_TRUE(range.matrix);
            EXPECT_EQ(range.parts->of_ranks.size(), static_cast<std::size_t>(tensor));
            const auto& part = range.parts->of_ranks[static_cast<std::size_t>(t)];
            EXPECT_EQ(part.num_rows(), range.rows);
            EXPECT_EQ(part.columns, range.cols);
            mine.push_back(fmt::format("{}: {} x {}", r, range.parts->rows, range.parts->cols));
            ++matrices;
          }
        }
        EXPECT_EQ(mine, of_ranks.front());
      }
      EXPECT_EQ(matrices, tensor * 3 * 5);  // queries, output, gate, up, down; one key head
    }
  }
}

}  // namespace
}  // namespace atl::parallel
