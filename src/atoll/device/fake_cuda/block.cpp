#include "atoll/device/fake_cuda/block.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/rng.h"

namespace atl::fake_cuda {

namespace {

// ThreadSanitizer looks for races between fibers, so each thread of the block has its own; else a
// thread that ends leaves its stack to one that has not begun, and one stack does for a kernel
// without barriers.
constexpr bool kSharesFibers = !kHasThreadSanitizer;

std::string line_of(const Where& where) {
  const std::string_view path = where.file;
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), where.line);
}

}  // namespace

constinit thread_local Block* Block::running_ = nullptr;

Block::~Block() {
  const Unwatched books;
  shared_.reset();
  threads_.clear();
  warps_.clear();
}

void Block::fail_outside_kernels() {
  ATOLL_CHECK(false, "no kernel is running on this thread");
  std::abort();
}

void Block::fail(const std::string& what, Where where) const {
  throw make_error(ErrorKind::kInternal, "kernel {}, block ({}, {}), thread {}, {}: {}", code_.name,
                   x_, y_, thread_, line_of(where), what);
}

void Block::fail_access(std::int64_t i, int count, std::int64_t size, const char* which,
                        Where where) const {
  if (i < 0 || i + count > size) {
    fail(fmt::format("elements {} to {} of {} in {}", i, i + count, size, which), where);
  }
  fail(fmt::format("{} elements from {} on are not aligned", count, i), where);
}

void Block::run(const cuda::KernelCode& code, const cuda::LaunchShape& shape, const void* operands,
                std::uint32_t x, std::uint32_t y, Order order, Checks checks) {
  code_ = code;
  shape_ = shape;
  operands_ = operands;
  x_ = x;
  y_ = y;
  checks_ = checks;
  traffic_ = {};
  prepare();
  Block* const outer = running_;
  running_ = this;
  try {
    run_all(order);
  } catch (...) {
    running_ = outer;
    for (std::size_t i = 0; i < shape_.threads; ++i) threads_[i].fiber->abandon();
    throw;
  }
  running_ = outer;
  for (int warp = 0; warp < static_cast<int>(accesses_.size()); ++warp) count_accesses(warp);
}

void Block::prepare() {
  const Unwatched books;
  const std::size_t n = shape_.threads;
  while (threads_.size() < n) threads_.emplace_back().fiber = std::make_unique<Fiber>();
  for (std::size_t i = 0; i < n; ++i) {
    threads_[i].state = State::kReady;
    threads_[i].has_begun = false;
    threads_[i].meeting = 0;
    threads_[i].copies.clear();
    threads_[i].copy_group = 0;
  }
  warps_.resize(std::max(warps_.size(), n / kWarp));
  for (std::size_t i = 0; i < n / kWarp; ++i) {
    warps_[i].arrived = 0;
    warps_[i].meeting = 0;
    warps_[i].order = 0;
  }
  prepare_shared();
  accesses_.resize(checks_.counts_accesses ? n / kWarp : 0);
  for (WarpAccesses& accesses : accesses_) accesses.clear();
  if (touches_.size() < (shape_.shared_bytes + 1) / 2 || epoch_ > UINT32_MAX / 2) {
    touches_.assign((shape_.shared_bytes + 1) / 2, Touch{});
    epoch_ = 0;
  }
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0);
  num_done_ = arrived_ = 0;
  ++epoch_;
  error_ = nullptr;
}

void Block::prepare_shared() {
  constexpr std::size_t kRedZone = 4096;  // behind what the block has; nobody may touch it
  // ThreadSanitizer forgets who touched memory when it is given back: no order of blocks is known
  // to it, and the next block begins with none of this one's accesses.
  if (shared_capacity_ < shape_.shared_bytes || kHasThreadSanitizer) {
    const std::size_t before = shared_capacity_ + kRedZone;
    if (shared_) bound_memory(shared_.get(), before, before);
    shared_capacity_ = std::max<std::size_t>(shared_capacity_, shape_.shared_bytes);
    shared_ = std::unique_ptr<std::byte[]>(new std::byte[shared_capacity_ + kRedZone]);
  }
  if (shared_) bound_memory(shared_.get(), shape_.shared_bytes, shared_capacity_ + kRedZone);
  if (shape_.shared_bytes > 0) std::memset(shared_.get(), 0xff, shape_.shared_bytes);
}

