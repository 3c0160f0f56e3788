#include "atoll/ckpt/gguf/tokenizer.h"
#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/text/tokenizer.h"
#include "fuzz.h"

namespace {

// A model directory whose tokenizer.json is replaced again and again.
class ModelDirectory {
 public:
  ModelDirectory() {
    directory_.write("config.json", "{}");
    directory_.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
    float value = 1;
    const atl::ckpt::NamedTensor tensors[] = {{"a", atl::Tensor(&value, {atl::Dtype::kF32, {1}})}};
    atl::ckpt::write_safetensors(directory_ / "model.safetensors", tensors);
  }
  void export_tokenizer(std::string_view json) const {
    directory_.write("tokenizer.json", json);
    (void)atl::ckpt::tokenizer_to_gguf(atl::ckpt::HfDirectory(directory_.path()), 1024);
  }

 private:
  atl::fuzz::Directory directory_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelDirectory model;
  const std::string_view text = atl::fuzz::text(data, size);
  bool accepted = false;
  atl::fuzz::expect_result_or_refusal([&] {
    const auto tokenizer = atl::Tokenizer::from_json(text, "input");
    accepted = true;
    const auto ids = tokenizer.encode("Hello, w\xc3\xb6rld 123\n\t\xff <|endoftext|>", {});
    (void)tokenizer.decode(ids);
    (void)tokenizer.end_of_text();
  });
  if (accepted) atl::fuzz::expect_result_or_refusal([&] { model.export_tokenizer(text); });
  return 0;
}
