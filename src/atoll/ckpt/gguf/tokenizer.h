#pragma once

// Tokenizers: GGUF metadata to the files of a Hugging Face directory, and back.

#include <map>
#include <string>

#include "atoll/ckpt/gguf/gguf.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/hf/directory.h"

namespace atl::ckpt {

/// tokenizer.json, tokenizer_config.json and generation_config.json for what a GGUF file says of
/// its tokenizer: byte-level BPE ("gpt2") with a pre-tokenizer that atoll knows, or SentencePiece's
/// BPE
/// ("llama"), whose scores become the order of merges. Name to content; empty when the file has no
/// tokenizer. Throws Error(kUser) naming the file and what atoll does not read, Error(kDamaged)
/// when lists disagree in length or ids lie beyond them.
std::map<std::string, std::string> tokenizer_from_gguf(const GgufFile& file);

/// The reverse: "tokenizer.*" for a directory's files, the vocabulary filled up to `vocab_size`
/// with unused tokens. A directory without tokenizer.json gives a model without vocabulary. Throws
/// Error(kUser) naming the file and the field that llama.cpp has no counterpart for.
GgufFields tokenizer_to_gguf(const HfDirectory& directory, std::int64_t vocab_size);

}  // namespace atl::ckpt
