#include "atoll/parallel/state/assemble.h"

namespace atl::parallel {

Assembled::Assembled(std::span<const WholeTensor> parts, comm::Group& group,
                     const std::function<int(const WholeTensor& part)>& taker) {
  for (const WholeTensor& part : parts) {
    const int rank = taker(part);
    if (part.param->cut) {
      collect(part, group, rank);
    } else if (rank == group.rank()) {
      tensors_.push_back(part);
    }
  }
}

void Assembled::collect(const WholeTensor& part, comm::Group& group, int taker) {
  const nn::Cut& cut = *part.param->cut;
  const auto is_first = [&](int rank) { return cut.first_with_slice_of(rank) == rank; };
  if (group.rank() != taker) {
    const comm::Piece mine = {taker, part.tensor};
    if (is_first(group.rank())) group.exchange({&mine, 1}, {});
    return;
  }
  const Spec spec = {part.tensor.dtype(), cut.whole.spec.shape};
  memory_.emplace_back(new std::byte[spec.bytes()]);  // all of it is written
  const Tensor whole(memory_.back().get(), spec);
  std::vector<std::unique_ptr<std::byte[]>> room;
  std::vector<Tensor> arrived(cut.slices.size());
  std::vector<comm::Piece> receives;
  for (int r = 0; r < group.size(); ++r) {
    if (r == taker || !is_first(r)) continue;
    const nn::Slice& slice = cut.slices[static_cast<std::size_t>(r)];
    const Spec one = {spec.dtype, {slice.num_rows() * slice.num_columns}};
    room.emplace_back(new std::byte[one.bytes()]);
    arrived[static_cast<std::size_t>(r)] = Tensor(room.back().get(), one);
    receives.push_back({r, arrived[static_cast<std::size_t>(r)]});
  }
  arrived[static_cast<std::size_t>(taker)] = part.tensor;
  group.exchange({}, receives);
  for (std::size_t r = 0; r < cut.slices.size(); ++r) {
    if (arrived[r].defined()) nn::copy_slice_back(cut.slices[r], arrived[r], whole);
  }
  tensors_.push_back({part.name, &cut.whole, whole});
}

}  // namespace atl::parallel
