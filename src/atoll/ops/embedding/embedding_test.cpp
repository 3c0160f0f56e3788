#include "atoll/ops/embedding/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/ops/embedding/ref.h"
#include "atoll/ops/storage.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::random_tokens;
using test::TestRun;

constexpr std::int64_t kWidths[] = {1, 3, 17, 65, 255};

TEST(Embedding, GivesTheBitsOfRefWithRepeatedTokens) {
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    for (const std::int64_t C : kWidths) {
      auto tokens = random_tokens({3, 37}, 11, 1);  // 111 rows on 11 tokens: each is hit often
      auto table = random_tensor<float>({11, C}, 2);
      OwnedTensor<float> y({3, 37, C}), expected_y({3, 37, C});
      embedding_forward(run, tokens, table, y);
      ref::embedding_forward<float>(tokens, table, expected_y);
      EXPECT_EQ(y, expected_y);
      auto dtable = random_tensor<float>({11, C}, 3);  // gradients are added to what is there
      auto expected = dtable;
      embedding_backward(run, tokens, y, dtable);
      ref::embedding_backward<float>(tokens, y, expected);
      EXPECT_EQ(dtable, expected) << C << " columns, " << threads << " threads";
    }
  }
}

TEST(Embedding, ABf16TableIsWidenedForF32) {
  TestRun run(2);
  for (const std::int64_t C : kWidths) {
    auto tokens = random_tokens({3, 37}, 11, 1);
    auto table = random_tensor<Bf16>({11, C}, 2);
    auto wide = table.as<float>();
    OwnedTensor<float> y({3, 37, C}), expected({3, 37, C}), of_ref({3, 37, C});
    embedding_forward(run, tokens, table, y);
    embedding_forward(run, tokens, wide, expected);
    EXPECT_EQ(y, expected) << C;
    ref::embedding_forward<Bf16, float>(tokens, table, of_ref);
    EXPECT_EQ(of_ref, expected) << C;
  }
}

TEST(Embedding, PositionsGiveTheBitsOfRef) {
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    for (const std::int64_t C : kWidths) {
      auto table = random_tensor<float>({40, C}, 1);
      auto y = random_tensor<float>({3, 37, C}, 2);
      auto expected_y = y;
      position_embedding_forward(run, {}, table, y);
      ref::position_embedding_forward<float>({}, table, expected_y);
      EXPECT_EQ(y, expected_y);
      auto dtable = table;
      auto expected = table;
      position_embedding_backward(run, {}, y, dtable);
      ref::position_embedding_backward<float>({}, y, expected);
      EXPECT_EQ(dtable, expected);
    }
  }
}

// The positions of documents of 1, 2, 3, ... rows in 3 sequences of 37, none longer than 9.
OwnedTensor<std::int32_t> short_documents() {
  OwnedTensor<std::int32_t> positions({3, 37});
  std::int64_t length = 0;
  for (std::int64_t row = 0, start = 0; row < positions.size(); ++row) {
    if (row % 37 == 0 || row % 37 - start > length % 9) {
      start = row % 37;
      ++length;
    }
    positions[row] = static_cast<std::int32_t>(row % 37 - start);
  }
  return positions;
}

TEST(Embedding, PositionsOfDocumentsGiveTheBitsOfRef) {
  auto positions = short_documents();
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    for (const std::int64_t C : kWidths) {
      auto table = random_tensor<float>({12, C}, 1);
      auto y = random_tensor<float>({3, 37, C}, 2);
      auto expected_y = y;
      position_embedding_forward(run, positions, table, y);
      ref::position_embedding_forward<float>(positions, table, expected_y);
      EXPECT_EQ(y, expected_y);
      auto dtable = table;
      auto expected = table;
      position_embedding_backward(run, positions, y, dtable);
      ref::position_embedding_backward<float>(positions, y, expected);
      EXPECT_EQ(dtable, expected) << C << " columns, " << threads << " threads";
    }
  }
}

TEST(Embedding, PositionsRestartWithEachDocument) {
  TestRun run;
  auto positions = short_documents();
  auto table = random_tensor<double>({9, 2}, 1);
  OwnedTensor<double> y({3, 37, 2});
  position_embedding_forward(run, positions, table, y);
  for (std::int64_t row = 0; row < positions.size(); ++row) {
    EXPECT_EQ(y[2 * row], table[2 * positions[row]]) << row;
  }
  OwnedTensor<double> dtable({9, 2});
  const auto dy = random_tensor<double>({3, 37, 2}, 4);
  auto gradient = dy;
  position_embedding_backward(run, positions, gradient, dtable);
  const auto loss = [&] {
    std::fill(y.values.begin(), y.values.end(), 0.0);
    position_embedding_forward(run, positions, table, y);
    return test::dot(dy, y);
  };
  EXPECT_LE(test::max_relative_error(dtable, test::finite_difference(table, loss)), 1e-8);
}

TEST(Embedding, GradientMatchesFiniteDifferences) {
  TestRun run;
  auto tokens = random_tokens({2, 7}, 5, 1);
  auto table = random_tensor<double>({5, 3}, 2);
  auto positions = random_tensor<double>({9, 3}, 3);
  const auto dy = random_tensor<double>({2, 7, 3}, 4);
  OwnedTensor<double> y({2, 7, 3}), dtable({5, 3}), dpositions({9, 3});
  const auto loss = [&] {
    embedding_forward(run, tokens, table, y);
    position_embedding_forward(run, {}, positions, y);
    return test::dot(dy, y);
  };
  auto gradient = dy;
  embedding_backward(run, tokens, gradient, dtable);
  position_embedding_backward(run, {}, gradient, dpositions);
  EXPECT_LE(test::max_relative_error(dtable, test::finite_difference(table, loss)), 1e-8);
  EXPECT_LE(test::max_relative_error(dpositions, test::finite_difference(positions, loss)), 1e-8);
}

TEST(Embedding, NamesTheFirstTokenOutsideTheVocabulary) {
  TestRun run;
  OwnedTensor<float> table({10, 4}), y({2, 3, 4});
  for (const std::int32_t bad : {10, -1}) {
    OwnedTensor<std::int32_t> tokens({2, 3}, 9);
    tokens[4] = bad;
    tokens[5] = 99;
    try {
      embedding_forward(run, tokens, table, y);
      FAIL() << "token " << bad << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      EXPECT_THAT(error.what(),
                  testing::HasSubstr(fmt::format("token {} at row 1, position 1", bad)));
    }
    EXPECT_THROW(embedding_backward(run, tokens, y, table), Error);
  }
}

TEST(Embedding, RefusesPositionsBeyondTheTable) {
  TestRun run;
  OwnedTensor<float> table({8, 4}), y({1, 5, 4});
  OwnedTensor<std::int32_t> positions({1, 5});
  positions.values = {3, 4, 5, 6, 7};
  EXPECT_NO_THROW(position_embedding_forward(run, positions, table, y));
  for (const std::int32_t bad : {8, -1}) {
    positions[2] = bad;
    EXPECT_THROW(position_embedding_forward(run, positions, table, y), Error) << bad;
    EXPECT_THROW(position_embedding_backward(run, positions, y, table), Error) << bad;
  }
  OwnedTensor<float> small({4, 4});
  EXPECT_THROW(position_embedding_forward(run, {}, small, y), Error);
}

}  // namespace
}  // namespace atl::ops
