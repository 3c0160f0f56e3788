#include "atoll/ckpt/hf/directory.h"

#include <gmock/gmock.h>

#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/ckpt/testing.h"

namespace atl::ckpt {
namespace {

using ::testing::HasSubstr;

class HfDirectoryTest : public ::testing::Test {
 protected:
  void write(const std::string& file, std::vector<std::string> names) {
    std::vector<NamedTensor> tensors;
    for (std::string& name : names) {
      tensors.push_back({name, {values_.data(), {Dtype::kF32, {2}}}});
    }
    write_safetensors(directory_ / file, tensors);
  }
  void write_index(const std::string& weight_map) {
    write_file(directory_ / "model.safetensors.index.json",
               "{\"metadata\":{},\"weight_map\":{" + weight_map + "}}");
  }
  std::string error_of() {
    try {
      const HfDirectory opened(directory_.path());
    } catch (const Error& error) {
      kind_ = error.kind();
      return error.what();
    }
    return "opened";
  }

  testing::TemporaryDirectory directory_{"hf"};
  std::vector<float> values_ = {1, 2};
  ErrorKind kind_ = ErrorKind::kInternal;
};

TEST_F(HfDirectoryTest, OpensOneFile) {
  write_file(directory_ / "config.json", "{\"a\":1}");
  write_file(directory_ / "tokenizer.json", "{}");
  write("model.safetensors", {"w", "b"});
  const HfDirectory opened(directory_.path());
  EXPECT_EQ(opened.config_json(), "{\"a\":1}");
  EXPECT_TRUE(opened.has_file("tokenizer.json"));
  EXPECT_FALSE(opened.has_file("generation_config.json"));
  EXPECT_EQ(opened.tensor_names(), (std::vector<std::string>{"b", "w"}));
  std::vector<float> out(2);
  opened.read_f32("w", Tensor(out.data(), {Dtype::kF32, {2}}));
  EXPECT_EQ(out, values_);
  EXPECT_THROW(opened.spec("nothing"), Error);
}

TEST_F(HfDirectoryTest, OpensShards) {
  write_file(directory_ / "config.json", "{}");
  write("model-1.safetensors", {"w"});
  write("model-2.safetensors", {"b", "c"});
  write_index(R"("w":"model-1.safetensors","b":"model-2.safetensors","c":"model-2.safetensors")");
  const HfDirectory opened(directory_.path());
  EXPECT_EQ(opened.tensor_names(), (std::vector<std::string>{"b", "c", "w"}));
  EXPECT_EQ(opened.file_of("c").path().filename(), "model-2.safetensors");
}

TEST_F(HfDirectoryTest, SaysWhatIsMissing) {
  EXPECT_THAT(error_of(), HasSubstr("it has no config.json; one needs"));
  write_file(directory_ / "config.json", "{}");
  EXPECT_THAT(error_of(), HasSubstr("it has no model.safetensors"));
  EXPECT_EQ(kind_, ErrorKind::kUser);
  write_file(directory_ / "pytorch_model.bin", "");
  EXPECT_THAT(error_of(), HasSubstr("save_pretrained"));
  write_index(R"("w":"model-1.safetensors")");
  EXPECT_THAT(error_of(), HasSubstr("it has no model-1.safetensors"));
  EXPECT_EQ(kind_, ErrorKind::kUser);
}

TEST_F(HfDirectoryTest, IndexAndShardsMustAgree) {
  write_file(directory_ / "config.json", "{}");
  write("s.safetensors", {"w", "extra"});
  write_index(R"("w":"s.safetensors")");
  EXPECT_THAT(error_of(), HasSubstr("has tensor \"extra\""));
  EXPECT_EQ(kind_, ErrorKind::kDamaged);
  write_index(R"("w":"s.safetensors","extra":"s.safetensors","none":"s.safetensors")");
  EXPECT_THAT(error_of(), HasSubstr("lists tensor \"none\""));
  write_index(R"("w":1)");
  EXPECT_THAT(error_of(), HasSubstr("is not an index"));
}

TEST_F(HfDirectoryTest, IndexMustNotLeadOutOfTheDirectory) {
  write_file(directory_ / "config.json", "{}");
  write("s.safetensors", {"w"});
  for (const char* file : {"../s.safetensors", "/s.safetensors", "", "..", "a\\\\b"}) {
    write_index(fmt::format(R"("w":"{}")", file));
    EXPECT_THAT(error_of(), HasSubstr("which is not a file beside it")) << file;
    EXPECT_EQ(kind_, ErrorKind::kDamaged);
  }
}

TEST_F(HfDirectoryTest, LinksMustNotLeadOutExceptIntoTheDownloadCache) {
  namespace fs = std::filesystem;
  const fs::path snapshot = directory_ / "models--x/snapshots/abc";
  const fs::path blobs = directory_ / "models--x/blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  write("models--x/blobs/1", {"w"});
  write("outside", {"w"});
  write_file(snapshot / "config.json", "{}");
  write_file(snapshot / "model.safetensors.index.json", R"({"weight_map":{"w":"s"}})");
  fs::create_symlink("../../blobs/1", snapshot / "s");
  EXPECT_TRUE(HfDirectory(snapshot).contains("w"));
  fs::remove(snapshot / "s");
  fs::create_symlink("../../../outside", snapshot / "s");
  try {
    const HfDirectory opened(snapshot);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"s\", a link out of the directory"));
  }
}

TEST_F(HfDirectoryTest, ATensorInTwoShardsOrTwiceInTheIndexIsRefused) {
  write_file(directory_ / "config.json", "{}");
  write("a.safetensors", {"w", "v"});
  write("b.safetensors", {"w"});
  write_index(R"("w":"a.safetensors","v":"b.safetensors")");
  EXPECT_THAT(error_of(), HasSubstr("lists tensor \"v\""));
  write("b.safetensors", {"w", "x"});
  write_index(R"("w":"a.safetensors","v":"a.safetensors","x":"b.safetensors")");
  EXPECT_THAT(error_of(), HasSubstr("has tensor \"w\", which model.safetensors.index.json says"));
  EXPECT_EQ(kind_, ErrorKind::kDamaged);
  write_index(R"("w":"a.safetensors","w":"b.safetensors")");
  EXPECT_THAT(error_of(), HasSubstr("\"w\" stands there twice"));
  write_file(directory_ / "model.safetensors.index.json", std::string(100000, '['));
  EXPECT_THAT(error_of(), HasSubstr("levels deep"));
}

}  // namespace
}  // namespace atl::ckpt
