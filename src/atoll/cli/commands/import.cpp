#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/cli/commands.h"
#include "atoll/hub/model.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/adapter_gguf.h"
#include "atoll/model_dir/gguf_import.h"
#include "atoll/model_dir/held_model.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string file;
  std::string out;
  std::string base;
  std::string dtype = "f32";
};

// Says what was given instead of a GGUF file, and what to do with that.
void refuse_others(const fs::path& path) {
  std::error_code ignored;
  if (!path_exists(path)) {
    throw user_error("there is no file {}{}", path.string(), advice_for_absent(path));
  }
  if (fs::is_directory(path, ignored)) {
    throw user_error(
        "{} is a directory, and a GGUF file is imported; {}", path.string(),
        fs::exists(path / "config.json", ignored) || fs::exists(path / "checkpoints", ignored)
            ? "a Hugging Face directory or a run is a model to every command as it is"
            : "name the file in it");
  }
  const MappedFile file(path);
  const std::string_view content(reinterpret_cast<const char*>(file.bytes().data()),
                                 file.bytes().size());
  if (content.starts_with("GGUF")) return;
  const char* what = "give a file that begins with \"GGUF\"";
  if (content.empty()) what = "it is empty: was its download cut short?";
  if (content.starts_with("version https://git-lfs")) {
    what = "it is a pointer of git-lfs; get the file itself with `git lfs pull`";
  }
  if (content.starts_with("PK\x03\x04") || content.starts_with("\x80\x02")) {
    what =
        "it looks like PyTorch's; save the model as safetensors with transformers "
        "(save_pretrained), and give that directory to other commands as it is";
  }
  if (path.extension() == ".safetensors") {
    what =
        "its directory, with config.json and tokenizer.json in it, is a model that every command "
        "takes as it is";
  }
  for (const char* old : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (content.starts_with(old)) what = "it is of a format before GGUF; have it converted anew";
  }
  throw user_error("{} is not a GGUF file; {}", path.string(), what);
}

// An adapter says nothing of its base model but the architecture.
int run_adapter(const Options& options, Dtype dtype) {
  if (options.base.empty()) {
    throw user_error("{} is an adapter; name the model that it adapts with --base, as a directory",
                     options.file);
  }
  const model_dir::HeldModel base = model_dir::hold_model(options.base);
  if (model_dir::holds_adapter(base.path)) {
    throw user_error("the base model {} is an adapter itself; merge that one first",
                     base.path.string());
  }
  model_dir::import_adapter_gguf(options.file, base.path, options.out, dtype);
  fmt::print("{} is now a PEFT directory with the adapter of {}\n", options.out, options.file);
  return 0;
}

int run(const Options& given) {
  Options options = given;
  options.file = hub::local_model(given.file).string();
  refuse_others(options.file);
  if (fs::path(options.out).extension() == ".gguf") {
    throw user_error("--out {}: a directory is made; give a name without .gguf", options.out);
  }
  std::optional<Dtype> dtype = Dtype::kF32;
  if (options.dtype == "stored") dtype.reset();
  if (options.dtype == "bf16") dtype = Dtype::kBf16;
  if (options.dtype == "f16") dtype = Dtype::kF16;
  if (model_dir::is_gguf_adapter(options.file)) {
    if (dtype) return run_adapter(options, *dtype);
    throw user_error("--dtype stored: {} is an adapter, and only a base model stays in its bits",
                     options.file);
  }
  if (!options.base.empty()) {
    throw user_error("{} is a whole model, and a base model is for adapters; leave --base out",
                     options.file);
  }
  model_dir::import_gguf(options.file, options.out, dtype);
  fmt::print("{} is now a Hugging Face directory with the model of {}\n", options.out,
             options.file);
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser
      .add_option("file", options->file,
                  "GGUF file, or one of the Hugging Face hub: ORG/NAME:Q4_K_M")
      .required();
  parser.add_option("--out", options->out, "directory to make").required();
  parser.add_option("--base", options->base,
                    "of an adapter: the model that it adapts, a directory or a run");
  parser
      .add_option(
          "--dtype", options->dtype,
          "f32 (default: exactly the file's values), bf16, f16, or stored: in the bits that "
          "the file has, as the frozen base of adapters (for atoll alone)")
      .one_of({"f32", "bf16", "f16", "stored"});
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command import_command() {
  return {.name = "import",
          .summary = "Turn a GGUF file into a Hugging Face directory.",
          .example =
              "  atoll import model.gguf --out model --dtype bf16\n"
              "  atoll import lora.gguf --base model --out adapter",
          .stray = "what to make is given with --out",
          .add = add};
}

}  // namespace atl::cli
