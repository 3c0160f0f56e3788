#include "atoll/plan/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/testing.h"
#include "atoll/plan/measure.h"
#include "atoll/plan/stage_seconds.h"
#include "atoll/plan/testing.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/options.h"

namespace atl::plan {

namespace {

TEST(Choice, IsReadAsItWasWritten) {
  const ckpt::testing::TemporaryDirectory made("plan");
  const std::filesystem::path& directory = made.path();
  EXPECT_EQ(read_choice(directory), std::nullopt);
  const Choice choice = {4, {"--parallel.tp=2", "--dp.zero=1"}, 1.0 / 3};
  write_choice(directory, choice);
  EXPECT_EQ(read_choice(directory), choice);
}

TEST(Choice, ThatIsDamagedIsRefusedWithItsLine) {
  const ckpt::testing::TemporaryDirectory made("plan");
  const std::filesystem::path& directory = made.path();
  write_file(directory / kChoiceFile, "ranks = 2\nstep_seconds = \"x\"\n");
  EXPECT_THAT([&] { read_choice(directory); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("plan.toml:2: step_seconds")));
  write_file(directory / kChoiceFile, "ranks = 2\n");
  EXPECT_THAT([&] { read_choice(directory); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("lacks ranks, arguments")));
}

TEST(Choice, IsNobodysWhereTheRecipeHasChosen) {
  EXPECT_THAT(
      [] {
        train::Recipe("", small_recipe({"--parallel.layout=auto", "--parallel.tp=2"}));
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("parallel.tp (2, --parallel.tp)")));
}

TEST(Ask, RefusesHostsThatDoNotFitTheRanks) {
  EXPECT_THAT([] { ask("", small_recipe(), 300, {.ranks = 4, .ranks_per_host = 3}); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("--ranks-per-host")));
}

TEST(Ask, TakesFiguresOfAMachineThatIsNotHere) {
  const ckpt::testing::TemporaryDirectory made("plan");
  const std::filesystem::path& directory = made.path();
  Figures figures = round_figures();
  figures.memory_gib = 0;
  write_file(directory / "m.toml", to_toml(figures));
  Hosts hosts = {.ranks = 8, .figures = directory / "m.toml"};
  EXPECT_THAT([&] { ask("", small_recipe(), 300, hosts); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("machine.memory_gib")));
  hosts.memory_gib = 2;
  hosts.network = Link{1e-3, 1, 2, 3};
  const Question question = ask("", small_recipe(), 300, hosts);
  EXPECT_EQ(question.figures.ranks_per_host, 4);
  EXPECT_EQ(question.figures.network, *hosts.network);
  EXPECT_EQ(question.memory_bytes, std::size_t{2} << 30);
}

TEST(Measure, FindsEveryRateOfTheModel) {
  const train::TrainConfig config = train::load_recipe("", small_recipe());
  MeasureOptions options = {.ranks = 2,
                            .threads = 1,
                            .state = train::state_options(config, 300, -1),
                            .tensor = {1, 2},
                            .micro_batches = {1, 8}};
  options.state.data_parallel = {};
  const Figures figures = measure(options);
  EXPECT_EQ(figures.speedups.size(), 2U);
  EXPECT_TRUE(figures.host.contains(2));
  EXPECT_GT(figures.layer_factor, 0);
  EXPECT_EQ(parse_figures(to_toml(figures), "measured"), figures);
  for (const OpCase& op :
       training_op_cases(part_of(options.state.model, 2), {.sequences = 8, .context = 16}, 2)) {
    EXPECT_TRUE(figures.rates.contains(rate_key(op))) << rate_key(op);
  }
}

}  // namespace

}  // namespace atl::plan
