#include "atoll/train/checkpoint/state_copies.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/parallel/layout/gather_text.h"
#include "atoll/parallel/layout/held_state.h"
#include "atoll/parallel/state/whole_flat.h"
#include "atoll/tensor/host_access.h"
#include "atoll/train/model/memory_check.h"

namespace atl::train {

namespace {

constexpr const char* kValues = "values";  // as held_vectors() calls them

// Of a dtype's elements, wherever a range begins.
constexpr std::size_t kAlignment = 8;

std::size_t room_of(const CopiedRange& range) {
  return (range.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t room_of(const std::vector<CopiedRange>& ranges) {
  std::size_t bytes = 0;
  for (const CopiedRange& range : ranges) bytes += room_of(range);
  return bytes;
}

// One line a range: begin, count, dtype, name.
std::string to_text(const std::vector<CopiedRange>& ranges) {
  std::string text;
  for (const CopiedRange& range : ranges) {
    text += fmt::format("{} {} {} {}\n", range.begin, range.count, static_cast<int>(range.dtype),
                        range.name);
  }
  return text;
}

std::vector<CopiedRange> from_text(const std::string& text) {
  std::vector<CopiedRange> ranges;
  std::istringstream lines(text);
  CopiedRange range;
  int dtype = 0;
  while (lines >> range.begin >> range.count >> dtype && lines.get() == ' ' &&
         std::getline(lines, range.name)) {
    range.dtype = static_cast<Dtype>(dtype);
    ranges.push_back(range);
  }
  ATOLL_CHECK(lines.eof(), "ranges \"{}\"", text);
  return ranges;
}

// This rank's part of the state, over the flat vector of the whole model.
std::map<std::string, std::vector<parallel::HeldPiece>> own_part(TrainState& state) {
  state.store().settle();
  const std::vector<parallel::FlatRun> runs =
      parallel::runs_in_whole(state.store().layout(), state.whole_layout(),
                              [](const nn::Param& /*param*/) { return true; });
  std::map<std::string, std::vector<parallel::HeldPiece>> part;
  for (const auto& [name, pieces] :
       parallel::held_vectors(state.optimizer(), state.store().ranges(), state.store().values())) {
    std::vector<optim::StateTensor> local;
    for (const parallel::HeldPiece& piece : pieces) {
      local.push_back({name, piece.begin, piece.tensor});
    }
    part[name == kValues ? "" : name] = parallel::pieces_in_whole(runs, local);
  }
  return part;
}

void append_pieces(const std::vector<CopiedRange>& ranges, const std::vector<std::byte>& memory,
                   std::vector<optim::StateTensor>& pieces) {
  std::size_t at = 0;
  for (const CopiedRange& range : ranges) {
    auto* bytes = const_cast<std::byte*>(memory.data() + at);
    pieces.push_back({range.name, range.begin, Tensor(bytes, {range.dtype, {range.count}})});
    at += room_of(range);
  }
}

Tensor bytes_of(std::vector<std::byte>& memory) {
  return {memory.data(), {Dtype::kU8, {static_cast<std::int64_t>(memory.size())}}};
}

}  // namespace

StateCopies::StateCopies(TrainState& state, Ranks& ranks)
    : state_(state), group_(ranks.group()), rank_(ranks.rank()), num_ranks_(ranks.size()) {
  for (const auto& [name, pieces] : own_part(state)) {
    for (const parallel::HeldPiece& piece : pieces) {
      own_ranges_.push_back({name, piece.tensor.dtype(), piece.begin, piece.tensor.num_elements()});
      sources_.push_back(piece.tensor);
    }
  }
  find_others(ranks);
  exchange_ranges();
  const std::size_t bytes = slots_.size() * (room_of(own_ranges_) + room_of(other_ranges_));
  ranks.world().agree([&] { check_memory(state.memory().total_bytes() + bytes, ranks.world()); });
  for (Slot& slot : slots_) {
    slot.own.resize(room_of(own_ranges_));
    slot.other.resize(room_of(other_ranges_));
  }
}

void StateCopies::find_others(Ranks& ranks) {
  const bool is_sharded = state_.options().data_parallel.zero != parallel::Zero::kNone;
  comm::Group& shard = ranks.shard();
  const bool has_ring = is_sharded && shard.size() > 1;
  // Data-parallel ranks without ZeRO, or other copies of what they share, hold the same.
  if (!has_ring && ranks.sharing().size() > 1) return;
  if (is_sharded && ranks.replicate() != nullptr) return;
  std::vector<int> ring;
  if (has_ring) {
    ring = shard.members();
  } else {
    for (int r = 0; r < num_ranks_; ++r) ring.push_back(r);
  }
  if (ring.size() < 2) return;
  const auto me =
      static_cast<std::size_t>(std::find(ring.begin(), ring.end(), rank_) - ring.begin());
  other_ = ring[(me + 1) % ring.size()];
  keeper_ = ring[(me + ring.size() - 1) % ring.size()];
}

void StateCopies::exchange_ranges() {
  std::string mine = to_text(own_ranges_), theirs;
  const auto text = [](std::string& bytes) {
    return Tensor(bytes.data(), {Dtype::kU8, {static_cast<std::int64_t>(bytes.size())}});
  };
  std::int64_t own_size = std::ssize(mine), other_size = 0;
  const auto swap = [&](const Tensor& send, const Tensor& receive) {
    std::vector<comm::Piece> sends, receives;
    if (keeper_ >= 0) sends.push_back({keeper_, send});
    if (other_ >= 0) receives.push_back({other_, receive});
    if (!sends.empty()) group_.exchange(sends, receives);
  };
  swap({&own_size, {Dtype::kI64, {1}}}, {&other_size, {Dtype::kI64, {1}}});
  theirs.resize(static_cast<std::size_t>(other_size));
  swap(text(mine), text(theirs));
  other_ranges_ = from_text(theirs);
}

void StateCopies::take(const Position& position) {
  if (newest() == position.step) return;
  state_.store().settle();
  Slot& slot = slots_[next_];
  slot.step = -1;
  std::size_t at = 0;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const HostRead read(sources_[i]);
    std::copy(read.bytes().begin(), read.bytes().end(),
              slot.own.begin() + static_cast<std::ptrdiff_t>(at));
    at += room_of(own_ranges_[i]);
  }
  std::vector<comm::Piece> sends, receives;
  if (keeper_ >= 0) sends.push_back({keeper_, bytes_of(slot.own)});
  if (other_ >= 0) receives.push_back({other_, bytes_of(slot.other)});
  if (!sends.empty()) group_.exchange(sends, receives);
  slot.position = position;
  slot.step = position.step;
  // Only once all ranks have these may the older ones go.
  group_.barrier();
  next_ = 1 - next_;
}

const StateCopies::Slot* StateCopies::find(std::int64_t step) const {
  for (const Slot& slot : slots_) {
    if (step >= 0 && slot.step == step) return &slot;
  }
  return nullptr;
}

std::int64_t StateCopies::newest() const {
  return std::max(slots_[0].step, slots_[1].step);
}

bool StateCopies::has(std::int64_t step) const {
  return find(step) != nullptr;
}

const Position& StateCopies::position(std::int64_t step) const {
  return find(step)->position;
}

std::vector<optim::StateTensor> StateCopies::pieces(std::int64_t step, bool with_other) const {
  const Slot* slot = find(step);
  ATOLL_CHECK(slot != nullptr, "no copies of step {}", step);
  std::vector<optim::StateTensor> pieces;
  append_pieces(own_ranges_, slot->own, pieces);
  if (with_other) append_pieces(other_ranges_, slot->other, pieces);
  std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return a.name != b.name ? a.name < b.name : a.begin < b.begin;
  });
  return pieces;
}

