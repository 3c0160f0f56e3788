#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace atl::ckpt {

/// What llama.cpp does for a name in `tokenizer.ggml.pre`, as parts of a tokenizer.json.
struct GgufPreTokenizer {
  std::string pre_tokenizer;   ///< JSON: the splits, then ByteLevel
  bool is_nfc = false;         ///< the models of this name normalise with NFC
  bool ignore_merges = false;  ///< a word that is a token is that token
  bool add_bos = false;        ///< unless tokenizer.ggml.add_bos_token says otherwise
};

/// The names that atoll knows, for messages.
std::string gguf_pre_tokenizer_names();

/// The pre-tokenizer of a name, if atoll knows it.
std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::string_view name);

/// The name under which llama.cpp splits text as this "pre_tokenizer" of a tokenizer.json does (its
/// JSON), with these settings of its model. Nothing when no known name does.
std::optional<std::string> name_gguf_pre_tokenizer(const std::string& pre_tokenizer, bool is_nfc,
                                                   bool ignore_merges);

}  // namespace atl::ckpt
