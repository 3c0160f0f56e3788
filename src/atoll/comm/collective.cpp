#include "atoll/comm/collective.h"

#include <fmt/format.h>

namespace atl::comm {

namespace {

constexpr std::size_t kNamedPieces = 4;  // of an exchange; the others are only counted

std::string describe_pieces(const Collective& collective) {
  std::string text;
  std::size_t named = 0;
  const auto add = [&](const std::vector<Piece>& pieces, const char* way) {
    for (const Piece& piece : pieces) {
      if (++named > kNamedPieces) return;
      text += fmt::format(", {} {} rank {}", piece.tensor.spec().to_string(), way,
                          collective.members.at(static_cast<std::size_t>(piece.peer)));
    }
  };
  add(collective.sends, "to");
  add(collective.receives, "from");
  const std::size_t total = collective.sends.size() + collective.receives.size();
  if (total > kNamedPieces) text += fmt::format(" and {} more", total - kNamedPieces);
  return text;
}

}  // namespace

const char* op_name(Op op) {
  switch (op) {
    case Op::kAllReduce:
      return "all_reduce";
    case Op::kReduceScatter:
      return "reduce_scatter";
    case Op::kAllGather:
      return "all_gather";
    case Op::kBroadcast:
      return "broadcast";
    case Op::kAllToAll:
      return "all_to_all";
    case Op::kExchange:
      return "exchange";
    case Op::kBarrier:
      return "barrier";
  }
  return "unknown";
}

std::string_view file_name(const char* path) {
  const std::string_view whole = path;
  return whole.substr(whole.find_last_of('/') + 1);
}

Spec described_spec(const Collective& collective) {
  if (collective.op == Op::kReduceScatter) {
    return {collective.result.dtype(), {collective.parts.empty() ? 0 : collective.parts.back()}};
  }
  if (collective.op != Op::kExchange) return collective.data.spec();
  const auto& pieces = collective.sends.empty() ? collective.receives : collective.sends;
  return pieces.empty() ? Spec{Dtype::kU8, {0}} : pieces.front().tensor.spec();
}

std::string Collective::to_string() const {
  std::string text = fmt::format("{} #{} of {}", op_name(op), sequence, group);
  if (op == Op::kExchange) {
    text += describe_pieces(*this);
  } else if (op != Op::kBarrier) {
    text += ", " + described_spec(*this).to_string();
  }
  return text + fmt::format(", at {}:{}", file_name(where.file_name()), where.line());
}

}  // namespace atl::comm
