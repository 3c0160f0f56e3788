#include "atoll/tune/trial/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"

namespace atl::tune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StudyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "atoll-study-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    write_file(dir_ / "text.txt", "some text\n");
    write_file(recipe(), fmt::format("[run]\ndir = \"runs/x\"\n[data]\ntext = [\"{}\"]\n"
                                     "[train]\nsteps = 270\n[optim]\nschedule = \"constant\"\n",
                                     (dir_ / "text.txt").string()));
  }
  void TearDown() override { fs::remove_all(dir_); }

  fs::path recipe() const { return dir_ / "recipe.toml"; }
  fs::path write(const std::string& study, const std::string& more = "") const {
    write_file(
        dir_ / "study.toml",
        fmt::format("[study]\nrecipe = \"{}\"\ndir = \"{}\"\n{}\n[space]\noptim.lr = {{low = "
                    "1e-4, high = 1e-2, scale = \"log\"}}\n{}",
                    recipe().string(), (dir_ / "out").string(), study, more));
    return dir_ / "study.toml";
  }
  std::string refusal(const std::string& study, const std::string& more = "",
                      const std::vector<std::string>& overrides = {}) const {
    try {
      Study made(write(study, more), overrides);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "";
  }

  fs::path dir_;
};

TEST_F(StudyFile, TakesSettingsOfItselfAndOfTheRecipe) {
  const Study study(write("scheduler = \"asha\""), {"--budget.trials=9", "--train.steps=540"});
  EXPECT_EQ(study.settings().trials, 9);
  EXPECT_EQ(study.max_steps(), 540);
  EXPECT_EQ(study.settings().min_steps, 20);
  EXPECT_TRUE(study.continues());
  const Study cosine(write("scheduler = \"asha\""),
                     {"--budget.trials=9", "--optim.schedule=cosine"});
  EXPECT_FALSE(cosine.continues());
}

TEST_F(StudyFile, ARecipeIsAnsweredWithTheCommandThatTakesIt) {
  try {
    const Study study(recipe(), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("is a recipe and no study: `atoll train " +
                                        recipe().string() + "` runs it"));
  }
}

TEST_F(StudyFile, TheStudyInTheTreeIsOneThatRuns) {
  const fs::path recipes = test_source_dir() / "recipes";
  const Study study(recipes / "kjv-study.toml",
                    {"--study.recipe=" + (recipes / "kjv-demo.toml").string(),
                     "--data.text=" + (dir_ / "text.txt").string()});
  EXPECT_EQ(study.space().dimensions().size(), 3u);
  EXPECT_EQ(study.settings().trials, 12);
  EXPECT_EQ(study.settings().recipe, (recipes / "kjv-demo.toml").string());
  EXPECT_EQ(
      Study(recipes / "kjv-study.toml", {"--study.recipe=" + (recipes / "kjv-demo.toml").string()})
          .max_steps(),
      1600);
}

TEST_F(StudyFile, ReadsItsOwnCopyAsTheSame) {
  const Study study(write("scheduler = \"hyperband\"\nobjective = [\"loss\"]",
                          "[budget]\ntrials = 7\n[rungs]\neta = 2\n"),
                    {});
  write_file(dir_ / "copy.toml", study.to_toml());
  write_file(dir_ / "copied_recipe.toml", study.recipe_toml());
  const Study copy(dir_ / "copy.toml",
                   {"--study.recipe=" + (dir_ / "copied_recipe.toml").string()});
  EXPECT_EQ(copy.identity(), study.identity());
}

TEST_F(StudyFile, RefusesWhatMakesNoStudy) {
  EXPECT_THAT(refusal(""), HasSubstr("the study has no end; set budget.trials"));
  const std::string end = "[budget]\ntrials = 3\n";
  EXPECT_EQ(refusal("", end), "");
  EXPECT_THAT(refusal("serchar = \"gp\"", end), HasSubstr("did you mean study.searcher?"));
  EXPECT_THAT(refusal("searcher = \"tpr\"", end), HasSubstr("did you mean tpe?"));
  EXPECT_THAT(refusal("searcher = \"grid\"", end), HasSubstr("grid needs a list of values"));
  EXPECT_THAT(refusal("objective = []", end), HasSubstr("study.objective is empty"));
  EXPECT_THAT(refusal("objective = [\"seconds_to_loss\"]", end),
              HasSubstr("study.target_loss does not say which"));
  EXPECT_THAT(refusal("objective = [\"task\"]", end), HasSubstr("task.file does not say which"));
  EXPECT_THAT(refusal("scheduler = \"asha\"\nobjective = [\"loss\", \"tokens_per_s\"]", end),
              HasSubstr("asha compares trials by one objective"));
  EXPECT_THAT(refusal("searcher = \"cma-es\"\nobjective = [\"loss\", \"tokens_per_s\"]", end),
              HasSubstr("cma-es knows one objective"));
  EXPECT_THAT(refusal("scheduler = \"pbt\"", "train.batch_size = [8, 16]\n"),
              HasSubstr("pbt changes settings while a run is under way"));
  EXPECT_THAT(refusal("scheduler = \"pbt\"", "model.hidden_size = [64, 128]\n"),
              HasSubstr("leave it out"));
  EXPECT_THAT(refusal("scheduler = \"pbt\"", end), HasSubstr("pbt has pbt.population members"));
  EXPECT_THAT(refusal("", "run.dir = [\"a\", \"b\"]\n" + end),
              HasSubstr("every trial has a directory of its own"));
  EXPECT_THAT(refusal("", "outer.inner_steps = [10, 20]\n" + end),
              HasSubstr("a trial of one island has no outer steps"));
  EXPECT_THAT(refusal("", end, {"--parallel.tp=2"}),
              HasSubstr("a trial has one rank; say how many with study.ranks"));
  EXPECT_THAT(refusal("", end, {"--run.dir=x"}), HasSubstr("say --study.dir"));
  EXPECT_THAT(refusal("scheduler = \"asha\"", "train.steps = [10, 20]\n" + end),
              HasSubstr("asha compares trials at equal steps"));
}

TEST_F(StudyFile, WritesARecipeOfItsOwn) {
  const Study study(write("", "[budget]\ntrials = 3\n"), {});
  const std::string recipe = to_recipe(study.recipe().settings(), {{"optim.lr", "0.002"}}, "tuned");
  EXPECT_THAT(recipe, HasSubstr("[optim]\nlr = 0.002  # tuned\nschedule = \"constant\"\n"));
  EXPECT_THAT(recipe, HasSubstr("[train]\nsteps = 270\n"));
}

}  // namespace
}  // namespace atl::tune
