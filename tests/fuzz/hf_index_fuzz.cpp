#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/safetensors/writer.h"
#include "fuzz.h"

namespace {

namespace fs = std::filesystem;

// model/ with two shards, and one above it that no index may reach.
class ModelDirectory {
 public:
  ModelDirectory() {
    fs::create_directory(directory_ / "model");
    directory_.write("model/config.json", "{}");
    for (const char* name : {"model/a.safetensors", "model/b.safetensors", "outside.safetensors"}) {
      float value = 1;
      const atl::ckpt::NamedTensor tensors[] = {
          {fs::path(name).stem().string(), atl::Tensor(&value, {atl::Dtype::kF32, {1}})}};
      atl::ckpt::write_safetensors(directory_ / name, tensors);
    }
    fs::create_symlink("../outside.safetensors", path() / "link.safetensors");
  }
  fs::path path() const { return directory_ / "model"; }
  void write(const std::string& name, std::string_view content) const {
    directory_.write("model/" + name, content);
  }

 private:
  atl::fuzz::Directory directory_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelDirectory model;
  const std::string_view text = atl::fuzz::text(data, size);
  model.write("model.safetensors.index.json", text);
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::ckpt::HfDirectory directory(model.path());
    for (const auto& file : directory.files()) {
      if (fs::canonical(file.path()).parent_path() != fs::canonical(model.path())) std::abort();
    }
  });
  return 0;
}
