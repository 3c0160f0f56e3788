#include "atoll/data/shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

static_assert(std::endian::native == std::endian::little, "shards are mapped, not decoded");

constexpr std::array<char, 8> kMagic = {'A', 'T', 'O', 'L', 'L', 'S', 'H', 'D'};
// Version 2 has a mask. What has none is written as version 1, so that nothing else changes.
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaskVersion = 2;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t token_bytes = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_documents = 0;
  std::uint64_t vocab_size = 0;
  Hash128 tokenizer_hash;
  Hash128 payload_hash;
  std::uint64_t mask_bytes = 0;  // version 1 has no such field
  Hash128 header_hash;           // of the bytes before it
};
static_assert(sizeof(Header) == 96 && offsetof(Header, mask_bytes) == 72);

constexpr std::size_t kStartBytes = sizeof(std::uint64_t);
constexpr std::size_t kWordBits = 64;  // of the mask

std::size_t header_bytes(std::uint32_t version) {
  return version == kVersion ? sizeof(Header) - sizeof(Header::mask_bytes) : sizeof(Header);
}

Hash128 header_hash(const Header& header) {
  return hash_bytes(&header, header_bytes(header.version) - sizeof(Hash128));
}

// Tokens are padded with zeros so that the document starts behind them are aligned.
std::uint64_t padding(std::uint64_t token_bytes) {
  return (kStartBytes - token_bytes % kStartBytes) % kStartBytes;
}

// Gives the bytes behind the header to `sink(data, size)`, piece by piece.
template <typename Token, typename Sink>
void serialize_as(const ShardContent& content, Sink&& sink) {
  std::array<Token, 8192> piece;
  for (std::size_t begin = 0; begin < content.tokens.size(); begin += piece.size()) {
    const std::size_t count = std::min(piece.size(), content.tokens.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t token = content.tokens[begin + i];
      ATOLL_CHECK(token >= 0 && static_cast<std::uint64_t>(token) < content.vocab_size,
                  "token {} in a vocabulary of {}", token, content.vocab_size);
      piece[i] = static_cast<Token>(token);
    }
    sink(piece.data(), count * sizeof(Token));
  }
  constexpr std::array<char, kStartBytes> kZeros = {};
  sink(kZeros.data(), padding(content.tokens.size() * sizeof(Token)));
  sink(content.document_starts.data(), content.document_starts.size_bytes());
  for (std::size_t begin = 0; begin < content.mask.size(); begin += kWordBits) {
    const std::size_t count = std::min(kWordBits, content.mask.size() - begin);
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < count; ++i) {
      word |= std::uint64_t{content.mask[begin + i] != 0} << i;
    }
    sink(&word, sizeof(word));
  }
}

std::uint64_t mask_bytes(std::uint64_t num_tokens) {
  return (num_tokens / kWordBits + (num_tokens % kWordBits != 0)) * sizeof(std::uint64_t);
}

