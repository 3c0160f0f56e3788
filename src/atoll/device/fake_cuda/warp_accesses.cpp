#include "atoll/device/fake_cuda/warp_accesses.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <tuple>

namespace atl::fake_cuda {

namespace {

constexpr std::uintptr_t kSector = 32;
constexpr std::size_t kBanks = 32;
constexpr std::uintptr_t kWord = 4;
constexpr std::size_t kBytesAtOnce = kBanks * kWord;  // of all banks

struct Span {
  std::uintptr_t at;
  std::size_t bytes;
};

void count_sectors(std::span<const Span> lanes, AccessTotals& totals) {
  std::vector<std::uintptr_t> bytes;
  for (const Span& lane : lanes) {
    for (std::size_t i = 0; i < lane.bytes; ++i) bytes.push_back(lane.at + i);
  }
  std::sort(bytes.begin(), bytes.end());
  bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
  totals.asked_bytes += bytes.size();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 0 || bytes[i] / kSector != bytes[i - 1] / kSector) ++totals.sectors;
  }
}

// How often lanes that are served together wait. A bank gives one word at a time, to as many lanes
// as want it.
std::uint64_t waits_of(std::span<const Span> lanes) {
  std::array<std::vector<std::uintptr_t>, kBanks> words;
  std::size_t most = 1;
  for (const Span& lane : lanes) {
    for (std::uintptr_t word = lane.at / kWord; word * kWord < lane.at + lane.bytes; ++word) {
      auto& bank = words[word % kBanks];
      if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
      most = std::max(most, bank.size());
    }
  }
  return most - 1;
}

}  // namespace

void WarpAccesses::note(Kind kind, int lane, std::uintptr_t at, std::size_t bytes, Where where) {
  accesses_.push_back(
      {kind, static_cast<std::uint8_t>(lane), static_cast<std::uint8_t>(bytes), 0, where, at});
}

void WarpAccesses::count(AccessTotals& totals) {
  const auto line = [](const Access& a) {
    return std::tuple(a.kind, std::string_view(a.where.file), a.where.line);
  };
  // Stable: the visits of a lane to a line are in their order.
  std::stable_sort(accesses_.begin(), accesses_.end(), [&](const Access& a, const Access& b) {
    return std::tuple(line(a), a.lane) < std::tuple(line(b), b.lane);
  });
  for (std::size_t i = 1; i < accesses_.size(); ++i) {
    Access& access = accesses_[i];
    const Access& before = accesses_[i - 1];
    if (access.lane == before.lane && line(access) == line(before)) access.visit = before.visit + 1;
  }
  // Lanes of 4 bytes or less are served together, of 8 as halves of a warp, of 16 as quarters.
  const auto turn = [](const Access& a) {
    const bool is_shared = a.kind == Kind::kSharedRead || a.kind == Kind::kSharedWrite;
    return is_shared ? a.lane * std::max<std::size_t>(a.bytes, kWord) / kBytesAtOnce : 0;
  };
  const auto key = [&](const Access& a) { return std::tuple(line(a), a.visit, turn(a)); };
  std::stable_sort(accesses_.begin(), accesses_.end(),
                   [&](const Access& a, const Access& b) { return key(a) < key(b); });
  std::vector<Span> lanes;
  for (std::size_t i = 0; i < accesses_.size(); ++i) {
    const Access& access = accesses_[i];
    lanes.push_back({access.at, access.bytes});
    if (i + 1 < accesses_.size() && key(accesses_[i + 1]) == key(access)) continue;
    if (access.kind == Kind::kRead || access.kind == Kind::kWrite) {
      count_sectors(lanes, totals);
    } else {
      totals.bank_conflicts += waits_of(lanes);
    }
    lanes.clear();
  }
  accesses_.clear();
}

}  // namespace atl::fake_cuda
