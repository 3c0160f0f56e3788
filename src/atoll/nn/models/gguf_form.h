#pragma once

// What llama.cpp calls a family, its sizes and its tensors; src/atoll/ckpt/gguf reads and writes
// files by it.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>

namespace atl::nn {

struct ModelConfig;

/// How a tensor's elements lie in a GGUF file, against Hugging Face's.
enum class GgufOrder {
  kSame,
  kTransposed,   ///< GPT-2's Conv1D weights: (out, in) in GGUF, (in, out) in Hugging Face's
  kQueryRotary,  ///< rows of each query head in pairs, see ckpt::gguf_row
  kKeyRotary,    ///< rows of each key head likewise
  kPlusOne,      ///< Gemma's norms: GGUF has 1 + what Hugging Face's has
  kQkvByHead,    ///< rows of each head's query, key and value; GGUF has all queries, keys, values
  kWholeName,    ///< as kSame; both names are whole, with no ".weight" behind them
};

/// A tensor's names, without ".weight" and ".bias"; inside a block, without what names the block.
struct GgufTensorName {
  const char* gguf;  ///< "attn_q"
  const char* hf;    ///< "self_attn.q_proj"
  bool has_bias = false;
  GgufOrder order = GgufOrder::kSame;
};

/// Settings of a file without "<architecture>." before their keys. What a file says as a bool is
/// read as 0 or 1, and written as the bool that it is here.
using GgufSettings = std::map<std::string, std::variant<std::int64_t, double, std::string, bool>>;

/// How llama.cpp knows a family.
struct GgufForm {
  /// "general.architecture"; empty: the family is neither read from GGUF nor written so. Of
  /// families with one architecture, the first registered is what a file is read as.
  const char* architecture = "";
  const char* block = "model.layers.";  ///< what stands before a block's number in HF's names
  std::span<const GgufTensorName> outside = {};  ///< of blocks
  std::span<const GgufTensorName> inside = {};
  /// Adds the settings that only this family has. Throws Error(kUser) naming `origin` and the field
  /// of config.json for what llama.cpp does not compute.
  void (*write)(const ModelConfig& config, const std::string& origin, GgufSettings& to) = nullptr;
  /// Takes such settings out of `from` into `config`, which has the sizes. Any that is left is
  /// refused: it could change what is computed.
  void (*read)(GgufSettings& from, ModelConfig& config) = nullptr;
  /// Whether llama.cpp attends to a window of tokens as the family does. If it does not, a file's
  /// context is no longer than the window.
  bool has_windows = false;
};

/// Whether keys and values come from a latent vector, as DeepSeek's. GgufForm's `write` and `read`
/// then know the widths of heads ("attention.key_length", "attention.value_length"), the scaling of
/// positions, and which blocks have experts, chosen how.
bool has_latent(const GgufForm& form);

/// Takes a number out of settings; `fallback` where there is none.
double take_gguf_number(GgufSettings& from, const std::string& key, double fallback);

/// The outside tensors of all families with Llama's names.
std::span<const GgufTensorName> decoder_gguf_outside();
/// The inside tensors of Llama itself with the biases that it may have, and its order of rows.
std::span<const GgufTensorName> llama_gguf_inside();

}  // namespace atl::nn
