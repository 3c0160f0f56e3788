#include "atoll/optim/offloaded_optimizer.h"

#include <algorithm>

#include "atoll/optim/registry.h"
#include "atoll/tensor/paged_memory.h"

namespace atl::optim {

namespace {

constexpr std::size_t to_page(std::size_t bytes) {
  return (bytes + kFilePage - 1) / kFilePage * kFilePage;
}

// Whether `next` follows `last` wherever their elements lie.
bool touch(const ParamRange& last, const ParamRange& next) {
  return last.begin + last.count == next.begin &&
         last.in_values() + last.count == next.in_values() &&
         last.in_grads() + last.count == next.in_grads();
}

// The first `count` elements of a range; the rest stays in it.
ParamRange take(ParamRange& range, std::int64_t count) {
  ParamRange part = range;
  part.count = count;
  range.begin += count;
  range.count -= count;
  if (range.value_begin >= 0) range.value_begin += count;
  if (range.grad_begin >= 0) range.grad_begin += count;
  return part;
}

}  // namespace

// Some ranges, one after the other in every vector.
struct OffloadedOptimizer::Piece {
  std::vector<ParamRange> ranges;  // as the store knows them
  std::int64_t count = 0;
  bool matrix = false;
  std::unique_ptr<Optimizer> optimizer;  // its vectors are places in a slot
  MemoryPlan plan;                       // of its state, within the slot
  std::unique_ptr<GivenMemory> memory;
  std::unique_ptr<Arena> arena;
  std::vector<PieceMove> state;
};

OffloadedOptimizer::OffloadedOptimizer(const OptimizerOptions& options, Spec flat,
                                       std::span<const ParamRange> ranges,
                                       const OffloadOptions& offload)
    : flat_(flat), offload_(offload), whole_(make_optimizer(options, flat, ranges)) {
  ATOLL_CHECK(offload.piece_elements > 0, "pieces of {} elements", offload.piece_elements);
  has_masters_ = flat.dtype == Dtype::kBf16 && options.masters == Masters::kF32;
  cut(options, ranges, find_optimizer(options.kind).whole_matrices);
  plan_slots();
}

OffloadedOptimizer::~OffloadedOptimizer() = default;

void OffloadedOptimizer::cut(const OptimizerOptions& options, std::span<const ParamRange> ranges,
                             bool whole) {
  for (ParamRange range : ranges) {
    if (!whole) range.matrix = false;
    while (range.count > 0) {
      const bool follows = !pieces_.empty() && pieces_.back().matrix == range.matrix &&
                           touch(pieces_.back().ranges.back(), range);
      std::int64_t room = follows ? offload_.piece_elements - pieces_.back().count : 0;
      if (range.matrix && room < range.count) room = 0;
      if (room == 0) {
        pieces_.emplace_back().matrix = range.matrix;
        room = range.matrix ? range.count : offload_.piece_elements;
      }
      Piece& piece = pieces_.back();
      piece.ranges.push_back(take(range, std::min(room, range.count)));
      piece.count += piece.ranges.back().count;
    }
  }
  for (Piece& piece : pieces_) {
    std::vector<ParamRange> inner = piece.ranges;
    const ParamRange first = piece.ranges.front();
    for (ParamRange& range : inner) {
      range.value_begin = range.in_values() - (offload_.values_in_file ? first.in_values() : 0);
      range.grad_begin = range.in_grads() - (offload_.grads_in_file ? first.in_grads() : 0);
    }
    piece.optimizer = make_optimizer(options, flat_, inner);
    MemoryPlan plan;
    piece.optimizer->request(plan);
    piece.plan = in_whole_pages(plan);
  }
}

// A slot has the state, then values and gradients, each in whole pages and one page more: they
// begin at the same place of a page as in the file.
void OffloadedOptimizer::plan_slots() {
  std::size_t state = 0, values = 0, grads = 0;
  for (const Piece& piece : pieces_) {
    state = std::max(state, piece.plan.total_bytes());
    values = std::max(values, Spec{flat_.dtype, {piece.count}}.bytes());
    grads = std::max(grads, Spec{compute_dtype(flat_.dtype), {piece.count}}.bytes());
  }
  values_at_ = to_page(state) + kFilePage;
  grads_at_ = values_at_ + (offload_.values_in_file ? to_page(values) + kFilePage : 0);
  slot_bytes_ = grads_at_ + (offload_.grads_in_file ? to_page(grads) + kFilePage : 0);
}

void OffloadedOptimizer::request_file(MemoryPlan& file) {
  whole_->request(file);
}

void OffloadedOptimizer::request(MemoryPlan& plan) {
  // The update comes after the last pass: pieces share the memory of activations.
  const std::int64_t tick = MemoryPlan::kForever - 1;
  for (std::size_t i = 0; i < std::min(kSlots, pieces_.size()); ++i) {
    slots_[i].request = plan.request("piece " + std::to_string(i) + " of optimizer state",
                                     "offload pieces", slot_bytes_ + kFilePage, tick, tick);
  }
}

void OffloadedOptimizer::bind_file(FileArena& file) {
  file_ = &file;
  whole_->bind(file.arena());
}

void OffloadedOptimizer::take_host_memory(Device& gpu, const MemoryPlan& plan) {
  host_.emplace(gpu);
  host_arena_ = std::make_unique<Arena>(*host_, plan);
  whole_->bind(*host_arena_);
}

void OffloadedOptimizer::make_moves() {
  std::vector<Tensor> slots;
  for (const Slot& slot : slots_) {
    if (slot.request >= 0) slots.push_back(slot.memory);
  }
  if (slots.empty()) return;
  Device& device = *slots.front().device();
  const bool is_cpu = device.kind() == DeviceKind::kCpu;
  ATOLL_CHECK(!is_cpu || file_ != nullptr, "a CPU's state lies in the host's memory as it is");
  ATOLL_CHECK(is_cpu || !(offload_.values_in_file || offload_.grads_in_file),
              "a GPU's values and gradients in a file");
  if (is_cpu) {
    moves_ = file_moves(*file_, slots.size());
  } else {
    moves_ = file_ == nullptr ? gpu_moves(device, slots.size())
                              : gpu_file_moves(device, *file_, std::move(slots));
  }
}

void OffloadedOptimizer::bind(const Arena& arena) {
  ATOLL_CHECK(file_ != nullptr || host_arena_ != nullptr, "bound to memory before its file");
  for (Slot& slot : slots_) {
    if (slot.request < 0) continue;
    const auto bytes = static_cast<std::int64_t>(slot_bytes_ + kFilePage);
    slot.memory = from_first_page(arena.tensor(slot.request, {Dtype::kU8, {bytes}}));
  }
  make_moves();
  const std::vector<StateTensor> all = whole_->state();
  for (std::size_t number = 0; number < pieces_.size(); ++number) {
    Piece& piece = pieces_[number];
    const Tensor& memory = slots_[number % kSlots].memory;
    const auto outside = [&](const StateTensor& part) {
      const std::int64_t end = part.begin + part.tensor.num_elements();
      const auto found = std::find_if(all.begin(), all.end(), [&](const StateTensor& whole) {
        return whole.name == part.name && whole.begin <= part.begin &&
               end <= whole.begin + whole.tensor.num_elements();
      });
      ATOLL_CHECK(found != all.end(), "no {} of elements {} to {}", part.name, part.begin, end);
      return found->tensor.rows(part.begin - found->begin, end - found->begin);
    };
    // All vectors of a piece begin at the same place of a page of the file: they are cut alike.
    const auto place = [&](std::size_t lead) {
      piece.arena.reset();
      piece.memory = memory_in(*memory.device(), memory, lead);
      piece.arena = std::make_unique<Arena>(*piece.memory, piece.plan);
      piece.optimizer->bind(*piece.arena);
    };
    place(0);
    const std::vector<StateTensor> parts = piece.optimizer->state();
    if (parts.empty()) continue;
    if (file_ != nullptr) place(file_->place_in_page(outside(parts.front())));
    piece.state.clear();
    for (const StateTensor& part : piece.optimizer->state()) {
      piece.state.push_back({outside(part), at_same_place(part.tensor, memory, memory)});
    }
  }
}

Tensor OffloadedOptimizer::part_of(const Piece& piece, const Tensor& flat, bool is_values) const {
  const ParamRange& first = piece.ranges.front();
  const std::int64_t begin = is_values ? first.in_values() : first.in_grads();
  return flat.rows(begin, begin + piece.count);
}

Tensor OffloadedOptimizer::staged(std::size_t number, const Tensor& part, std::size_t at) const {
  const Tensor& memory = slots_[number % kSlots].memory;
  return placed_like(*file_, part,
                     memory.rows(static_cast<std::int64_t>(at), memory.num_elements()));
}

void OffloadedOptimizer::start_read(std::size_t number, const Tensor& values, const Tensor& grads) {
  const Piece& piece = pieces_[number];
  std::vector<PieceMove> moves = piece.state;
  if (offload_.values_in_file) {
    const Tensor part = part_of(piece, values, true);
    moves.push_back({part, staged(number, part, values_at_)});
  }
  if (offload_.grads_in_file && grads.defined()) {
    const Tensor part = part_of(piece, grads, false);
    moves.push_back({part, staged(number, part, grads_at_)});
  }
  moves_->start_read(number % kSlots, std::move(moves));
}

void OffloadedOptimizer::start_write(Run& run, std::size_t number, const Tensor& values) {
  const Piece& piece = pieces_[number];
  std::vector<PieceMove> moves = piece.state;
  if (offload_.values_in_file) {
    const Tensor part = part_of(piece, values, true);
    moves.push_back({part, staged(number, part, values_at_)});
  }
  moves_->start_write(run, number % kSlots, std::move(moves));
}

bool OffloadedOptimizer::lies_as_planned(const Tensor& flat, bool in_file) const {
  return !flat.defined() || (file_ != nullptr && file_->holds(flat)) == in_file;
}

// Calls change(piece, values, grads) for each piece while it is in its slot. Nothing may use the
// slots once a call has ended.
template <typename Change>
void OffloadedOptimizer::over_pieces(Run& run, const Tensor& values, const Tensor& grads,
                                     Change&& change) {
  ATOLL_CHECK(lies_as_planned(values, offload_.values_in_file) &&
                  lies_as_planned(grads, offload_.grads_in_file),
              "values or gradients lie elsewhere than was planned");
  if (pieces_.empty()) return;
  try {
    moves_->begin(run);
    for (std::size_t number = 0; number < pieces_.size(); ++number) {
      if (number == 0) start_read(number, values, grads);
      if (number + 1 < pieces_.size()) start_read(number + 1, values, grads);
      moves_->finish_read(run, number % kSlots);
      const auto given = [&](const Tensor& flat, bool is_values, bool in_file, std::size_t at) {
        if (!in_file || !flat.defined()) return flat;
        return staged(number, part_of(pieces_[number], flat, is_values), at);
      };
      change(pieces_[number], given(values, true, offload_.values_in_file, values_at_),
             given(grads, false, offload_.grads_in_file, grads_at_));
      start_write(run, number, values);
    }
    moves_->end(run);
  } catch (...) {
    moves_->abandon();
    throw;
  }
}

void OffloadedOptimizer::init_masters(Run& run, Tensor values) {
  if (!has_masters_) return;
  over_pieces(run, values, {}, [&](Piece& piece, const Tensor& piece_values, const Tensor&) {
    piece.optimizer->init_masters(run, piece_values);
  });
}

void OffloadedOptimizer::update(Run& run, const StepArgs& args, Tensor values, Tensor grads) {
  over_pieces(run, values, grads,
              [&](Piece& piece, const Tensor& piece_values, const Tensor& piece_grads) {
                piece.optimizer->update(run, args, piece_values, piece_grads);
              });
}

std::vector<StateTensor> OffloadedOptimizer::state() const {
  if (moves_ != nullptr) moves_->settle();
  return whole_->state();
}

std::size_t OffloadedOptimizer::num_pieces() const {
  return pieces_.size();
}

std::size_t OffloadedOptimizer::scratch_bytes() const {
  return whole_->scratch_bytes();
}

}  // namespace atl::optim
