// What atoll itself wrote beside tensors and tokens, and someone may have changed.

#include "atoll/ckpt/manifest.h"

#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/data/corpus.h"
#include "fuzz.h"

namespace {

// A model directory without source_dtypes.json.
class ModelDirectory {
 public:
  ModelDirectory() {
    directory_.write("config.json", "{}");
    float value = 1;
    const atl::ckpt::NamedTensor tensors[] = {
        {"x.a", atl::Tensor(&value, {atl::Dtype::kF32, {1}})}};
    atl::ckpt::write_safetensors(directory_ / "model.safetensors", tensors);
  }
  void read_source_dtypes(std::string_view json) const {
    directory_.write("source_dtypes.json", json);
    (void)atl::ckpt::HfDirectory(directory_.path()).source_dtypes_json();
  }

 private:
  atl::fuzz::Directory directory_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelDirectory model;
  const std::string_view text = atl::fuzz::text(data, size);
  atl::fuzz::expect_result_or_refusal([&] { model.read_source_dtypes(text); });
  atl::fuzz::expect_result_or_refusal([&] {
    const auto manifest = atl::data::CorpusManifest::from_json(std::string(text), "input");
    (void)atl::data::CorpusManifest::from_json(manifest.to_json(), "again");
  });
  atl::fuzz::expect_result_or_refusal([&] { (void)atl::ckpt::parse_manifest(text, "input"); });
  return 0;
}
