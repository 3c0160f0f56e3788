#include "atoll/comm/collectives/alone.h"

#include <cstddef>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/comm/collectives/reduce.h"

namespace atl::comm {

namespace {

void copy(const Tensor& from, const Tensor& to) {
  if (from.bytes() != 0 && from.raw() != to.raw()) std::memmove(to.raw(), from.raw(), from.bytes());
}

void reduce_scatter_alone(const Collective& collective) {
  if (!collective.accumulate) return copy(collective.data, collective.result);
  const void* sources[] = {collective.result.raw(), collective.data.raw()};
  void* results[] = {collective.result.raw()};
  reduce_in_order(collective.result.dtype(), collective.reduce, sources, results,
                  collective.result.num_elements());
}

}  // namespace

void run_alone(const Collective& collective) {
  switch (collective.op) {
    case Op::kReduceScatter:
      return reduce_scatter_alone(collective);
    case Op::kAllToAll:
      return copy(collective.data, collective.result);
    case Op::kExchange:
      return copy_own_pieces(collective);
    default:
      return;  // in place: what it holds is the result
  }
}

void copy_own_pieces(const Collective& collective) {
  auto receive = collective.receives.begin();
  const auto next_own = [&] {
    while (receive != collective.receives.end() && receive->peer != collective.self) ++receive;
    return receive != collective.receives.end();
  };
  for (const Piece& send : collective.sends) {
    if (send.peer != collective.self) continue;
    ATOLL_CHECK(next_own(), "{}: sends itself more than it receives", collective.to_string());
    ATOLL_CHECK(send.tensor.dtype() == receive->tensor.dtype() &&
                    send.tensor.bytes() == receive->tensor.bytes(),
                "{}: sends itself {} as {}", collective.to_string(), send.tensor.spec().to_string(),
                receive->tensor.spec().to_string());
    copy(send.tensor, receive->tensor);
    ++receive;
  }
  ATOLL_CHECK(!next_own(), "{}: receives from itself more than it sends", collective.to_string());
}

}  // namespace atl::comm
