// The functions of ParamStore that work on whole parameters: they draw initial values, fill
// parameters and read them.

#include <algorithm>
#include <type_traits>

#include "atoll/base/check.h"
#include "atoll/base/rng.h"
#include "atoll/parallel/layout/whole_ranges.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

template <typename T>
void draw(Run& run, const nn::Param& param, std::span<T> to, std::uint64_t seed,
          std::uint64_t number) {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  T* values = to.data();
  const auto count = static_cast<std::int64_t>(to.size());
  const auto store = [](Compute value, T& to) {
    if constexpr (std::is_same_v<T, Bf16>) {
      to = to_bf16(value);
    } else {
      to = value;
    }
  };
  const RngStream stream(seed, RngPurpose::kInit, number);
  const auto stddev = static_cast<Compute>(param.init.stddev * param.init.scale);
  const auto of_queries = static_cast<Compute>(param.query_scale);
  const std::int64_t queries = param.query_rows * (count / param.spec.shape.dim(0));
  constexpr std::int64_t kGrain = 1 << 14;
  run.threads().run_chunked(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      switch (param.init.kind) {
        case nn::Init::Kind::kZero:
          store(0, values[i]);
          break;
        case nn::Init::Kind::kOne:
          store(static_cast<Compute>(param.init.scale), values[i]);
          break;
        case nn::Init::Kind::kNormal:
          store((i < queries ? stddev * of_queries : stddev) *
                    stream.normal(static_cast<std::uint64_t>(i)),
                values[i]);
          break;
      }
    }
  });
}

}  // namespace

void ParamStore::initialise(Run& run, std::uint64_t seed) {
  fill([&](const nn::Param& param, const Tensor& whole) {
    const auto at = std::find(params().begin(), params().end(), &param);
    const auto number =
        static_cast<std::uint64_t>(param.number >= 0 ? param.number : at - params().begin());
    switch (whole.dtype()) {
      case Dtype::kF64:
        write_on_host<double>(whole, [&](auto to) { draw(run, param, to, seed, number); });
        break;
      case Dtype::kBf16:
        write_on_host<Bf16>(whole, [&](auto to) { draw(run, param, to, seed, number); });
        break;
      default:
        write_on_host<float>(whole, [&](auto to) { draw(run, param, to, seed, number); });
    }
  });
}

void ParamStore::fill(const FillParam& fill) {
  for (const nn::Param* param : frozen()) {
    if (param->is_packed()) continue;
    fill_whole(*param, param->value,
               [&](const nn::Param& whole, const Tensor& values) { fill(whole, values); });
  }
  fill_pieces(layout_, pieces_to_fill(*this), nullptr,
              [&](const std::string& /*values*/, const nn::Param& param, const Tensor& whole) {
                fill(param, whole);
              });
  values_filled();
}

void ParamStore::read_whole(std::span<const ElementRange> ranges, int reader,
                            const Tensor& packed) {
  ATOLL_CHECK(values_.defined(), "weights that were rounded cannot be read back");
  std::vector<HeldPiece> held;
  for (const optim::StateTensor& piece : held_pieces(*this, nullptr)) {
    held.push_back({piece.begin, piece.tensor});
  }
  RangesByRank holders(static_cast<std::size_t>(layout_.num_ranks()));
  const std::int64_t all = flat().shape.num_elements();
  for (int r = 0; r < layout_.num_ranks(); ++r) {
    if (values_.num_elements() < all) {
      holders[static_cast<std::size_t>(r)] = element_ranges(layout_, r);
    } else if (r == reader) {
      holders[static_cast<std::size_t>(r)] = {{0, all}};
    }
  }
  read_ranges(shard_, holders, held, ranges, reader, packed);
}

}  // namespace atl::parallel
