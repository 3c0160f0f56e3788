#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands.h"
#include "atoll/data/input_format.h"
#include "atoll/hub/dataset.h"
#include "atoll/hub/model.h"
#include "atoll/hub/patterns.h"
#include "atoll/hub/snapshot.h"

namespace atl::cli {

namespace {

struct Options {
  std::string name;
  std::string revision;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  bool all = false;
  bool print_path = false;
};

hub::RepoName parse(const Options& options) {
  const auto name = hub::parse_name(options.name, hub::RepoKind::kModel);
  if (!name) {
    throw user_error(
        "{} is no name of the hub: write ORG/NAME, ORG/NAME:Q4_K_M for one quantisation of a GGUF "
        "model, or hf://datasets/ORG/NAME",
        options.name);
  }
  hub::RepoName result = *name;
  if (options.revision.empty()) return result;
  if (result.revision != "main" && result.revision != options.revision) {
    throw user_error("{} names the revision {}, and --revision is {}", options.name,
                     result.revision, options.revision);
  }
  if (!hub::is_safe_path(options.revision)) {
    throw user_error("--revision is {}, which is no branch, tag or commit", options.revision);
  }
  result.revision = options.revision;
  return result;
}

bool is_below(const std::string& path, const std::string& directory) {
  return directory.empty() || path == directory || path.starts_with(directory + "/");
}

std::vector<hub::RepoFile> choose(const Options& options, const hub::RepoName& name,
                                  const std::vector<hub::RepoFile>& files,
                                  const hub::ReadRepoFile& read) {
  if (!options.all && options.include.empty()) {
    std::vector<hub::RepoFile> chosen =
        name.kind == hub::RepoKind::kModel
            ? hub::choose_model_files(name, files, read)
            : hub::choose_data_files(name, files, data::is_searched_for_by_name);
    std::erase_if(chosen, [&](const hub::RepoFile& file) {
      return !hub::is_wanted(file.path, {}, options.exclude);
    });
    return chosen;
  }
  std::vector<hub::RepoFile> chosen;
  for (const hub::RepoFile& file : files) {
    if (is_below(file.path, name.path) &&
        hub::is_wanted(file.path, options.include, options.exclude)) {
      chosen.push_back(file);
    }
  }
  if (!chosen.empty()) return chosen;
  std::vector<std::string> some;
  for (const hub::RepoFile& file : files) {
    constexpr std::size_t kShown = 8;
    if (some.size() < kShown) some.push_back(file.path);
  }
  throw user_error("of {} no file is wanted; it has {}: {}{}", name.text(),
                   counted(static_cast<std::int64_t>(files.size()), "file"), fmt::join(some, ", "),
                   some.size() < files.size() ? ", ..." : "");
}

int run(const Options& options) {
  const hub::RepoName name = parse(options);
  const hub::HubSettings settings = hub::read_settings();
  const hub::Snapshot snapshot = hub::get_snapshot(
      settings, name, [&](const std::vector<hub::RepoFile>& files, const hub::ReadRepoFile& read) {
        return choose(options, name, files, read);
      });
  // A GGUF file is what its variant means; the directory of its parts says less.
  const bool is_file =
      snapshot.files.size() == 1 && (!name.variant.empty() || snapshot.files[0].path == name.path);
  const std::filesystem::path path = snapshot.below(is_file ? snapshot.files[0].path : name.path);
  if (options.print_path) {
    fmt::print("{}\n", path.string());
    return 0;
  }
  std::uint64_t bytes = 0;
  for (const hub::RepoFile& file : snapshot.files) bytes += file.size;
  fmt::print("{} at {}: {}, {} ({} came over the network)\n{}\n", name.text(),
             snapshot.commit.substr(0, 12),
             counted(static_cast<std::int64_t>(snapshot.files.size()), "file"), format_bytes(bytes),
             format_bytes(snapshot.fetched_bytes), path.string());
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser
      .add_option("name", options->name,
                  "ORG/NAME, ORG/NAME@REVISION, ORG/NAME:Q4_K_M, or hf://datasets/ORG/NAME")
      .required();
  parser.add_option("--revision", options->revision, "branch, tag or commit (default: main)");
  parser
      .add_option("--include", options->include,
                  "pattern of files to get, such as '*.json' (* is also any slash); several times")
      .one_value_each();
  parser.add_option("--exclude", options->exclude, "pattern of files not to get; several times")
      .one_value_each();
  parser.add_flag("--all", options->all,
                  "all files, not only those that atoll reads of a model or a data set");
  parser.add_flag("--print-path", options->print_path, "print where the files are, and no more");
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command get_command() {
  return {.name = "get",
          .summary = "Get a model or a data set of the Hugging Face hub.",
          .example =
              "  atoll get HuggingFaceTB/SmolLM2-135M\n"
              "  atoll get org/model --revision v1.0 --include '*.json'\n"
              "  atoll get org/model-GGUF:Q4_K_M\n"
              "  atoll get hf://datasets/org/texts --print-path",
          .stray = "a second name needs a second `atoll get`",
          .add = add};
}

}  // namespace atl::cli
