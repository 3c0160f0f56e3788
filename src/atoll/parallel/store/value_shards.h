#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/parallel/layout/flat_layout.h"
#include "atoll/parallel/schedule/schedule.h"
#include "atoll/tensor/file_arena.h"

namespace atl::parallel {

/// Sharded parameters: each rank permanently keeps only its part of every bucket. Ranks all-gather
/// a bucket for the passes that use it. The gather starts one pass earlier and runs during that
/// pass; memory for the whole bucket is planned for this time alone. Where the parts lie in a file,
/// the read of a part starts two passes earlier.
class ValueShards {
 public:
  /// `layout` must outlive this. `rank`: this rank, less than layout.num_ranks().
  ValueShards(const FlatLayout& layout, int rank, bool in_file);

  /// Only where parts lie in a file, which must outlive this. To be called before bind().
  void request_file(MemoryPlan& file);
  void bind_file(FileArena& file);

  void request(MemoryPlan& plan, const Schedule& schedule);
  void bind(const Arena& arena);

  /// This rank's parts of all buckets, in order: (share).
  Tensor values() const { return values_; }
  /// Begins a walk over the passes of the schedule, with no bucket gathered. `group`: the ranks of
  /// the layout.
  void begin_walk(comm::Group& group);
  /// Waits for the buckets of a pass, points their Params into the gathered values, and starts to
  /// gather the buckets of the next pass. It calls `wait` to wait for a Work. Every rank of the
  /// group must call it for the same passes.
  void acquire(Run& run, std::size_t pass, const std::function<void(comm::Work&)>& wait);
  /// Waits for all reads and gathers under way, and ignores their errors.
  void abandon() noexcept;

 private:
  // The whole bucket in memory: from the start of its gather to the end of the last pass that uses
  // it.
  struct Span {
    std::size_t bucket = 0;
    std::size_t first_pass = 0, last_pass = 0;
    int request = -1;
    Tensor whole;
    comm::Work gather;
    std::future<void> read;  // of this rank's part from the file
    bool reads = false, started = false, ready = false;
  };

  void request_values(MemoryPlan& plan);
  // The first pass during which a span needs its memory.
  std::size_t first_needed(const Span& span) const;
  void start_read(Span& span);
  void start(Run& run, Span& span);
  // Copies this rank's part of a bucket to its place in `whole`.
  void get(Run& run, std::size_t bucket, const Tensor& whole) const;
  Tensor mine(std::size_t bucket) const;

  const FlatLayout& layout_;
  int rank_;
  bool in_file_;
  FileArena* file_ = nullptr;
  std::vector<bool> is_forward_;  // of each pass
  comm::Group* group_ = nullptr;
  std::vector<std::int64_t> offsets_;  // where this rank's part of each bucket begins in values_
  std::vector<Span> spans_;
  int request_ = -1;
  Tensor values_;
};

}  // namespace atl::parallel
