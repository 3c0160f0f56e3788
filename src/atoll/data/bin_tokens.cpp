#include "atoll/data/bin_tokens.h"

#include <array>
#include <cstring>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t kGpt2Magic = 20240520;
constexpr std::int32_t kLlama3Magic = 20240801;

}  // namespace

BinTokens::BinTokens(const std::filesystem::path& path, const Tokenizer& tokenizer)
    : path_(path),
      file_(path),
      vocab_size_(static_cast<std::uint32_t>(tokenizer.vocab_size())),
      delimiter_(tokenizer.end_of_text()) {
  // As two tokens of nanoGPT, both magic numbers begin with one beyond GPT-2's vocabulary.
  std::int32_t magic = 0;
  if (file_.bytes().size() >= sizeof(magic)) {
    std::memcpy(&magic, file_.bytes().data(), sizeof(magic));
  }
  if (magic == kGpt2Magic || magic == kLlama3Magic) {
    read_header(tokenizer);
    return;
  }
  num_tokens_ = file_.bytes().size() / token_bytes_;
  if (file_.bytes().size() % token_bytes_ != 0) {
    throw damaged_error(
        "{} has {} bytes, which no number of 2-byte tokens has, and not the header of llm.c; "
        "give a file of nanoGPT or llm.c",
        path_.string(), file_.bytes().size());
  }
}

void BinTokens::read_header(const Tokenizer& tokenizer) {
  const std::size_t size = file_.bytes().size();
  if (size < kHeaderBytes) {
    throw damaged_error("{} ends at byte {}, within the {} bytes of its header; copy it again",
                        path_.string(), size, kHeaderBytes);
  }
  std::array<std::int32_t, 3> header;  // magic, version, number of tokens
  std::memcpy(header.data(), file_.bytes().data(), sizeof(header));
  const bool llama = header[0] == kLlama3Magic;
  const std::int32_t version = llama ? 7 : 1;
  if (header[1] != version) {
    throw user_error("{} is of version {} (byte 4) and atoll reads version {} of magic {}; {}",
                     path_.string(), header[1], version, header[0],
                     "write it again with another version of llm.c");
  }
  header_bytes_ = kHeaderBytes;
  token_bytes_ = llama ? 4 : 2;
  const std::size_t left = size - kHeaderBytes;
  if (header[2] < 0 || left % token_bytes_ != 0 ||
      left / token_bytes_ != static_cast<std::size_t>(header[2])) {
    throw damaged_error(
        "{} says at byte 8 that it has {} tokens of {} bytes, and {} bytes follow {}",
        path_.string(), header[2], token_bytes_, left, "its header; copy it again");
  }
  num_tokens_ = static_cast<std::uint64_t>(header[2]);
  // llm.c takes the token that Llama 3 puts first for the one between documents.
  if (const auto begin = tokenizer.id_of("<|begin_of_text|>"); llama && begin) delimiter_ = begin;
}

std::uint32_t BinTokens::raw(std::uint64_t token) const {
  std::uint32_t value = 0;  // little-endian, as the machine is (shard.cpp asserts it)
  const std::size_t at = header_bytes_ + static_cast<std::size_t>(token) * token_bytes_;
  std::memcpy(&value, file_.bytes().data() + at, token_bytes_);
  return value;
}

std::uint64_t BinTokens::find(std::int32_t token, std::uint64_t begin, std::uint64_t end) const {
  ATOLL_CHECK(begin <= end && end <= num_tokens_, "tokens {} to {} of {}", begin, end, num_tokens_);
  while (begin < end && raw(begin) != static_cast<std::uint32_t>(token)) ++begin;
  return begin;
}

void BinTokens::copy(std::uint64_t begin, std::span<std::int32_t> out) const {
  ATOLL_CHECK(begin <= num_tokens_ && out.size() <= num_tokens_ - begin, "{} tokens from {} of {}",
              out.size(), begin, num_tokens_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t token = raw(begin + i);
    if (token >= vocab_size_) {
      throw user_error("{} has token {} at byte {}, and the tokenizer has {} tokens; {}",
                       path_.string(), token, header_bytes_ + (begin + i) * token_bytes_,
                       vocab_size_, "give the tokenizer that made the file");
    }
    out[i] = static_cast<std::int32_t>(token);
  }
}

}  // namespace atl::data
