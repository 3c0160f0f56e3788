#include "atoll/tensor/paged_memory.h"

namespace atl {

Tensor from_first_page(const Tensor& bytes) {
  const std::size_t place = reinterpret_cast<std::uintptr_t>(bytes.raw()) % kFilePage;
  const auto begin = static_cast<std::int64_t>((kFilePage - place) % kFilePage);
  return bytes.rows(begin, bytes.num_elements());
}

Tensor placed_like(const FileArena& file, const Tensor& in_file, const Tensor& bytes) {
  const std::size_t begin = file.place_in_page(in_file);
  ATOLL_CHECK(begin + in_file.bytes() <= bytes.bytes(), "{} does not fit {} bytes from {}",
              in_file.spec().to_string(), bytes.bytes(), begin);
  return {bytes.data<std::uint8_t>() + begin, in_file.spec(), bytes.device()};
}

Tensor around(const FileArena& file, const Tensor& in_file, const Spec& spec, std::int64_t begin,
              const Tensor& bytes) {
  const std::size_t before = static_cast<std::size_t>(begin) * dtype_size(spec.dtype) % kFilePage;
  const std::size_t place = in_file.num_elements() == 0 ? 0 : file.place_in_page(in_file);
  const std::size_t lead = (place + kFilePage - before) % kFilePage;
  ATOLL_CHECK(lead + spec.bytes() <= bytes.bytes(), "{} does not fit {} bytes from {}",
              spec.to_string(), bytes.bytes(), lead);
  return {bytes.data<std::uint8_t>() + lead, spec, bytes.device()};
}

Tensor at_same_place(const Tensor& tensor, const Tensor& bytes, const Tensor& others) {
  const auto* begin = static_cast<const std::byte*>(bytes.raw());
  const auto place = static_cast<const std::byte*>(tensor.raw()) - begin;
  ATOLL_CHECK(place >= 0 && static_cast<std::size_t>(place) + tensor.bytes() <= others.bytes(),
              "{} at byte {} of {}", tensor.spec().to_string(), place, others.bytes());
  return {static_cast<std::byte*>(others.raw()) + place, tensor.spec(), others.device()};
}

std::unique_ptr<GivenMemory> memory_in(Device& device, const Tensor& bytes, std::size_t begin) {
  return std::make_unique<GivenMemory>(device, static_cast<std::byte*>(bytes.raw()) + begin);
}

}  // namespace atl
