#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "atoll/base/file.h"
#include "atoll/cli/commands.h"
#include "atoll/train/checkpointing.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

// What of a checkpoint is the run's alone and not the model's.
bool belongs_to_model(const std::string& name) {
  return name != "optimizer.safetensors" && name != "trainer.json" && name != "manifest.json";
}

void copy_durably(const fs::path& from, const fs::path& to) {
  const MappedFile source(from);
  AtomicFile file(to);
  file.write(source.bytes().data(), source.bytes().size());
  file.commit();
}

int run(const std::string& model, const std::string& out) {
  const fs::path from = train::find_model(model);
  // "dir/" is "dir": the temporary directory must stand beside it, not in it.
  fs::path to = fs::path(out).lexically_normal();
  if (!to.has_filename()) to = to.parent_path();
  if (to.empty() || to == ".") throw user_error("--out must name a directory to make");
  if (fs::exists(to)) {
    throw user_error("{} is there already; name a directory that is not, or remove it", out);
  }
  const fs::path parent = to.has_parent_path() ? to.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(parent, error);
  // Whole or not at all: filled under another name first.
  fs::path temporary = to;
  temporary += fmt::format(".tmp-{}", ::getpid());
  if (!error) fs::create_directory(temporary, error);
  if (error) throw user_error("cannot make the directory {}: {}", out, error.message());
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && belongs_to_model(name)) {
        copy_durably(entry.path(), temporary / name);
      }
    }
    fs::rename(temporary, to);
    sync_directory(parent);
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  fmt::print("{} is now a Hugging Face directory with the model of {}\n", out, from.string());
  return 0;
}

Action add(CLI::App& app) {
  const auto model = std::make_shared<std::string>();
  const auto out = std::make_shared<std::string>();
  app.add_option("model", *model, "run directory or checkpoint")->required();
  app.add_option("--out", *out, "directory to make")->required();
  return [model, out](const Invocation&) { return run(*model, *out); };
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .summary = "Write a run's model as a Hugging Face directory.",
          .example = "  atoll export runs/kjv-demo --out kjv-5m",
          .add = add};
}

}  // namespace atl::cli