std::uint32_t token_bytes(std::uint64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

template <typename Sink>
void serialize(const ShardContent& content, Sink&& sink) {
  if (token_bytes(content.vocab_size) == 2) {
    serialize_as<std::uint16_t>(content, sink);
  } else {
    serialize_as<std::uint32_t>(content, sink);
  }
}

// The size of a file with this header, or false when no file can be so large.
bool file_size(const Header& header, std::uint64_t& size) {
  std::uint64_t tokens = 0;
  std::uint64_t starts = 0;
  if (__builtin_mul_overflow(header.num_tokens, std::uint64_t{header.token_bytes}, &tokens) ||
      __builtin_mul_overflow(header.num_documents, std::uint64_t{kStartBytes}, &starts)) {
    return false;
  }
  return !__builtin_add_overflow(tokens, padding(tokens) + header_bytes(header.version), &size) &&
         !__builtin_add_overflow(size, starts, &size) &&
         !__builtin_add_overflow(size, header.mask_bytes, &size);
}

// Throws unless the file has the bytes of a header of some version.
void need_header(std::span<const std::byte> bytes, std::size_t size, const std::string& path) {
  if (bytes.size() >= size) return;
  throw damaged_error("{} ends at byte {}, within the {} bytes of a shard's header; {}", path,
                      bytes.size(), size, "run atoll tokenize again");
}

Header read_header(std::span<const std::byte> bytes, const std::string& path) {
  Header header;
  const std::size_t first = header_bytes(kVersion) - sizeof(Hash128);  // the same in each version
  need_header(bytes, header_bytes(kVersion), path);
  std::memcpy(&header, bytes.data(), first);
  if (header.magic != kMagic) {
    throw user_error("{} is not a token shard (byte 0); make one with atoll tokenize", path);
  }
  if (header.version != kVersion && header.version != kMaskVersion) {
    throw user_error("{} is a shard of version {} and this atoll reads versions {} and {}; {}",
                     path, header.version, kVersion, kMaskVersion,
                     "run atoll tokenize again to rebuild it");
  }
  const std::size_t size = header_bytes(header.version);
  need_header(bytes, size, path);
  if (header.version == kMaskVersion) std::memcpy(&header, bytes.data(), sizeof(Header));
  std::memcpy(&header.header_hash, bytes.data() + size - sizeof(Hash128), sizeof(Hash128));
  if (header.header_hash != header_hash(header)) {
    throw damaged_error("{} is damaged in its header (bytes 0 to {}); run atoll tokenize again",
                        path, size);
  }
  if (header.mask_bytes != 0 && header.mask_bytes != mask_bytes(header.num_tokens)) {
    throw damaged_error("{} says at byte 72 that the mask of its {} tokens has {} bytes; {}", path,
                        header.num_tokens, header.mask_bytes, "run atoll tokenize again");
  }
  if (header.vocab_size > std::uint64_t{1} << 31) {
    throw damaged_error("{} says at byte 32 that its vocabulary has {} tokens; {}", path,
                        header.vocab_size, "run atoll tokenize again");
  }
  if (header.token_bytes != token_bytes(header.vocab_size)) {
    throw damaged_error("{} says at byte 12 that a token has {} bytes; run atoll tokenize again",
                        path, header.token_bytes);
  }
  return header;
}

void verify_starts(std::span<const std::uint64_t> starts, const ShardInfo& info,
                   const std::string& path) {
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (starts[i] >= info.num_tokens || (i > 0 && starts[i] <= starts[i - 1])) {
      throw damaged_error("{} says that document {} begins at token {} of {}; {}", path, i,
                          starts[i], info.num_tokens, "run atoll tokenize again");
    }
  }
}

// A hash says that nothing changed since it was written, not that what was written is right, and a
// token beyond the vocabulary would be read from beyond the embedding.
template <typename Token>
void verify_tokens(std::span<const std::byte> bytes, const ShardInfo& info,
                   const std::string& path) {
  const std::span tokens(reinterpret_cast<const Token*>(bytes.data()),
                         static_cast<std::size_t>(info.num_tokens));
  Token largest = 0;
  for (const Token token : tokens) largest = std::max(largest, token);
  if (tokens.empty() || largest < info.vocab_size) return;
  throw damaged_error("{} says that token {} is {} in a vocabulary of {}; {}", path,
                      std::find(tokens.begin(), tokens.end(), largest) - tokens.begin(), largest,
                      info.vocab_size, "run atoll tokenize again");
}

ShardInfo info_of(const Header& header) {
  return {header.num_tokens,     header.num_documents, header.vocab_size,
          header.tokenizer_hash, header.payload_hash,  header.mask_bytes != 0};
}

}  // namespace

Hash128 shard_payload_hash(const ShardContent& content) {
  Hasher hasher;
  serialize(content, [&](const void* data, std::size_t size) { hasher.update(data, size); });
  return hasher.digest();
}

