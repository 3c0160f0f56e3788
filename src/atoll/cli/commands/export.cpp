#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/gguf/k_quants.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/models/text_imatrix.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/adapter_gguf.h"
#include "atoll/model_dir/export.h"
#include "atoll/model_dir/exported_tokenizer.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/new_directory.h"
#include "atoll/model_dir/stored_weights.h"
#include "atoll/parallel/store/store_single.h"
#include "atoll/train/checkpoint/contents.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string model;
  std::string base;
  std::string out;
  std::string format;  // empty: what the name of `out` says
  std::string dtype = "source";
  std::string gguf;     // empty, or the type of a GGUF file's matrices, which sets
                        // format and dtype
  std::string imatrix;  // a file
  std::vector<std::string> imatrix_text;  // or texts to make one from
  std::int64_t imatrix_windows = 100;
  std::string shard_size;
  bool merge = false;
};

// The model of an adapter with the adapter merged, or a quantised model with its weights widened,
// as a directory that is gone when this is.
class Merged {
 public:
  Merged(const model_dir::ModelPath& adapter, const fs::path& out)
      : directory_(out.string() + ".merged", "--out") {
    const nn::ModelConfig config = model_dir::read_model_config(adapter);
    const auto model = nn::build_model(config, {.max_positions = 1});
    parallel::SingleStore store(*model, /*training=*/false);
    MemoryPlan plan;
    store.request(plan);
    plan.place();
    const auto device = open_device({});
    const Arena arena(*device, plan);
    store.bind(arena);
    const std::string quantisation = model_dir::quantisation_of(adapter);
    if (!quantisation.empty()) {
      log::info("the weights are quantised ({}), and are written widened to floats", quantisation);
    }
    model_dir::load_parameters(adapter, *model, store, device->threads());
    write(adapter, config, store);
  }

  const fs::path& path() const { return directory_.temporary(); }

 private:
  void write(const model_dir::ModelPath& adapter, const nn::ModelConfig& config,
             const parallel::ParamStore& store) const {
    train::CarriedFiles carried = train::read_carried(model_dir::base_directory(adapter));
    for (const auto& [name, content] : train::read_carried(adapter)) carried[name] = content;
    for (const auto& [name, content] : carried) write_file(path() / name, content);
    write_file(path() / "config.json", nn::config_json(config));
    std::vector<ckpt::ParamTensor> held;
    for (const nn::Param* param : store.params()) held.push_back({param, param->value});
    ckpt::write_safetensors(path() / "model.safetensors", ckpt::file_sources(held),
                            {{"format", "pt"}});
  }

  model_dir::NewDirectory directory_;  // never committed: it goes with this
};

bool wants_imatrix(const Options& options) {
  return !options.imatrix.empty() || !options.imatrix_text.empty();
}

// The adapter alone, as llama.cpp reads it.
int run_adapter_gguf(const Options& options, const model_dir::ModelPath& model) {
  if (!options.shard_size.empty() || wants_imatrix(options)) {
    throw user_error(
        "{} is an adapter: --shard-size and importance matrices are for "
        "whole models; add --merge "
        "to export it with its base model",
        model.string());
  }
  std::optional<ckpt::GgufMix> mix;
  if (options.dtype != "source") mix = ckpt::find_gguf_mix(options.dtype);
  model_dir::export_adapter_gguf(model, options.out, mix);
  fmt::print("{} is now a GGUF file with the adapter of {}\n", options.out, model.string());
  return 0;
}

