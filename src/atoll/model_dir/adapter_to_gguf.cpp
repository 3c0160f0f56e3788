#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/model_dir/adapter_gguf.h"
#include "atoll/model_dir/adapter_merge.h"
#include "atoll/model_dir/model_source.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMerge =
    "merge it into its base model instead: atoll export ADAPTER --merge --out MODEL.gguf";

// A matrix in memory.
ckpt::FloatRows matrix(std::string name, std::int64_t rows, std::int64_t width,
                       std::vector<float> values) {
  ckpt::FloatRows result;
  result.name = std::move(name);
  result.shape = {rows, width};
  result.open = [values = std::make_shared<const std::vector<float>>(
                     std::move(values))]() -> ckpt::RowReader {
    return [values](std::int64_t row, std::span<float> out) {
      const auto begin = values->begin() + row * std::ssize(out);
      std::copy(begin, begin + std::ssize(out), out.begin());
    };
  };
  return result;
}

// A and B of one tensor of a GGUF file.
struct Pair {
  ckpt::FloatRows a, b;
};

class AdapterSources {
 public:
  AdapterSources(const ModelPath& adapter, const nn::GgufForm& form, const nn::ModelConfig& base)
      : where_(adapter.directory() / kAdapterWeightsFile), form_(form), base_(base) {}

  void add(const TensorFactors& factors) {
    const auto found = ckpt::from_hf_name(form_, factors.tensor);
    if (!found) {
      throw user_error("{}: {} has no place in llama.cpp's {}; export the adapter without --gguf",
                       where_.string(), factors.tensor, form_.architecture);
    }
    if (nn::has_latent(form_) && found->gguf.ends_with(".attn_kv_b.weight")) {
      throw user_error(
          "{}: llama.cpp's {} has the matrix of {} in two, and no adapters of these; merge the "
          "adapter (atoll export --merge), or leave kv_b_proj out of its targets",
          where_.string(), form_.architecture, factors.tensor);
    }
    check_place(factors.tensor, found->gguf);
    // llama.cpp takes an alpha of 0 for one that is not there.
    const double alpha = factors.scale * static_cast<double>(factors.rank);
    if (!alpha_) alpha_ = alpha == 0 ? 1 : alpha;
    Pair pair = pair_of(factors, *found);
    if (found->expert) {
      experts_[found->gguf].emplace(*found->expert, std::move(pair));
    } else {
      push(found->gguf, std::move(pair));
    }
  }
  // Call it once, last: experts become stacks.
  std::vector<ckpt::GgufSource> take(const ckpt::GgufMix& mix) {
    for (auto& [name, pairs] : experts_) push(name, stack_of(name, std::move(pairs)));
    for (ckpt::GgufSource& source : sources_) {
      const bool fits = source.rows.width() % ckpt::ggml_layout(mix.base).block_elements == 0;
      source.type = fits ? mix.base : ckpt::GgmlType::kF16;
    }
    return std::move(sources_);
  }
  // By which llama.cpp scales every pair, divided by its rank.
  double alpha() const { return alpha_.value_or(1); }

 private:
  void check_place(const std::string& tensor, const std::string& gguf) const {
    if (gguf == "position_embd.weight") {
      throw user_error("{}: it adapts {}, which llama.cpp leaves as it is; {}", where_.string(),
                       tensor, kMerge);
    }
    if (!base_.tie_embeddings || (gguf != "token_embd.weight" && gguf != "output.weight")) return;
    throw user_error(
        "{}: it adapts {}, and the base model ties its head to the embedding: llama.cpp has one "
        "tensor for both and no adapter for it; {}",
        where_.string(), tensor, kMerge);
  }

  Pair pair_of(const TensorFactors& factors, const ckpt::GgufName& name) const {
    const std::int64_t rank = factors.rank;
    const std::int64_t rows = std::ssize(factors.left) / rank;
    const std::int64_t in = std::ssize(factors.right) / rank;
    if (name.gguf == "token_embd.weight") {
      return {matrix(name.gguf + ".lora_a", rows, rank, factors.left),
              matrix(name.gguf + ".lora_b", in, rank,
                     scaled(transposed(factors.right, rank, in), factors))};
    }
    Pair pair = {matrix(name.gguf + ".lora_a", rank, in, factors.right),
                 matrix(name.gguf + ".lora_b", rows, rank, scaled(factors.left, factors))};
    if (name.order == nn::GgufOrder::kQueryRotary || name.order == nn::GgufOrder::kKeyRotary) {
      pair.b = ckpt::reorder_rows(std::move(pair.b),
                                  [head_dim = base_.heads.head_dim](std::int64_t row) {
                                    return ckpt::hf_row(row, head_dim);
                                  });
    } else if (name.order == nn::GgufOrder::kQkvByHead) {
      pair.b = ckpt::reorder_rows(std::move(pair.b),
                                  [rows, head_dim = base_.heads.head_dim](std::int64_t row) {
                                    return ckpt::hf_qkv_row(row, rows, head_dim);
                                  });
    }
    return pair;
  }

  // B, so that alpha / rank times it is the scale of this pair.
  std::vector<float> scaled(std::vector<float> b, const TensorFactors& factors) const {
    const double own = factors.scale * static_cast<double>(factors.rank);
    if (own == *alpha_) return b;
    for (float& value : b) value = static_cast<float>(value * (own / *alpha_));
    return b;
  }

