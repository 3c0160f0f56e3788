#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/adapter_arithmetic.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/model_dir/new_rows.h"
#include "atoll/nn/adapters/lora_tokens.h"
#include "atoll/parallel/store/whole_state.h"

namespace atl::model_dir {

namespace {

// The parameters of a model in the order in which they are visited.
class Params final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    if (std::find(all.begin(), all.end(), &param) == all.end()) all.push_back(&param);
  }
  std::vector<const nn::Param*> all;
};

// What files must have: the parameters of the whole model, also where this rank of a pipeline has a
// part of it.
std::vector<const nn::Param*> params_of_files(const nn::Model* whole,
                                              std::span<const nn::Param* const> here) {
  if (whole == nullptr) return {here.begin(), here.end()};
  Params params;
  whole->visit(params);
  return params.all;
}

// What PEFT calls a module that it has wrapped in its own.
constexpr std::string_view kWrapper = ".base_layer";

// The parameters of a model as its base directory calls them, where that is not as they are called
// themselves: what a run trains whole beside adapters has PEFT's names, and the head of a model
// that an adapter unties is there under the embedding's name.
class BaseNames {
 public:
  BaseNames(const ckpt::HfDirectory& base, std::span<const nn::Param* const> params) {
    for (const nn::Param* param : params) {
      auto renamed = std::make_unique<nn::Param>(*param);
      bool is_renamed = false;
      for (nn::FileTensor& file : renamed->files) {
        if (file.name.starts_with(nn::kPeftPrefix)) {
          file.name.erase(0, std::string_view(nn::kPeftPrefix).size());
          const std::size_t wrapper = file.name.rfind(".base_layer.");
          if (wrapper != std::string::npos) file.name.erase(wrapper, kWrapper.size());
          is_renamed = true;
        }
        if (!nn::is_head_weight(file.name) || base.contains(file.name)) continue;
        file.name = (params_.empty() ? *renamed : *params_.front()).files.front().name;
        is_renamed = true;
      }
      params_.push_back(is_renamed ? renamed.get() : param);
      if (is_renamed) renamed_[param] = std::move(renamed);
    }
  }
  std::span<const nn::Param* const> params() const { return params_; }
  const nn::Param& of(const nn::Param& param) const {
    const auto at = renamed_.find(&param);
    return at == renamed_.end() ? param : *at->second;
  }

 private:
  std::map<const nn::Param*, std::unique_ptr<nn::Param>> renamed_;
  std::vector<const nn::Param*> params_;  // the embedding first
};

// The parameters of a model directory, an adapter merged in.
class Source {
 public:
  // `params`: all of the model's own.
  Source(const ModelPath& directory, nn::Model& model, std::span<const nn::Param* const> params)
      : base_(base_directory(directory)),
        tensors_(nn::model_tensors(model)),
        whole_(model.elsewhere_count.total > 0 ? nn::build_model(model.config, {.max_positions = 1})
                                               : nullptr),
        old_vocab_(nn::parse_config(base_.config_json(), "config.json").vocab_size),
        grows_(!holds_adapter(directory) && old_vocab_ < model.config.vocab_size),
        names_(base_, params),
        found_(base_, params_of_files(whole_.get(), names_.params())) {
    if (whole_ && holds_adapter(directory)) {
      throw user_error(
          "{} is an adapter, which cannot be merged on ranks that have a part of the model each "
          "(parallel.pp); merge it before with `atoll export --merge`",
          directory.string());
    }
    if (!holds_adapter(directory)) return;
    for (const nn::Param* param : params) {
      if (!param->cut) continue;
      throw user_error(
          "{} is an adapter, which cannot be merged while ranks share each product (parallel.tp); "
          "merge it before with `atoll export --merge`",
          directory.string());
    }
    merge_.emplace(directory, model);
  }
  // Of a parameter that is packed: nothing is merged into it.
  void read_packed(const nn::Param& param) const {
    ATOLL_CHECK(!merge_ && !grows(param), "{}: a change of packed weights", param.name);
    const nn::Param& named = names_.of(param);
    if (&named == &param) return found_.read_packed(param);
    nn::Param renamed = named;
    renamed.packed = param.packed;
    found_.read_packed(renamed);
  }
  void read(const nn::Param& param, const Tensor& whole) const {
    if (grows(param)) return read_grown(param, whole);
    if (!merge_ || !merge_->replaces(param)) {
      found_.read({&names_.of(param), whole});
    }
    if (merge_) merge_->add_to(param, whole);
  }
  // DoRA begins with the lengths that the rows of the weights have.
  void read_lengths(const nn::Param& lengths, const Tensor& whole) const {
    for (const nn::FileTensor& file : lengths.files) {
      const std::string name = nn::weight_of_lengths(file);
      const auto at =
          std::find_if(tensors_.begin(), tensors_.end(),
                       [&](const nn::ModelTensor& tensor) { return tensor.file.name == name; });
      ATOLL_CHECK(at != tensors_.end(), "{}", name);
      nn::Param weight;
      weight.files = {at->file};
      weight.files.front().row_begin = 0;
      weight.spec = {whole.dtype(), {file.rows, at->param->spec.shape.dim(1)}};
      std::vector<std::byte> memory(weight.spec.bytes());
      const Tensor rows(memory.data(), weight.spec);
      found_.read({&weight, rows});
      row_lengths(rows, whole.rows(file.row_begin, file.row_begin + file.rows));
    }
  }