// The adapter alone, as PEFT reads it.
int run_adapter(const Options& options, const model_dir::ModelPath& model) {
  const fs::path& from = model;
  if (options.format == "gguf") return run_adapter_gguf(options, model);
  if (options.dtype != "source" || !options.shard_size.empty()) {
    throw user_error(
        "{} is an adapter: --dtype and --shard-size "
        "are for whole models and GGUF files; add --merge "
        "to "
        "export it with its base model",
        from.string());
  }
  model_dir::NewDirectory out(options.out, "--out");
  model_dir::copy_durably(from / model_dir::kAdapterWeightsFile,
                          out.temporary() / model_dir::kAdapterWeightsFile);
  const fs::path config = from / model_dir::kAdapterConfigFile;
  if (model.base().empty()) {
    model_dir::copy_durably(config, out.temporary() / model_dir::kAdapterConfigFile);
  } else {
    write_file(out.temporary() / model_dir::kAdapterConfigFile,
               model_dir::with_base(read_file(config), config.string(),
                                    fs::absolute(model.base()).string()));
  }
  for (const char* name : ckpt::carried_file_names()) {
    if (path_exists(from / name)) model_dir::copy_durably(from / name, out.temporary() / name);
  }
  out.commit();
  fmt::print("{} is now a PEFT directory with the adapter of {}\n", options.out, from.string());
  return 0;
}

int run_hf(const Options& options, const fs::path& from, bool is_of_run, bool is_merged) {
  model_dir::HfExportOptions how;
  model_dir::ExportedTokenizer tokenizer;
  if (is_of_run) tokenizer = model_dir::exported_tokenizer(from);
  how.files = tokenizer.files;
  if (options.dtype == "f32") how.dtype = Dtype::kF32;
  if (options.dtype == "bf16") how.dtype = Dtype::kBf16;
  if (options.dtype == "f16") how.dtype = Dtype::kF16;
  if (!how.dtype && options.dtype != "source") {
    throw user_error(
        "--dtype {} is a type of GGUF files; give --out a name "
        "that ends in .gguf",
        options.dtype);
  }
  if (wants_imatrix(options)) {
    throw user_error("importance matrices are for GGUF files; add --gguf=Q4_K_M");
  }
  if (!options.shard_size.empty()) {
    how.shard_bytes = ckpt::parse_bytes(options.shard_size, "--shard-size");
  } else if (is_merged) {
    how.shard_bytes = ckpt::kDefaultShardBytes;  // it lies in one file, whatever its size
  }
  model_dir::export_hf(from, options.out, how);
  fmt::print("{} is now a Hugging Face directory with the model of {}\n", options.out,
             options.model);
  if (!tokenizer.note.empty()) log::warning("{}", tokenizer.note);
  return 0;
}

void say_result(const Options& options, const model_dir::GgufExport& written) {
  fmt::print("{} is now a GGUF file with the model of {}\n", options.out, options.model);
  if (written.window_cuts_context) {
    fmt::print(
        "its context is {} tokens, the model's attention window: "
        "llama.cpp attends to everything, "
        "and computes the same only that far\n",
        written.context_length);
  }
  if (written.no_importance > 0) {
    log::warning("the importance matrix lacks {} matrices; they are written without",
                 written.no_importance);
  }
}

int run_gguf(const Options& options, const fs::path& from) {
  if (!options.shard_size.empty()) throw user_error("--shard-size is for --format hf only");
  model_dir::GgufExportOptions how;
  if (options.dtype != "source") how.mix = ckpt::find_gguf_mix(options.dtype);
  std::optional<ckpt::Imatrix> imatrix;
  if (wants_imatrix(options)) {
    if (!how.mix || !ckpt::is_k_type(how.mix->base)) {
      throw user_error(
          "importance matrices are for types with integers to "
          "choose, and not for {}; use "
          "--gguf=Q4_K_M",
          options.dtype);
    }
    imatrix = options.imatrix.empty()
                  ? imatrix_of_text(from, options.imatrix_text, options.imatrix_windows)
                  : ckpt::read_imatrix(options.imatrix);
    how.imatrix = &*imatrix;
  }
  say_result(options, model_dir::export_gguf(from, options.out, how));
  return 0;
}