  Pair stack_of(const std::string& name, std::map<std::int64_t, Pair> pairs) const {
    std::vector<ckpt::FloatRows> a;
    std::vector<ckpt::FloatRows> b;
    for (auto& [expert, pair] : pairs) {
      const bool fits = a.empty() || (pair.a.shape == a.front().shape);
      if (expert != std::ssize(a) || !fits) break;
      a.push_back(std::move(pair.a));
      b.push_back(std::move(pair.b));
    }
    if (std::ssize(a) != base_.experts.num_experts) {
      throw user_error(
          "{}: of {} some experts are adapted and some not, or with other ranks; llama.cpp's "
          "adapters have all {} of a block with one rank; {}",
          where_.string(), name, base_.experts.num_experts, kMerge);
    }
    return {ckpt::stack_matrices(std::move(a)), ckpt::stack_matrices(std::move(b))};
  }

  void push(const std::string& name, Pair pair) {
    pair.a.name = name + ".lora_a";
    pair.b.name = name + ".lora_b";
    sources_.push_back({std::move(pair.a)});
    sources_.push_back({std::move(pair.b)});
  }

  fs::path where_;
  const nn::GgufForm& form_;
  const nn::ModelConfig& base_;
  std::optional<double> alpha_;
  std::vector<ckpt::GgufSource> sources_;
  std::map<std::string, std::map<std::int64_t, Pair>> experts_;  // by name in GGUF
};

// As the adapter's file has its largest tensor.
ckpt::GgufMix mix_of_file(const ModelPath& adapter) {
  const ckpt::SafetensorsFile file(adapter.directory() / kAdapterWeightsFile);
  Dtype dtype = Dtype::kF32;
  std::int64_t most = 0;
  for (const ckpt::SafetensorsEntry& entry : file.entries()) {
    const Spec spec = file.spec(entry.name);
    if (spec.shape.num_elements() > most) dtype = spec.dtype;
    most = std::max(most, spec.shape.num_elements());
  }
  if (dtype == Dtype::kF16) return ckpt::gguf_mix_of(ckpt::GgmlType::kF16);
  return ckpt::gguf_mix_of(dtype == Dtype::kBf16 ? ckpt::GgmlType::kBf16 : ckpt::GgmlType::kF32);
}

void check_mix(const ckpt::GgufMix& mix) {
  for (const char* name : {"F32", "F16", "BF16", "Q8_0"}) {
    if (mix.name == name) return;
  }
  throw user_error(
      "an adapter is written as f32, f16, bf16 or q8_0: its matrices are too narrow for the blocks "
      "of {}; use --gguf=q8_0",
      mix.name);
}

// Whether a tensor of an adapter is the base model's, as PEFT saves an embedding that it adapts.
bool is_of_base(const ckpt::HfDirectory& base, const ckpt::SafetensorsFile& adapter,
                const std::string& name) {
  const std::string plain = plain_name(name);
  if (!adapter.contains(name) || !base.contains(plain)) return false;
  const Spec spec = adapter.spec(name);
  if (base.spec(plain).shape != spec.shape) return false;
  std::vector<float> ours(static_cast<std::size_t>(spec.shape.num_elements()));
  std::vector<float> theirs(ours.size());
  adapter.read_f32(name, std::span<float>(ours));
  base.read_f32(plain, theirs);
  return ours == theirs;
}

void refuse_other_parts(const ModelPath& adapter, const AdapterMerge& parts) {
  const std::vector<std::string> names = parts.other_parts();
  if (names.empty()) return;
  const ckpt::HfDirectory base(base_directory(adapter));
  for (const std::string& name : names) {
    if (is_of_base(base, parts.file(), name)) continue;
    throw user_error("{}: it has {}, and llama.cpp's adapters have pairs of factors alone; {}",
                     adapter.string(), name, kMerge);
  }
}

}  // namespace

void export_adapter_gguf(const ModelPath& adapter, const fs::path& to,
                         const std::optional<ckpt::GgufMix>& mix) {
  if (path_exists(to)) {
    throw user_error("{} is there already; name a file that is not, or remove it", to.string());
  }
  const ckpt::GgufMix chosen = mix ? *mix : mix_of_file(adapter);
  check_mix(chosen);
  const fs::path base_path = base_directory(adapter) / "config.json";
  const nn::ModelConfig base = nn::parse_config(read_file(base_path), base_path.string());
  const nn::GgufForm& form = nn::find_family(base.family, base_path.string()).gguf;
  if (form.architecture[0] == '\0') {
    throw user_error("{}: atoll does not write the model family \"{}\" as GGUF, but {}",
                     base_path.string(), base.family, ckpt::gguf_architectures());
  }
  const auto model = nn::build_model(read_model_config(adapter), {.max_positions = 1});
  const AdapterMerge parts(adapter.directory(), *model);
  refuse_other_parts(adapter, parts);
  AdapterSources sources(adapter, form, base);
  for (const TensorFactors& factors : parts.factors()) sources.add(factors);
  const std::vector<ckpt::GgufSource> tensors = sources.take(chosen);
  const ckpt::GgufFields fields = {
      {"general.architecture", std::string(form.architecture)},
      {"general.type", std::string("adapter")},
      {"adapter.type", std::string("lora")},
      {"adapter.lora.alpha", static_cast<float>(sources.alpha())},
      {"general.quantization_version", std::uint32_t{2}},
  };
  ckpt::write_gguf(to, fields, tensors);
}

}  // namespace atl::model_dir
