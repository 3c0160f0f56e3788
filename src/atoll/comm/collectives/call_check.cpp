#include "atoll/comm/collectives/call_check.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/comm/collectives/reduce.h"

namespace atl::comm {

namespace {

using Parts = std::vector<std::int64_t>;

std::int64_t part_size(const Parts& parts, int member) {
  const auto i = static_cast<std::size_t>(member);
  return parts[i + 1] - parts[i];
}

void check_tensor(const Collective& collective, const Tensor& tensor) {
  ATOLL_CHECK(tensor.defined() || (tensor.shape().rank() > 0 && tensor.num_elements() == 0),
              "{}: a tensor is missing", collective.to_string());
}

void check_parts(const Collective& collective, const Parts& parts, std::int64_t all) {
  ATOLL_CHECK(parts.size() == collective.members.size() + 1, "{}: {} offsets for {} ranks",
              collective.to_string(), parts.size(), collective.size());
  ATOLL_CHECK(parts.front() == 0 && std::is_sorted(parts.begin(), parts.end()),
              "{}: parts do not ascend from 0", collective.to_string());
  ATOLL_CHECK(parts.back() == all, "{}: parts of {} elements for {}", collective.to_string(),
              parts.back(), all);
}

void check_member(const Collective& collective, int member) {
  ATOLL_CHECK(member >= 0 && member < collective.size(), "{}: no rank {} among {}",
              collective.to_string(), member, collective.size());
}

void check_reduction(const Collective& collective, Dtype dtype) {
  ATOLL_CHECK(can_reduce(dtype), "{}: {} has no reductions", collective.to_string(),
              dtype_name(dtype));
}

void check_reduce_scatter(const Collective& collective) {
  const Parts& parts = collective.parts;
  check_tensor(collective, collective.result);
  check_reduction(collective, collective.result.dtype());
  for (std::size_t i = 0; i < collective.contributors.size(); ++i) {
    check_member(collective, collective.contributors[i]);
    ATOLL_CHECK(i == 0 || collective.contributors[i - 1] < collective.contributors[i],
                "{}: contributors do not ascend", collective.to_string());
  }
  if (contributes(collective, collective.self)) {
    check_tensor(collective, collective.data);
    check_parts(collective, parts, collective.data.num_elements());
    ATOLL_CHECK(collective.data.dtype() == collective.result.dtype(), "{}: {} into {}",
                collective.to_string(), dtype_name(collective.data.dtype()),
                dtype_name(collective.result.dtype()));
  } else {
    check_parts(collective, parts, parts.empty() ? 0 : parts.back());
  }
  ATOLL_CHECK(collective.result.num_elements() == part_size(parts, collective.self),
              "{}: a result of {} elements for a part of {}", collective.to_string(),
              collective.result.num_elements(), part_size(parts, collective.self));
}

void check_all_to_all(const Collective& collective) {
  check_tensor(collective, collective.data);
  check_tensor(collective, collective.result);
  check_parts(collective, collective.parts, collective.data.num_elements());
  check_parts(collective, collective.result_parts, collective.result.num_elements());
  ATOLL_CHECK(collective.data.dtype() == collective.result.dtype(), "{}: {} into {}",
              collective.to_string(), dtype_name(collective.data.dtype()),
              dtype_name(collective.result.dtype()));
  ATOLL_CHECK(part_size(collective.parts, collective.self) ==
                  part_size(collective.result_parts, collective.self),
              "{}: sends itself {} elements and expects {}", collective.to_string(),
              part_size(collective.parts, collective.self),
              part_size(collective.result_parts, collective.self));
}

void check_exchange(const Collective& collective) {
  for (const auto* pieces : {&collective.sends, &collective.receives}) {
    for (const Piece& piece : *pieces) {
      ATOLL_CHECK(piece.peer >= 0 && piece.peer < collective.size(), "exchange of {}: no rank {}",
                  collective.group, piece.peer);
      check_tensor(collective, piece.tensor);
    }
  }
}

Bytes bytes_of_parts(const Collective& collective, const Parts& parts, std::size_t element) {
  const auto own = static_cast<std::uint64_t>(part_size(parts, collective.self)) * element;
  return {own, static_cast<std::uint64_t>(parts.back()) * element - own};
}

Bytes bytes_of_reduce_scatter(const Collective& collective) {
  const Bytes bytes =
      bytes_of_parts(collective, collective.parts, dtype_size(collective.result.dtype()));
  std::uint64_t others = 0;
  for (int member = 0; member < collective.size(); ++member) {
    others += member != collective.self && contributes(collective, member) ? 1 : 0;
  }
  return {contributes(collective, collective.self) ? bytes.received : 0, others * bytes.sent};
}

Bytes bytes_of_all_gather(const Collective& collective, const Parts& parts) {
  const Bytes bytes = bytes_of_parts(collective, parts, dtype_size(collective.data.dtype()));
  const auto others = static_cast<std::uint64_t>(collective.size() - 1);
  return {others * bytes.sent, bytes.received};
}

Bytes bytes_of_all_reduce(const Collective& collective) {
  const auto elements = static_cast<std::uint64_t>(collective.data.num_elements());
  const auto size = static_cast<std::uint64_t>(collective.size());
  const auto self = static_cast<std::uint64_t>(collective.self);
  const std::uint64_t part = elements / size + (self < elements % size ? 1 : 0);  // as even_parts
  const std::size_t element = dtype_size(collective.data.dtype());
  const std::uint64_t moved = (elements - part + (size - 1) * part) * element;
  return {moved, moved};
}

Bytes bytes_of_exchange(const Collective& collective) {
  Bytes bytes;
  for (const Piece& piece : collective.sends) {
    if (piece.peer != collective.self) bytes.sent += piece.tensor.bytes();
  }
  for (const Piece& piece : collective.receives) {
    if (piece.peer != collective.self) bytes.received += piece.tensor.bytes();
  }
  return bytes;
}

}  // namespace

void check_call(const Collective& collective) {
  switch (collective.op) {
    case Op::kAllReduce:
      check_tensor(collective, collective.data);
      return check_reduction(collective, collective.data.dtype());
    case Op::kReduceScatter:
      return check_reduce_scatter(collective);
    case Op::kAllGather:
      check_tensor(collective, collective.data);
      return check_parts(collective, collective.parts, collective.data.num_elements());
    case Op::kBroadcast:
      check_tensor(collective, collective.data);
      return check_member(collective, collective.root);
    case Op::kAllToAll:
      return check_all_to_all(collective);
    case Op::kExchange:
      return check_exchange(collective);
    case Op::kBarrier:
      return;
  }
}

Bytes bytes_of_call(const Collective& collective) {
  switch (collective.op) {
    case Op::kAllReduce:
      return bytes_of_all_reduce(collective);
    case Op::kReduceScatter:
      return bytes_of_reduce_scatter(collective);
    case Op::kAllGather:
      return bytes_of_all_gather(collective, collective.parts);
    case Op::kBroadcast: {
      const std::uint64_t bytes = collective.data.bytes();
      const auto others = static_cast<std::uint64_t>(collective.size() - 1);
      return collective.self == collective.root ? Bytes{others * bytes, 0} : Bytes{0, bytes};
    }
    case Op::kAllToAll: {
      const std::size_t element = dtype_size(collective.data.dtype());
      return {bytes_of_parts(collective, collective.parts, element).received,
              bytes_of_parts(collective, collective.result_parts, element).received};
    }
    case Op::kExchange:
      return bytes_of_exchange(collective);
    case Op::kBarrier:
      return {};
  }
  return {};
}

std::int64_t even_begin(std::int64_t n, int size, std::int64_t multiple, int member) {
  ATOLL_CHECK(n >= 0 && size > 0 && multiple > 0);
  const std::int64_t units = (n + multiple - 1) / multiple;
  // As many whole units for everyone, and one more for the first `units % size` ranks.
  const std::int64_t begin = units / size * member + std::min<std::int64_t>(member, units % size);
  return std::min(n, begin * multiple);
}

std::vector<std::int64_t> even_parts(std::int64_t n, int size, std::int64_t multiple) {
  Parts parts(static_cast<std::size_t>(size) + 1);
  for (int member = 0; member <= size; ++member) {
    parts[static_cast<std::size_t>(member)] = even_begin(n, size, multiple, member);
  }
  return parts;
}

bool contributes(const Collective& collective, int member) {
  const auto& contributors = collective.contributors;
  return contributors.empty() ||
         std::binary_search(contributors.begin(), contributors.end(), member);
}

}  // namespace atl::comm
