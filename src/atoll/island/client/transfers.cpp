#include "atoll/island/client/transfers.h"

#include <cstring>
#include <utility>

#include "atoll/base/check.h"

namespace atl::island {

namespace {

// Attempts at one island before it counts as unreachable; each continues where the last one ended.
constexpr int kTries = 3;

}  // namespace

std::string delta_key(std::int64_t outer_step) {
  return fmt::format("delta/{:012}", outer_step);
}

wire::Reader reader_of(std::span<const std::byte> bytes, std::uint64_t first,
                       std::shared_ptr<const void> keep) {
  return [bytes, first, keep = std::move(keep)](std::uint64_t offset, std::span<std::byte> out) {
    ATOLL_CHECK(offset >= first && offset - first + out.size() <= bytes.size(),
                "{} bytes at {} of what has {} from {} on", out.size(), offset, bytes.size(),
                first);
    std::memcpy(out.data(), bytes.data() + (offset - first), out.size());
  };
}

wire::Reader reader_of(const StatePart& part, std::span<const float> values,
                       std::shared_ptr<const void> keep) {
  return [part, values, keep = std::move(keep)](std::uint64_t offset, std::span<std::byte> out) {
    part.read(values, offset, out);
  };
}

wire::TransferResult persist(const std::function<wire::TransferResult()>& transfer) {
  wire::TransferResult result;
  for (int i = 0; i < kTries; ++i) {
    result = transfer();
    const bool may_help =
        result.end == wire::TransferEnd::kUnreachable || result.end == wire::TransferEnd::kDamaged;
    if (!may_help) break;
  }
  return result;
}

}  // namespace atl::island