ShardInfo write_shard(const std::filesystem::path& path, const ShardContent& content) {
  ATOLL_CHECK(content.mask.empty() || content.mask.size() == content.tokens.size(),
              "{} mask bytes for {} tokens", content.mask.size(), content.tokens.size());
  Header header;
  header.version = content.mask.empty() ? kVersion : kMaskVersion;
  header.token_bytes = token_bytes(content.vocab_size);
  header.num_tokens = content.tokens.size();
  header.num_documents = content.document_starts.size();
  header.vocab_size = content.vocab_size;
  header.tokenizer_hash = content.tokenizer_hash;
  header.payload_hash = shard_payload_hash(content);
  header.mask_bytes = content.mask.empty() ? 0 : mask_bytes(header.num_tokens);
  header.header_hash = header_hash(header);
  AtomicFile file(path);
  file.write(&header, header_bytes(header.version) - sizeof(Hash128));
  file.write(&header.header_hash, sizeof(Hash128));
  serialize(content, [&](const void* data, std::size_t size) { file.write(data, size); });
  file.commit();
  return info_of(header);
}

Shard::Shard(const std::filesystem::path& path) : file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  const Header header = read_header(bytes, path.string());
  std::uint64_t expected = 0;
  if (!file_size(header, expected) || expected != bytes.size()) {
    throw damaged_error("{} ends at byte {} and its {} tokens and {} documents need {}; {}",
                        path.string(), bytes.size(), header.num_tokens, header.num_documents,
                        expected, "run atoll tokenize again");
  }
  header_bytes_ = header_bytes(header.version);
  const std::uint64_t starts = header.num_documents * kStartBytes;
  starts_at_ = static_cast<std::size_t>(expected - header.mask_bytes - starts);
  const std::span<const std::byte> payload = bytes.subspan(header_bytes_);
  if (hash_bytes(payload.data(), payload.size()) != header.payload_hash) {
    throw damaged_error("{} is damaged between bytes {} and {}: its checksum differs; {}",
                        path.string(), header_bytes_, bytes.size(), "run atoll tokenize again");
  }
  token_bytes_ = header.token_bytes;
  info_ = info_of(header);
  verify_starts(document_starts(), info_, path.string());
  if (token_bytes_ == 2) {
    verify_tokens<std::uint16_t>(payload, info_, path.string());
  } else {
    verify_tokens<std::uint32_t>(payload, info_, path.string());
  }
}

void Shard::copy(std::uint64_t begin, std::span<std::int32_t> out) const {
  ATOLL_CHECK(begin <= info_.num_tokens && out.size() <= info_.num_tokens - begin,
              "{} tokens from {} of {}", out.size(), begin, info_.num_tokens);
  const std::byte* tokens = file_.bytes().data() + header_bytes_;
  if (token_bytes_ == 2) {
    const auto* data = reinterpret_cast<const std::uint16_t*>(tokens) + begin;
    std::copy_n(data, out.size(), out.begin());
  } else {
    const auto* data = reinterpret_cast<const std::uint32_t*>(tokens) + begin;
    std::transform(data, data + out.size(), out.begin(),
                   [](std::uint32_t token) { return static_cast<std::int32_t>(token); });
  }
}

std::span<const std::uint64_t> Shard::document_starts() const {
  return {reinterpret_cast<const std::uint64_t*>(file_.bytes().data() + starts_at_),
          static_cast<std::size_t>(info_.num_documents)};
}

void Shard::copy_mask(std::uint64_t begin, std::span<std::uint8_t> out) const {
  ATOLL_CHECK(begin <= info_.num_tokens && out.size() <= info_.num_tokens - begin,
              "the mask of {} tokens from {} of {}", out.size(), begin, info_.num_tokens);
  if (!info_.has_mask) {
    std::fill(out.begin(), out.end(), 1);
    return;
  }
  const std::span<const std::uint64_t> starts = document_starts();
  const std::uint64_t* words = starts.data() + starts.size();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t bit = begin + i;
    out[i] = static_cast<std::uint8_t>(words[bit / kWordBits] >> bit % kWordBits & 1);
  }
}

}  // namespace atl::data
