#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/ckpt/model_export.h"
#include "atoll/cli/commands.h"
#include "atoll/train/checkpointing.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string model;
  std::string out;
  std::string format = "hf";
  std::string dtype = "source";
  std::string shard_size;
};

int run_hf(const Options& options, const fs::path& from) {
  ckpt::HfExportOptions how;
  if (options.dtype == "f32") how.dtype = Dtype::kF32;
  if (options.dtype == "bf16") how.dtype = Dtype::kBf16;
  if (options.dtype == "f16") how.dtype = Dtype::kF16;
  if (options.dtype == "q8_0") {
    throw user_error("--dtype q8_0 is a type of GGUF files; add --format gguf");
  }
  if (!options.shard_size.empty()) {
    how.shard_bytes = ckpt::parse_bytes(options.shard_size, "--shard-size");
  }
  ckpt::export_hf(from, options.out, how);
  fmt::print("{} is now a Hugging Face directory with the model of {}\n", options.out,
             from.string());
  return 0;
}

int run_gguf(const Options& options, const fs::path& from) {
  if (!options.shard_size.empty()) throw user_error("--shard-size is for --format hf only");
  std::optional<ckpt::GgmlType> type;
  if (options.dtype == "f32") type = ckpt::GgmlType::kF32;
  if (options.dtype == "bf16") type = ckpt::GgmlType::kBf16;
  if (options.dtype == "f16") type = ckpt::GgmlType::kF16;
  if (options.dtype == "q8_0") type = ckpt::GgmlType::kQ8_0;
  const ckpt::GgufExport written = ckpt::export_gguf(from, options.out, type);
  fmt::print("{} is now a GGUF file with the model of {}\n", options.out, from.string());
  if (written.window_cuts_context) {
    fmt::print(
        "its context is {} tokens, the model's attention window: llama.cpp attends to everything, "
        "and computes the same only that far\n",
        written.context_length);
  }
  return 0;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "run directory, checkpoint or Hugging Face directory")
      ->required();
  app.add_option("--out", options->out, "directory (hf) or file (gguf) to make")->required();
  app.add_option("--format", options->format, "hf (default) or gguf, for llama.cpp")
      ->check(CLI::IsMember({"hf", "gguf"}));
  app.add_option("--dtype", options->dtype,
                 "f32, bf16, f16, q8_0 (gguf only), or source (default): as the files were that "
                 "the model came from")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "q8_0", "source"}));
  app.add_option("--shard-size", options->shard_size,
                 "largest file of weights in a directory: 5GB (default), 500MB, 1GiB");
  return [options](const Invocation&) {
    const fs::path from = train::find_model(options->model);
    return options->format == "gguf" ? run_gguf(*options, from) : run_hf(*options, from);
  };
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .summary = "Write a model as a Hugging Face directory or a GGUF file.",
          .example =
              "  atoll export runs/kjv-demo --out kjv-5m\n"
              "  atoll export runs/kjv-demo --out kjv.gguf --format gguf --dtype q8_0",
          .add = add};
}

}  // namespace atl::cli