Block::Thread* Block::next_ready() {
  while (turn_ < order_.size()) {
    const int thread = order_[turn_++];
    Thread& at = threads_[static_cast<std::size_t>(thread)];
    if (at.state != State::kReady) continue;
    thread_ = thread;
    return &at;
  }
  return nullptr;
}

Fiber& Block::begun(Thread& thread) {
  if (!thread.has_begun) {
    thread.has_begun = true;
    thread.fiber->start([](void* block) { static_cast<Block*>(block)->run_threads(); }, this);
  }
  return *thread.fiber;
}

// What a fiber runs: its thread, then those whose turn it is and that have not begun. Errors are
// kept for run_all, on whose stack they go on.
void Block::run_threads() {
  while (true) {
    Thread& self = threads_[static_cast<std::size_t>(thread_)];
    await_at(operands_);
    try {
      code_.shim(operands_);
      if (!self.copies.empty()) {
        fail("ends without waiting for its asynchronous copies", self.copies.back().where);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    self.state = State::kDone;
    ++num_done_;
    if (error_ || !kSharesFibers) return;
    Thread* next = next_ready();
    if (next == nullptr) return;
    if (next->has_begun) {
      --turn_;  // run_all resumes it
      return;
    }
    next->has_begun = true;
    std::swap(self.fiber, next->fiber);
  }
}

void Block::shuffle_order(Order order, std::uint64_t pass) {
  if (order.seed == 0) return;
  if (order.seed == 1) {
    if (pass == 0) std::reverse(order_.begin(), order_.end());
    return;
  }
  const RngStream stream(order.seed, RngPurpose::kSynthetic, (std::uint64_t{y_} << 32) | x_, pass);
  // One block of Philox seeds a pass; a linear congruential generator (Knuth's MMIX) goes on.
  const std::array<std::uint32_t, 4> words = stream.block(0);
  std::uint64_t state = (std::uint64_t{words[1]} << 32) | words[0];
  for (std::size_t i = order_.size(); i > 1; --i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::swap(order_[i - 1], order_[(state >> 32) * i >> 32]);
  }
}

void Block::run_all(Order order) {
  const int n = static_cast<int>(shape_.threads);
  for (std::uint64_t pass = 0; num_done_ < n; ++pass) {
    shuffle_order(order, pass);
    turn_ = 0;
    bool has_progressed = false;
    while (Thread* next = next_ready()) {
      has_progressed = true;
      begun(*next).resume();
      if (error_) std::rethrow_exception(error_);
    }
    if (!has_progressed) fail_stuck();
  }
}

void Block::wait_as(State state, Where where) {
  Thread& self = threads_[static_cast<std::size_t>(thread_)];
  self.state = state;
  self.where = where;
  Thread* next = Fiber::kYieldsTo ? next_ready() : nullptr;
  if (next != nullptr) return self.fiber->yield_to(begun(*next));
  self.fiber->yield();
}

void Block::fail_stuck() {
  const Thread* first = nullptr;
  std::string ended;
  for (int i = 0; i < static_cast<int>(shape_.threads); ++i) {
    const Thread& at = threads_[static_cast<std::size_t>(i)];
    if (at.state == State::kDone) {
      if (ended.empty()) ended = fmt::format("thread {} has ended", i);
    } else if (first == nullptr) {
      first = &at;
      thread_ = i;
    } else if (ended.empty() && !(at.where == first->where)) {
      ended = fmt::format("thread {} waits in {} at {}", i, at.kind, line_of(at.where));
    }
  }
  fail(fmt::format("waits in {} for threads that do not come: {}", first->kind, ended),
       first->where);
}

void Block::meet_block(Where where) {
  if (arrived_ == 0) meeting_place_ = where;
  if (!(meeting_place_ == where)) {
    fail(fmt::format("is at this barrier while others are at that of {}", line_of(meeting_place_)),
         where);
  }
  const int n = static_cast<int>(shape_.threads);
  // Two places by turns: who comes to the next barrier must not be ordered before who leaves this.
  const void* const barrier = &barriers_[epoch_ % 2];
  arrive_at(barrier);
  if (++arrived_ < n) {
    threads_[static_cast<std::size_t>(thread_)].kind = "sync_block";
    wait_as(State::kAtBlock, where);
    return await_at(barrier);
  }
  for (int warp = 0; warp < static_cast<int>(accesses_.size()); ++warp) count_accesses(warp);
  arrived_ = 0;
  ++epoch_;
  for (int i = 0; i < n; ++i) {
    if (i != thread_) threads_[static_cast<std::size_t>(i)].state = State::kReady;
  }
  await_at(barrier);
}

bool Block::meet_warp(const char* kind, Where where) {
  Warp& warp = warp_of_thread();
  if (warp.arrived == 0) {
    warp.kind = kind;
    warp.where = where;
  }
  if ((warp.kind != kind && std::string_view(warp.kind) != kind) || !(warp.where == where)) {
    fail(fmt::format("is at {} while lanes of its warp are at {} of {}", kind, warp.kind,
                     line_of(warp.where)),
         where);
  }
  const auto thread = static_cast<std::size_t>(thread_);
  Thread& self = threads_[thread];
  self.meeting = warp.meeting;
  self.kind = kind;
  if (++warp.arrived < kWarp) {
    wait_as(State::kAtWarp, where);
    return false;
  }
  if (checks_.counts_accesses) count_accesses(thread_ / kWarp);
  warp.arrived = 0;
  ++warp.meeting;
  Thread* const first = &threads_[thread - lane_of_thread()];
  for (int i = 0; i < kWarp; ++i) first[i].state = State::kReady;
  return true;
}

void Block::order_warp() {
  // All lanes come here after the meeting; the first of them counts.
  Warp& warp = warp_of_thread();
  await_at(posted(0));
  warp.order = std::max(warp.order, threads_[static_cast<std::size_t>(thread_)].meeting + 1);
}

std::byte* Block::shared(int offset, std::size_t bytes, Where where) {
  if (offset < 0 || offset % 16 != 0 ||
      static_cast<std::size_t>(offset) + bytes > shape_.shared_bytes) {
    fail(fmt::format("bytes {} to {} of {} bytes of shared memory", offset,
                     static_cast<std::size_t>(offset) + bytes, shape_.shared_bytes),
         where);
  }
  return shared_.get() + offset;
}

Block::Touch* Block::touches(const void* at, std::size_t bytes, Where where, std::size_t& count) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - shared_.get());
  if (offset + bytes > shape_.shared_bytes) {
    fail(fmt::format("{} bytes from byte {} of {} bytes of shared memory", bytes, offset,
                     shape_.shared_bytes),
         where);
  }
  count = (offset + bytes + 1) / 2 - offset / 2;
  return touches_.data() + offset / 2;
}

