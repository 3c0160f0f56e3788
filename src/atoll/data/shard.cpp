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
constexpr std::uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t token_bytes = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_documents = 0;
  std::uint64_t vocab_size = 0;
  Hash128 tokenizer_hash;
  Hash128 payload_hash;
  Hash128 header_hash;  // of the bytes before it
};
static_assert(sizeof(Header) == 88 && offsetof(Header, header_hash) == 72);

constexpr std::size_t kStartBytes = sizeof(std::uint64_t);

Hash128 header_hash(const Header& header) {
  return hash_bytes(&header, offsetof(Header, header_hash));
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
  return !__builtin_add_overflow(tokens, padding(tokens) + sizeof(Header), &size) &&
         !__builtin_add_overflow(size, starts, &size);
}

Header read_header(std::span<const std::byte> bytes, const std::string& path) {
  Header header;
  if (bytes.size() < sizeof(Header)) {
    throw damaged_error("{} ends at byte {}, within the {} bytes of a shard's header; {}", path,
                        bytes.size(), sizeof(Header), "run atoll tokenize again");
  }
  std::memcpy(&header, bytes.data(), sizeof(Header));
  if (header.magic != kMagic) {
    throw user_error("{} is not a token shard (byte 0); make one with atoll tokenize", path);
  }
  if (header.version != kVersion) {
    throw user_error("{} is a shard of version {} and this atoll reads version {}; {}", path,
                     header.version, kVersion, "run atoll tokenize again to rebuild it");
  }
  if (header.header_hash != header_hash(header)) {
    throw damaged_error("{} is damaged in its header (bytes 0 to {}); run atoll tokenize again",
                        path, sizeof(Header));
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

}  // namespace

Hash128 shard_payload_hash(const ShardContent& content) {
  Hasher hasher;
  serialize(content, [&](const void* data, std::size_t size) { hasher.update(data, size); });
  return hasher.digest();
}

ShardInfo write_shard(const std::filesystem::path& path, const ShardContent& content) {
  Header header;
  header.token_bytes = token_bytes(content.vocab_size);
  header.num_tokens = content.tokens.size();
  header.num_documents = content.document_starts.size();
  header.vocab_size = content.vocab_size;
  header.tokenizer_hash = content.tokenizer_hash;
  header.payload_hash = shard_payload_hash(content);
  header.header_hash = header_hash(header);
  AtomicFile file(path);
  file.write(&header, sizeof(header));
  serialize(content, [&](const void* data, std::size_t size) { file.write(data, size); });
  file.commit();
  return {header.num_tokens, header.num_documents, header.vocab_size, header.tokenizer_hash,
          header.payload_hash};
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
  const std::span<const std::byte> payload = bytes.subspan(sizeof(Header));
  if (hash_bytes(payload.data(), payload.size()) != header.payload_hash) {
    throw damaged_error("{} is damaged between bytes {} and {}: its checksum differs; {}",
                        path.string(), sizeof(Header), bytes.size(), "run atoll tokenize again");
  }
  token_bytes_ = header.token_bytes;
  info_ = {header.num_tokens, header.num_documents, header.vocab_size, header.tokenizer_hash,
           header.payload_hash};
  verify_starts(document_starts(), info_, path.string());
}

void Shard::copy(std::uint64_t begin, std::span<std::int32_t> out) const {
  ATOLL_CHECK(begin <= info_.num_tokens && out.size() <= info_.num_tokens - begin,
              "{} tokens from {} of {}", out.size(), begin, info_.num_tokens);
  const std::byte* tokens = file_.bytes().data() + sizeof(Header);
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
  const std::span<const std::byte> bytes = file_.bytes();
  const std::size_t size = info_.num_documents * kStartBytes;
  return {reinterpret_cast<const std::uint64_t*>(bytes.data() + bytes.size() - size),
          static_cast<std::size_t>(info_.num_documents)};
}

}  // namespace atl::data
