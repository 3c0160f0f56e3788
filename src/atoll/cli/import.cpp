#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "atoll/ckpt/gguf_import.h"
#include "atoll/cli/commands.h"

namespace atl::cli {

namespace {

struct Options {
  std::string file;
  std::string out;
  std::string dtype = "f32";
};

int run(const Options& options) {
  Dtype dtype = Dtype::kF32;
  if (options.dtype == "bf16") dtype = Dtype::kBf16;
  if (options.dtype == "f16") dtype = Dtype::kF16;
  ckpt::import_gguf(options.file, options.out, dtype);
  fmt::print("{} is now a Hugging Face directory with the model of {}\n", options.out,
             options.file);
  return 0;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("file", options->file, "GGUF file")->required();
  app.add_option("--out", options->out, "directory to make")->required();
  app.add_option("--dtype", options->dtype, "f32 (default: exactly the file's values), bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command import_command() {
  return {.name = "import",
          .summary = "Turn a GGUF file into a Hugging Face directory.",
          .example = "  atoll import model.gguf --out model --dtype bf16",
          .add = add};
}

}  // namespace atl::cli
