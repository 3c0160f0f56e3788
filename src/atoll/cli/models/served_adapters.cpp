#include "atoll/cli/models/served_adapters.h"

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/served_adapter.h"
#include "atoll/nn/adapters/linears.h"
#include "atoll/nn/models/family.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

// `origin`: what a person gave, as messages name it.
serve::StepAdapter open_adapter(const std::string& name, const fs::path& argument,
                                const std::string& origin, const nn::ModelConfig& config) {
  // The checkpoint of a run stays while it is read.
  const model_dir::HeldModel held = model_dir::hold_model(argument);
  if (!model_dir::holds_adapter(held.path)) {
    throw user_error("{}: {} is a whole model; serve it by itself", origin, held.path.string());
  }
  auto adapter = std::make_shared<const model_dir::ServedAdapter>(held.path, config);
  // Runs have checkpoints of the same names, and directories get other files.
  std::string version = checkpoint_of(argument, held.path);
  version += (version.empty() ? "" : ".") + adapter->version();
  return {.name = name, .version = version, .linears = adapter->linears(), .memory = adapter};
}

// Parts of files that a Linear is made of: query, key and value.
std::int64_t parts_of(const nn::Linear& linear) {
  return std::max<std::int64_t>(1, std::ssize(linear.weight().files));
}

}  // namespace

std::vector<serve::StepAdapter> open_adapters(const std::vector<std::string>& words,
                                              const nn::ModelConfig& config) {
  std::vector<serve::StepAdapter> adapters;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals == word.npos || equals + 1 == word.size()) {
      throw user_error("--adapter {}: give NAME=DIRECTORY", word);
    }
    const std::string name = word.substr(0, equals);
    if (std::ranges::find(adapters, name, &serve::StepAdapter::name) != adapters.end()) {
      throw user_error("--adapter {}: there is another {}; name them apart", word, name);
    }
    adapters.push_back(open_adapter(name, word.substr(equals + 1), "--adapter " + word, config));
  }
  return adapters;
}

std::string checkpoint_of(const fs::path& argument, const model_dir::ModelPath& path) {
  const bool is_itself = fs::weakly_canonical(argument) == fs::weakly_canonical(path);
  return is_itself ? "" : path.directory().filename().string();
}

AdapterBounds adapter_bounds(const std::vector<serve::StepAdapter>& adapters,
                             std::int64_t max_adapters, std::int64_t rank,
                             const nn::ModelConfig& config) {
  const std::int64_t count = std::ssize(adapters);
  AdapterBounds bounds = {.max_adapters = std::max(max_adapters, count)};
  if (max_adapters > 0 && count > max_adapters) {
    throw user_error("--max-adapters={}: there are {} with --adapter; allow as many", max_adapters,
                     count);
  }
  for (const serve::StepAdapter& adapter : adapters) {
    bounds.rank = std::max(bounds.rank, adapter.rank());
  }
  if (max_adapters == 0) return bounds;
  const std::unique_ptr<nn::Model> model = nn::build_model(config, {.max_positions = 1});
  for (const nn::Linear* linear : nn::linears_of(*model)) {
    bounds.rank = std::max(bounds.rank, rank * parts_of(*linear));
  }
  return bounds;
}

std::size_t adapter_bytes(const nn::ModelConfig& config, std::int64_t rank) {
  const std::unique_ptr<nn::Model> model = nn::build_model(config, {.max_positions = 1});
  std::int64_t numbers = 0;
  for (const nn::Linear* linear : nn::linears_of(*model)) {
    const Shape& shape = linear->weight().spec.shape;
    numbers += rank * parts_of(*linear) * (shape.dim(0) + shape.dim(1));
  }
  return static_cast<std::size_t>(numbers) * sizeof(float);
}

AdapterDirectory::AdapterDirectory(const fs::path& directory, nn::ModelConfig config,
                                   serve::BatchGenerator& generator)
    : directory_(fs::canonical(directory)), config_(std::move(config)), generator_(generator) {}

fs::path AdapterDirectory::inside(const std::string& path) const {
  const bool has_end = path.find('\0') != path.npos;  // the system would read only what is before
  std::error_code error;
  const fs::path whole = has_end ? fs::path() : fs::canonical(directory_ / path, error);
  const auto [end, at] = std::ranges::mismatch(directory_, whole);
  const bool is_inside = !whole.empty() && end == directory_.end() && at != whole.end();
  // The same for what is outside and what is not there: nobody learns of other files.
  if (error || !is_inside) throw user_error("--adapter-dir of this server has no such adapter");
  return whole;
}

void AdapterDirectory::load(const std::string& name, const std::string& path) {
  generator_.check_adapter_room(name);
  const fs::path directory = inside(path);
  serve::StepAdapter adapter = open_adapter(name, directory, path, config_);
  const std::string version = adapter.version;
  generator_.put_adapter(std::move(adapter));
  log::info("adapter {} is {} ({}) from now on", name, directory.string(), version);
}

bool AdapterDirectory::unload(const std::string& name) {
  const bool was_there = generator_.remove_adapter(name);
  if (was_there) log::info("adapter {} is unloaded", name);
  return was_there;
}

}  // namespace atl::cli
