#include "atoll/comm/collectives/call_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "atoll/comm/peer_error.h"

namespace atl::comm {

namespace {

constexpr std::uint32_t kMagic = 0x61746c63;

// FNV-1a. It tells mistakes apart, not attackers.
constexpr std::uint64_t kHashStart = 0xcbf29ce484222325;

std::uint64_t hash_word(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3;
}

// Several words may differ at once: each has to change all bits.
std::uint64_t mix_word(std::uint64_t hash, std::uint64_t word) {
  hash = hash_word(hash, word);
  return hash ^ (hash >> 32);
}

template <typename T>
std::uint64_t hash_values(const std::vector<T>& values) {
  std::uint64_t hash = hash_word(kHashStart, values.size());
  for (const T value : values) hash = hash_word(hash, static_cast<std::uint64_t>(value));
  return hash;
}

template <std::size_t N>
void copy_text(std::string_view text, char (&to)[N]) {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

template <std::size_t N>
std::string_view text_of(const char (&from)[N]) {
  return {from, strnlen(from, N)};
}

// What differs between two calls whose texts are the same.
const char* hidden_difference(const CallHeader& mine, const CallHeader& theirs) {
  if (mine.op != theirs.op || mine.sequence != theirs.sequence) return "";
  if (mine.reduce != theirs.reduce) return " with another reduction";
  if (mine.root != theirs.root) return " with another root";
  if (mine.contributors != theirs.contributors) return " with other contributors";
  if (mine.parts != theirs.parts) return " with other parts";
  if (mine.group != theirs.group) return " with other members";
  return "";
}

bool same_call(const CallHeader& mine, const CallHeader& theirs) {
  return mine.op == theirs.op && mine.sequence == theirs.sequence && mine.group == theirs.group &&
         mine.dtype == theirs.dtype && mine.num_dims == theirs.num_dims &&
         std::equal(mine.dims, mine.dims + Shape::kMaxRank, theirs.dims) &&
         mine.parts == theirs.parts && mine.contributors == theirs.contributors &&
         mine.reduce == theirs.reduce && mine.root == theirs.root;
}

}  // namespace

std::string CallHeader::to_string() const {
  std::string text =
      fmt::format("{} #{} of {}", op_name(static_cast<Op>(op)), sequence, text_of(group_name));
  if (static_cast<Op>(op) != Op::kBarrier && dtype <= static_cast<std::uint8_t>(Dtype::kU8)) {
    text += fmt::format(", {} (", dtype_name(static_cast<Dtype>(dtype)));
    for (int i = 0; i < std::min<int>(num_dims, Shape::kMaxRank); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ", ", dims[i]);
    }
    text += ")";
  }
  return text + fmt::format(", at {}:{}", text_of(file), line);
}

CallHeader make_header(const Collective& collective) {
  CallHeader header;
  header.magic = kMagic;
  header.line = collective.where.line();
  header.sequence = collective.sequence;
  header.group = hash_values(collective.members);
  for (const char c : collective.group) {
    header.group = hash_word(header.group, static_cast<unsigned char>(c));
  }
  if (collective.op == Op::kReduceScatter || collective.op == Op::kAllGather) {
    header.parts = hash_values(collective.parts);
    header.contributors = hash_values(collective.contributors);
  }
  if (collective.op != Op::kBarrier) {
    const Spec spec = described_spec(collective);
    header.dtype = static_cast<std::uint8_t>(spec.dtype);
    // The ranks of an all_to_all have as many elements as they please.
    if (collective.op != Op::kAllToAll) {
      header.num_dims = static_cast<std::uint8_t>(spec.shape.rank());
      for (int i = 0; i < spec.shape.rank(); ++i) header.dims[i] = spec.shape.dim(i);
    }
  }
  header.root = collective.root;
  header.op = static_cast<std::uint8_t>(collective.op);
  header.reduce = static_cast<std::uint8_t>(collective.reduce);
  copy_text(collective.group, header.group_name);
  copy_text(file_name(collective.where.file_name()), header.file);
  return header;
}

// What same_call() compares, and no more.
std::uint64_t fingerprint(const CallHeader& header) {
  const std::uint64_t small = std::uint64_t{header.op} | std::uint64_t{header.reduce} << 8 |
                              std::uint64_t{header.dtype} << 16 |
                              std::uint64_t{header.num_dims} << 24 |
                              std::uint64_t{static_cast<std::uint32_t>(header.root)} << 32;
  std::uint64_t hash = mix_word(kHashStart, small);
  for (const std::uint64_t word :
       {header.sequence, header.group, header.parts, header.contributors}) {
    hash = mix_word(hash, word);
  }
  for (const std::int64_t dim : header.dims) {
    hash = mix_word(hash, static_cast<std::uint64_t>(dim));
  }
  return hash;
}

void compare_calls(const CallHeader& mine, const CallHeader& theirs, int rank) {
  if (theirs.magic != kMagic) {
    throw PeerError(rank, fmt::format("rank {} sends what is no collective; does it call send or "
                                      "exchange, or is it another version of atoll?",
                                      rank));
  }
  if (!same_call(mine, theirs)) {
    throw PeerError(rank, fmt::format("rank {} calls {}{} instead; all ranks of a group must make "
                                      "the same calls in the same order",
                                      rank, theirs.to_string(), hidden_difference(mine, theirs)));
  }
  if (theirs.to_peer != mine.from_peer || theirs.from_peer != mine.to_peer) {
    throw PeerError(rank, fmt::format("rank {} sends {} elements and expects {}, in {}, where this "
                                      "rank expects {} and sends {}",
                                      rank, theirs.to_peer, theirs.from_peer, theirs.to_string(),
                                      mine.from_peer, mine.to_peer));
  }
}

}  // namespace atl::comm