// The types of GGUF files as people write them on a command line.
std::vector<std::string> dtype_words() {
  std::vector<std::string> words;
  for (const ckpt::GgufMix& mix : ckpt::gguf_mixes()) {
    std::string& word = words.emplace_back(mix.name);
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

// hf or gguf: as --format says, or the ending of --out.
std::string choose_format(const Options& options) {
  std::string ending = fs::path(options.out).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool is_gguf = ending == ".gguf";
  if (options.format == "hf" && is_gguf) {
    throw user_error(
        "--format hf makes a directory, and --out {} is called "
        "like a GGUF file; {}",
        options.out, "leave --format out, or give another name");
  }
  const std::string format = !options.format.empty() ? options.format : is_gguf ? "gguf" : "hf";
  for (const char* other : {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".zip", ".tar"}) {
    if (format != "hf" || ending != other) continue;
    throw user_error(
        "--out {} is called like a file, and a Hugging Face "
        "directory is made; give the name of a "
        "directory, or of a file that ends in .gguf",
        options.out);
  }
  return format;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("model", options->model, "run directory, checkpoint or Hugging Face directory")
      .required();
  parser.add_option("--base", options->base, model_dir::kBaseHelp);
  parser.add_option("--out", options->out, "directory (hf) or file (*.gguf) to make").required();
  parser
      .add_option("--format", options->format,
                  "hf or gguf, for llama.cpp; default: gguf when --out ends in .gguf")
      .one_of({"hf", "gguf"});
  std::vector<std::string> words = dtype_words();
  parser
      .add_option("--gguf", options->gguf,
                  "type of a GGUF file, in any case: the same as --format gguf "
                  "--dtype TYPE")
      .one_of(words)
      .excludes("--format");
  words.emplace_back("source");
  parser
      .add_option("--dtype", options->dtype,
                  "f32, bf16, f16, a type of GGUF files, or source (default): "
                  "as the files were "
                  "that the model came from")
      .one_of(words)
      .excludes("--gguf");
  parser.add_option("--imatrix", options->imatrix,
                    "importance matrix of the model, made by llama-imatrix "
                    "(GGUF or .dat): K types "
                    "then keep what matters for its text");
  const Argument text = parser
                            .add_option("--imatrix-text", options->imatrix_text,
                                        "texts, or directories of them, to make such a matrix "
                                        "from by running the "
                                        "model")
                            .excludes("--imatrix");
  parser
      .add_option("--imatrix-windows", options->imatrix_windows,
                  "so many windows of 512 tokens of the texts")
      .range(std::int64_t{1}, std::int64_t{1} << 40)
      .show_default()
      .needs(text);
  parser.add_option("--shard-size", options->shard_size,
                    "largest file of weights in a directory: 5GB (default), 500MB, 1GiB");
  parser.add_flag("--merge", options->merge, "adapters: merge into the base model and export that");
  return [options](const Invocation&) {
    if (!options->gguf.empty()) {
      options->format = "gguf";
      options->dtype = options->gguf;
    }
    options->format = choose_format(*options);
    const model_dir::HeldModel model = model_dir::hold_model(options->model, options->base);
    fs::path from = model.path;
    // Of others the files are their makers'.
    const bool is_of_run = path_exists(from / "trainer.json");
    std::optional<Merged> merged;
    if (model_dir::holds_adapter(from)) {
      if (!options->merge) return run_adapter(*options, model.path);
      merged.emplace(model.path, options->out);
      from = merged->path();
    } else if (options->merge) {
      throw user_error("--merge is for adapters, and {} is a whole model; leave it out",
                       from.string());
    } else if (!model_dir::quantisation_of(model.path).empty()) {
      merged.emplace(model.path, options->out);
      from = merged->path();
    }
    return options->format == "gguf" ? run_gguf(*options, from)
                                     : run_hf(*options, from, is_of_run, merged.has_value());
  };
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .summary = "Write a model as a Hugging Face directory or a GGUF file.",
          .example =
              "  atoll export runs/kjv-demo --out kjv-5m\n"
              "  atoll export runs/kjv-demo --out kjv.gguf --gguf Q4_K_M\n"
              "  atoll export runs/my-lora --out my-model --merge\n"
              "  atoll export runs/my-lora --out my-lora.gguf",
          .stray = "what to make is given with --out",
          .add = add};
}

}  // namespace atl::cli