  // Rows of tokens that are trained by themselves begin as the table's.
  void read_token_rows(std::span<const std::int64_t> tokens, const Tensor& rows) const {
    const auto at = std::ranges::find_if(names_.params(), [](const nn::Param* param) {
      return param->is_embedding && !param->is_position &&
             !nn::is_head_weight(param->files.front().name);
    });
    ATOLL_CHECK(at != names_.params().end(), "no embedding");
    const nn::Param& table = **at;
    std::vector<std::byte> memory(table.spec.bytes());
    const Tensor whole(memory.data(), table.spec);
    read(table, whole);
    nn::Slice slice = {{}, 0, table.spec.shape.dim(1)};
    for (const std::int64_t token : tokens) slice.rows.push_back({token, 1});
    nn::copy_slice(slice, whole, rows);
  }

 private:
  // Whether the model has rows of a parameter that the directory lacks, for new tokens.
  bool grows(const nn::Param& param) const {
    return grows_ && param.is_embedding && !param.is_position;
  }
  void read_grown(const nn::Param& param, const Tensor& whole) const {
    nn::Param old = names_.of(param);
    old.spec.shape = {old_vocab_, whole.dim(1)};
    for (nn::FileTensor& file : old.files) file.rows = old_vocab_;
    found_.read({&old, whole.rows(0, old_vocab_)});
    fill_new_rows(whole, old_vocab_);
  }

  ckpt::HfDirectory base_;
  std::vector<nn::ModelTensor> tensors_;
  std::unique_ptr<nn::Model> whole_;  // null: the model is whole itself
  std::int64_t old_vocab_ = 0;
  bool grows_ = false;
  BaseNames names_;
  ckpt::DirectoryParams found_;
  std::optional<AdapterMerge> merge_;
};

}  // namespace

namespace {

bool has_lengths(const nn::Param& param) {
  return !nn::weight_of_lengths(param.files.front()).empty();
}

// Whether what an adapter adds begins as the base model says.
bool begins_as_base(const nn::Param& param) {
  return has_lengths(param) || nn::is_trained_rows(param);
}

// The parts of some pieces of values that belong to parameters which the base model has too, or
// that begin as the base model says.
std::vector<optim::StateTensor> pieces_of_the_base(const parallel::FlatLayout& layout,
                                                   std::span<const optim::StateTensor> pieces) {
  std::vector<optim::StateTensor> kept;
  for (std::size_t i = 0; i < layout.trained().size(); ++i) {
    const nn::Param& param = *layout.trained()[i];
    if (nn::is_lora_factor(param) && !begins_as_base(param)) continue;
    const std::int64_t begin = layout.offset(i);
    const std::int64_t end = begin + param.spec.shape.num_elements();
    for (const optim::StateTensor& piece : pieces) {
      const std::int64_t from = std::max(begin, piece.begin);
      const std::int64_t to = std::min(end, piece.begin + piece.tensor.num_elements());
      if (from >= to) continue;
      kept.push_back({piece.name, from, piece.tensor.rows(from - piece.begin, to - piece.begin)});
    }
  }
  return kept;
}

}  // namespace

void load_parameters(const ModelPath& directory, nn::Model& model, parallel::ParamStore& store,
                     ThreadPool& threads) {
  std::vector<const nn::Param*> params;  // without those of LoRA
  for (const nn::Param* param : store.params()) {
    if (!nn::is_lora_factor(*param)) params.push_back(param);
  }
  const bool has_adapter = params.size() < store.params().size();
  if (has_adapter && holds_adapter(directory)) {
    throw user_error(
        "{} is an adapter already; merge it (`atoll export --merge`) before adding another, or "
        "go on with its own run",
        directory.string());
  }
  const Source source(directory, model, params);
  const auto frozen = store.frozen();
  threads.run(static_cast<std::int64_t>(frozen.size()), [&](std::int64_t i) {
    const nn::Param& param = *frozen[static_cast<std::size_t>(i)];
    if (param.is_packed()) return source.read_packed(param);
    parallel::fill_whole(param, param.value, [&](const nn::Param& all, const Tensor& whole) {
      source.read(all, whole);
    });
  });
  std::vector<optim::StateTensor> pieces = parallel::pieces_to_fill(store);
  if (has_adapter) pieces = pieces_of_the_base(store.layout(), pieces);
  if (pieces.empty()) return;
  parallel::fill_pieces(
      store.layout(), pieces, &threads,
      [&](const std::string& /*values*/, const nn::Param& param, const Tensor& whole) {
        if (has_lengths(param)) return source.read_lengths(param, whole);
        if (nn::is_trained_rows(param)) {
          return source.read_token_rows(nn::tokens_trained_in(model), whole);
        }
        source.read(param, whole);
      });
  store.values_filled();
}

void load_whole_parameters(const ModelPath& directory, nn::Model& model,
                           parallel::ParamStore& store) {
  const std::vector<const nn::Param*> params(store.params().begin(), store.params().end());
  const Source source(directory, model, params);
  for (const nn::Param* param : store.frozen()) {
    if (param->is_packed()) source.read_packed(*param);
  }
  store.fill([&](const nn::Param& param, const Tensor& whole) { source.read(param, whole); });
}

}  // namespace atl::model_dir