namespace {

std::int64_t end_of(const optim::StateTensor& piece) {
  return piece.begin + piece.tensor.num_elements();
}

// A stretch of a vector that some rank has.
struct Offer {
  std::int64_t begin = 0, end = 0;
  int rank = 0;
};

using Offers = std::map<std::string, std::vector<Offer>>;

Offers gather_offers(comm::Group& group, const std::vector<optim::StateTensor>& mine) {
  std::vector<CopiedRange> ranges;
  for (const optim::StateTensor& piece : mine) {
    const std::int64_t count = piece.tensor.num_elements();
    if (!ranges.empty() && ranges.back().name == piece.name &&
        ranges.back().begin + ranges.back().count == piece.begin) {
      ranges.back().count += count;
    } else {
      ranges.push_back({piece.name, piece.tensor.dtype(), piece.begin, count});
    }
  }
  const std::vector<std::string> texts = parallel::gather_text(&group, to_text(ranges));
  Offers offers;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    for (const CopiedRange& range : from_text(texts[r])) {
      offers[range.name].push_back({range.begin, range.begin + range.count, static_cast<int>(r)});
    }
  }
  return offers;
}

// Cuts what others give already off each; what is left covers the same elements once, in order.
std::vector<Offer> without_overlaps(std::vector<Offer> offers) {
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.rank < b.rank;
  });
  std::vector<Offer> given;
  std::int64_t end = 0;
  for (const Offer& offer : offers) {
    const std::int64_t begin = std::max(offer.begin, end);
    if (begin >= offer.end) continue;
    given.push_back({begin, offer.end, offer.rank});
    end = offer.end;
  }
  return given;
}

void check_all_there(const std::vector<Offer>& given, const parallel::FlatLayout& whole) {
  auto at = given.begin();
  for (std::size_t i = 0; i < whole.trained().size(); ++i) {
    std::int64_t next = whole.offset(i);
    const std::int64_t end = next + whole.trained()[i]->spec.shape.num_elements();
    while (at != given.end() && at->end <= next) ++at;
    for (auto from = at; from != given.end() && from->begin <= next && next < end; ++from) {
      next = from->end;
    }
    if (next >= end) continue;
    throw make_error(ErrorKind::kPeer, "no rank that is left has a copy of all of {}",
                     whole.trained()[i]->name);
  }
}

}  // namespace

std::vector<optim::StateTensor> given_once(comm::Group& group, const parallel::FlatLayout& whole,
                                           const std::vector<optim::StateTensor>& mine) {
  std::vector<optim::StateTensor> pieces;
  Offers offers = gather_offers(group, mine);
  check_all_there(without_overlaps(offers[""]), whole);
  for (auto& [name, of_name] : offers) {
    std::vector<optim::StateTensor> held;
    std::copy_if(mine.begin(), mine.end(), std::back_inserter(held),
                 [&name = name](const optim::StateTensor& piece) { return piece.name == name; });
    auto first = held.begin();
    for (const Offer& offer : without_overlaps(std::move(of_name))) {
      if (offer.rank != group.rank()) continue;
      std::int64_t done = offer.begin;  // two pieces of this rank may have the same elements
      for (auto piece = first; piece != held.end() && piece->begin < offer.end; ++piece) {
        const std::int64_t end = std::min(offer.end, end_of(*piece));
        if (end <= done) continue;
        pieces.push_back({name, done, piece->tensor.rows(done - piece->begin, end - piece->begin)});
        done = end;
      }
      while (first != held.end() && end_of(*first) <= offer.end) ++first;
    }
  }
  return pieces;
}

}  // namespace atl::train
