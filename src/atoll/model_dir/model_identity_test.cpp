// Copies of a model have one identity, other models another.

#include "atoll/model_dir/model_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;

class Identity : public testing::Test {
 protected:
  ~Identity() override { fs::remove_all(directory_); }

  fs::path model(const std::string& name, const std::string& config, const std::string& weights) {
    const fs::path path = directory_ / name;
    fs::create_directories(path);
    write(path / "config.json", config);
    write(path / "model.safetensors", weights);
    return path;
  }
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  const fs::path directory_ =
      fs::temp_directory_path() / ("atoll-identity-" + std::to_string(::getpid()));
};

TEST_F(Identity, IsOfConfigAndWeightsAlone) {
  const std::string first = model_identity(model("a", "{}", "weights"));
  EXPECT_EQ(first.size(), 32U);
  const fs::path copy = model("b", "{}", "weights");
  write(copy / "README.md", "what nobody computes with");
  EXPECT_EQ(model_identity(copy), first);
  EXPECT_NE(model_identity(model("c", "{ }", "weights")), first);
  EXPECT_NE(model_identity(model("d", "{}", "weightS")), first);
  EXPECT_NE(model_identity(model("e", "{}", "weights.")), first);
}

// Sparse, so that it takes no room.
TEST_F(Identity, LargeFilesAreReadAtPlacesOverAllOfThem) {
  const auto large = [&](const std::string& name, std::uintmax_t size) {
    const fs::path path = model(name, "{}", "begin");
    fs::resize_file(path / "model.safetensors", size);
    return path;
  };
  constexpr std::uintmax_t kSize = std::uintmax_t{300} << 20;
  const std::string first = model_identity(large("a", kSize));
  EXPECT_EQ(model_identity(large("b", kSize)), first);
  EXPECT_NE(model_identity(large("c", kSize + 1)), first);
  const fs::path other = large("d", kSize);
  std::fstream file(other / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(kSize / 2));
  file << std::string(std::size_t{200} << 10, 'x');  // places are 75 KiB apart
  file.close();
  EXPECT_NE(model_identity(other), first);
}

}  // namespace
}  // namespace atl::model_dir
