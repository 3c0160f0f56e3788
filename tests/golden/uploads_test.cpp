// The config.json of published uploads, with the fields that they are known to have, in small
// sizes: atoll reads each, or says why not. tests/oracle/uploads.py compares the logits with those
// of transformers.

#include "fixture.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "atoll/base/json.h"
#include "atoll/model_dir/model_source.h"

namespace atl::golden {
namespace {

// As in families_test.cpp.
constexpr double kLogits = 1e-5;

std::filesystem::path uploads() {
  return test_source_dir() / "tests" / "golden" / "uploads";
}

// One file for each family: a list of {"name", "config"}, and "refused", a part of what atoll says,
// where it does not read it; "only_atoll" says why transformers does not.
nlohmann::json uploads_of(const std::string& family) {
  const std::filesystem::path path = uploads() / (family + ".json");
  return parse_json(read_file(path), path.string());
}

// What the layers say of two rows of tokens, one stage after the other.
void plan(const nn::ModelConfig& config) {
  const auto model = nn::build_model(config, {.max_positions = kLength});
  Spec x = {Dtype::kI32, {kBatch, kLength}};
  for (const auto& stage : model->stages) x = stage->plan(x).y;
}

class UploadsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(UploadsTest, AreReadOrRefusedByName) {
  for (const nlohmann::json& upload : uploads_of(GetParam())) {
    const auto name = upload.at("name").get<std::string>();
    const std::string json = upload.at("config").dump();
    if (!upload.contains("refused")) {
      EXPECT_NO_THROW(plan(nn::parse_config(json, name))) << name;
      continue;
    }
    try {
      plan(nn::parse_config(json, name));
      ADD_FAILURE() << name << " is read";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser) << name;
      EXPECT_THAT(error.what(), ::testing::HasSubstr(upload.at("refused").get<std::string>()));
    }
  }
}

TEST_P(UploadsTest, AreTenOrMore) {
  EXPECT_GE(uploads_of(GetParam()).size(), 10U);
}

std::vector<std::string> family_names() {
  std::vector<std::string> names = {"multimodal"};
  for (const nn::Family& family : nn::families()) names.emplace_back(family.model_type);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, UploadsTest, ::testing::ValuesIn(family_names()),
                         [](const auto& info) { return info.param; });

// Directories that tests/oracle/uploads.py made: a model, and expected.safetensors with tokens and
// what transformers computes from them.
TEST(Uploads, LogitsAreThoseOfTransformers) {
  const char* root = std::getenv("ATOLL_UPLOADS_ORACLE");
  if (root == nullptr) GTEST_SKIP() << "./dev test oracle uploads runs this";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename().string());
    test::TestRun run;
    const Fixture fixture(entry.path());
    train::StateOptions options;
    options.model = model_dir::read_model_config(fixture.path);
    options.micro_batch = kBatch;
    options.context = kLength;
    options.build.max_positions = kLength;
    train::TrainState state(options);
    state.allocate(*run.device);
    model_dir::load_parameters(fixture.path, state.model(), state.store(), run.device->threads());
    test::OwnedTensor<std::int32_t> tokens = fixture.ids("tokens");
    const Batch batch = {.tokens = tokens.view(), .targets = tokens.view()};
    EXPECT_LT(relative_error(logits_of(state.model(), run, batch), fixture.numbers("logits")),
              kLogits);
  }
}

}  // namespace
}  // namespace atl::golden
