#include "atoll/train/config/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::train {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

struct TemporaryRecipe {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("atoll-recipe-{}.toml", ::getpid());

  explicit TemporaryRecipe(std::string_view text) { write_file(path, text); }
  ~TemporaryRecipe() { std::filesystem::remove(path); }
};

constexpr const char* kRecipe =
    "[run]\ndir = 'runs/x'\n[data]\ntext = ['a.txt']\n[train]\nsteps = 7\n";

TEST(Recipe, TheCommandLineWinsOverTheFile) {
  const TemporaryRecipe file(kRecipe);
  const Recipe recipe(file.path, {"--train.steps=9"});
  EXPECT_EQ(recipe.config().train.steps, 9);
  EXPECT_EQ(recipe.config().run.dir, "runs/x");
  EXPECT_EQ(recipe.settings().find("train.steps").origin, "--train.steps");
  EXPECT_THAT(recipe.settings().find("run.dir").origin, EndsWith(".toml:2"));
  EXPECT_EQ(load_recipe(file.path, {}).train.steps, 7);
}

TEST(Recipe, EveryKeyCanBeOverridden) {
  train::TrainConfig config;
  const Settings settings = train::make_settings(config);
  for (const Setting& setting : settings.all()) {
    train::TrainConfig other;
    Settings target = train::make_settings(other);
    std::string value = to_toml(setting.default_value);
    if (std::holds_alternative<std::string>(setting.default_value)) {
      value = std::get<std::string>(setting.default_value);
    }
    EXPECT_NO_THROW(target.override("--" + setting.key + "=" + value)) << setting.key;
    EXPECT_EQ(target.find(setting.key).origin, "--" + setting.key);
  }
}

TEST(Recipe, ItIsCheckedAsAWhole) {
  const TemporaryRecipe file(kRecipe);
  try {
    const Recipe recipe(file.path, {"--optim.warmup_steps=7"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(".toml:6); e.g. --optim.warmup_steps=0"));
  }
}

TEST(Recipe, AStudyIsAnsweredWithTheCommandThatTakesIt) {
  const TemporaryRecipe file(
      "[study]\nrecipe = 'r.toml'\ndir = 's'\n[space]\noptim.lr = [0.1, 0.2]\n");
  try {
    const Recipe recipe(file.path, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              fmt::format("{0} is a study and no recipe: `atoll tune {0}` runs it; the recipe that "
                          "it tunes is r.toml",
                          file.path.string()));
  }
}

TEST(Recipe, ASettingWithoutDashesIsWrittenAsItWasMeant) {
  EXPECT_EQ(as_setting("steps=5"), "--train.steps=5");
  EXPECT_EQ(as_setting("bf16=true"), "--train.dtype=bf16");
  EXPECT_EQ(as_setting("device=gpu"), "--device.kind=cuda");
  EXPECT_EQ(as_setting("num_epochs=3"), "--train.epochs=3");
  EXPECT_EQ(as_setting("load_in_4bit=true"), "") << "nothing corresponds to it";
}

}  // namespace
}  // namespace atl::train
