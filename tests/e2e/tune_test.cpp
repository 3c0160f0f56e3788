// What `atoll tune` refuses, before anything is trained.

#include "tune_fixture.h"

namespace atl::e2e {
namespace {

using ::testing::HasSubstr;

class TuneRefusals : public Tune {
 protected:
  std::string refusal(const std::vector<std::string>& arguments) const {
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_FALSE(std::filesystem::exists(dir()));
    return finished.err;
  }
};

TEST_F(TuneRefusals, SayWhatIsWrongInOneLine) {
  EXPECT_THAT(refusal({"tune"}), HasSubstr("what is to be tuned? give a study file"));
  EXPECT_THAT(refusal({"tune", path("none.toml")}), HasSubstr("there is no study file"));
  EXPECT_THAT(refusal({"tune", path("")}), HasSubstr("is a directory; say `atoll tune resume"));
  EXPECT_THAT(refusal({"tune", "show", path("none")}), HasSubstr("there is no study in"));
  EXPECT_THAT(refusal({"tune", "best", path("")}),
              HasSubstr("has a file study.toml, and no study"));
  EXPECT_THAT(refusal({"tune", "resume", path("")}), HasSubstr("has a file study.toml"));
  EXPECT_THAT(refusal({"tune", "best", path("study.toml")}),
              HasSubstr("is a file, and a study is"));
  write_study("", "optim.lrr = {low = 1, high = 2}\n", "");
  EXPECT_THAT(refusal(command()), HasSubstr("study.toml:6: space.optim.lrr: a recipe has no key "
                                            "optim.lrr; did you mean optim.lr?"));
  write_study("", "", "");
  EXPECT_THAT(refusal(command()), HasSubstr("the space is empty"));
  write_study("", "optim.lr = {low = 2, high = 1}\n", "");
  EXPECT_THAT(refusal(command()), HasSubstr("low must be below high"));
}

// The check computes in f32, whatever a recipe multiplies in.
TEST_F(Tune, CoordinatesAreCheckedOfARecipeWithProductsOf8Bits) {
  std::string text = read_file(recipe());
  const std::size_t at = text.find("[train]\n");
  ASSERT_NE(at, text.npos);
  text.insert(at + 8, "dtype = \"bf16\"\nfp8 = \"blocks\"\n");
  write_file(path("fp8.toml"), text);
  const Finished checked =
      atoll({"tune", "coordcheck", path("fp8.toml"), "--widths=32,64", "--steps=1", "--seeds=1"});
  EXPECT_THAT(checked.out, HasSubstr("largest slope: mup")) << checked.err;
}

}  // namespace
}  // namespace atl::e2e