void Block::fail_race(const char* what, int other, Where where) const {
  fail(fmt::format("{} thread {}, with no barrier in between: a race for shared memory", what,
                   other),
       where);
}

void Block::note_access(WarpAccesses::Kind kind, const void* at, std::size_t bytes, Where where) {
  const Unwatched books;
  auto place = reinterpret_cast<std::uintptr_t>(at);
  if (kind == WarpAccesses::Kind::kSharedRead || kind == WarpAccesses::Kind::kSharedWrite) {
    place -= reinterpret_cast<std::uintptr_t>(shared_.get());
  }
  accesses_[static_cast<std::size_t>(thread_ / kWarp)].note(kind, thread_ % kWarp, place, bytes,
                                                            where);
}

void Block::count_accesses(int warp) {
  const Unwatched books;
  accesses_[static_cast<std::size_t>(warp)].count(traffic_.accesses);
}

void Block::note_shared_read(const void* at, std::size_t bytes, Where where) {
  std::size_t count = 0;
  Touch* touch = touches(at, bytes, where, count);
  if (checks_.counts_accesses) note_access(WarpAccesses::Kind::kSharedRead, at, bytes, where);
  if (!checks_.finds_races) return;
  const auto self = static_cast<std::int16_t>(thread_);
  const auto warp = static_cast<std::int16_t>(thread_ / kWarp);
  const std::uint32_t order = warps_[static_cast<std::size_t>(warp)].order;
  for (; count > 0; --count, ++touch) {
    if (touch->writer != kNobody && touch->writer != self && touch->write_epoch == epoch_ &&
        (touch->writer / kWarp != warp || touch->write_order == order)) {
      fail_race("reads what was written by", touch->writer, where);
    }
    const bool is_new =
        touch->reader == kNobody || touch->read_epoch != epoch_ ||
        (touch->reader != kMany && touch->reader_warp == warp && touch->read_order != order);
    if (is_new) {
      touch->reader = self;
    } else if (touch->reader == kMany || touch->reader_warp != warp) {
      touch->reader = kMany;
    } else if (touch->reader != self) {
      touch->reader = kLanes;
    }
    touch->reader_warp = warp;
    touch->read_epoch = epoch_;
    touch->read_order = order;
  }
}

