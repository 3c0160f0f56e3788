#include "atoll/ckpt/gguf/gguf.h"

#include <map>
#include <vector>

#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/tokenizer.h"
#include "atoll/model_dir/gguf_import.h"
#include "atoll/text/tokenizer.h"
#include "fuzz.h"

namespace {

void read_tensors(const atl::ckpt::GgufFile& file, std::size_t size) {
  for (const atl::ckpt::GgufTensor& tensor : file.tensors()) {
    if (tensor.begin > tensor.end || tensor.end > size) std::abort();  // it must lie in the file
    const atl::ckpt::FloatRows rows = file.rows(tensor);
    std::vector<float> row(static_cast<std::size_t>(rows.width()));
    const atl::ckpt::RowReader reader = rows.open();
    for (std::int64_t i = 0; i < rows.num_rows(); ++i) reader(i, row);
  }
}

// Whether the metadata gives a config.json and tokenizer files.
bool translate(const atl::ckpt::GgufFile& file) {
  bool whole = false;
  atl::fuzz::expect_result_or_refusal([&] {
    (void)atl::ckpt::config_from_gguf(file, atl::Dtype::kF32);
    (void)atl::ckpt::gguf_shape(file);
    whole = true;
  });
  atl::fuzz::expect_result_or_refusal([&] {
    const auto files = atl::ckpt::tokenizer_from_gguf(file);
    if (const auto json = files.find("tokenizer.json"); json != files.end()) {
      const auto tokenizer = atl::Tokenizer::from_json(json->second, "tokenizer.json");
      (void)tokenizer.decode(tokenizer.encode("Hello, w\xc3\xb6rld 123\n\t\xff <s>"));
    }
  });
  return whole;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  const atl::fuzz::MemoryFile input(data, size);
  bool whole = false;
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::ckpt::GgufFile file(input.path());
    read_tensors(file, size);
    whole = translate(file);
  });
  // Writes and syncs a directory: only for what has a chance to get there.
  if (whole) {
    const auto out = directory / "out";
    atl::fuzz::expect_result_or_refusal(
        [&] { atl::model_dir::import_gguf(input.path(), out, atl::Dtype::kF32); });
    std::filesystem::remove_all(out);
  }
  return 0;
}