void Block::note_shared_write(const void* at, std::size_t bytes, Where where) {
  check_shared_write(at, bytes, where);
  if (checks_.counts_accesses) note_access(WarpAccesses::Kind::kSharedWrite, at, bytes, where);
}

void Block::check_shared_write(const void* at, std::size_t bytes, Where where) {
  std::size_t count = 0;
  Touch* touch = touches(at, bytes, where, count);
  if (!checks_.finds_races) return;
  const auto self = static_cast<std::int16_t>(thread_);
  const auto warp = static_cast<std::int16_t>(thread_ / kWarp);
  const std::uint32_t order = warps_[static_cast<std::size_t>(warp)].order;
  for (; count > 0; --count, ++touch) {
    if (touch->writer != kNobody && touch->writer != self && touch->write_epoch == epoch_ &&
        (touch->writer / kWarp != warp || touch->write_order == order)) {
      fail_race("writes over what was written by", touch->writer, where);
    }
    const bool is_ordered =
        touch->reader == kNobody || touch->reader == self || touch->read_epoch != epoch_ ||
        (touch->reader != kMany && touch->reader_warp == warp && touch->read_order != order);
    if (!is_ordered) {
      fail_race("writes over what was read by",
                touch->reader >= 0 ? touch->reader : touch->reader_warp * kWarp, where);
    }
    touch->writer = self;
    touch->write_epoch = epoch_;
    touch->write_order = order;
  }
}

void Block::copy_later(void* to, const void* from, std::size_t bytes, Where where) {
  note_shared_write(to, bytes, where);
  const Unwatched books;
  Thread& self = threads_[static_cast<std::size_t>(thread_)];
  self.copies.push_back({to, from, bytes, self.copy_group, where});
}

void Block::commit_copies() {
  ++threads_[static_cast<std::size_t>(thread_)].copy_group;
}

void Block::wait_copies(int groups_left, Where where) {
  Thread& self = threads_[static_cast<std::size_t>(thread_)];
  const auto is_due = [&](const Copy& copy) { return copy.group < self.copy_group - groups_left; };
  for (const Copy& copy : self.copies) {
    if (!is_due(copy)) continue;
    check_shared_write(copy.to, copy.bytes, where);
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, copy.bytes);
    } else {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
  }
  std::erase_if(self.copies, is_due);
}

}  // namespace atl::fake_cuda
