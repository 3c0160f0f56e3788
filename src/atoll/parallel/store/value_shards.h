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

/// Parameters of which each rank keeps its part of every bucket, gathered for as long as stages
/// use them: a bucket's gather begins one stage early, beside the stage before. Its memory is
/// planned for that time alone. Where the parts lie in a file, a part is read one stage earlier
/// still.
class ValueShards {
 public:
  /// `layout` must outlive this; `rank` of layout.num_ranks().
  ValueShards(const FlatLayout& layout, int rank, bool in_file);

  /// Only where parts lie in a file, which must outlive this: before request() and bind().
  void request_file(MemoryPlan& file);
  void bind_file(FileArena& file);

  void request(MemoryPlan& plan, const Schedule& schedule);
  void bind(const Arena& arena);

  /// This rank's parts of all buckets, in order: (share).
  Tensor values() const { return values_; }
  /// Begins a walk over the passes of the schedule: nothing is gathered. `group` are the ranks of
  /// the layout.
  void begin_walk(comm::Group& group);
  /// Waits for the buckets of a pass, points their Params into them, and begins to gather those of
  /// the next. `wait` waits for a Work.
  void acquire(Run& run, std::size_t pass, const std::function<void(comm::Work&)>& wait);
  /// Waits for what is under way, whatever it ends with.
  void abandon() noexcept;

 private:
  // A time in which a bucket is whole: from its gather to the end of its last pass.
  struct Span {
    std::size_t bucket = 0;
    std::size_t first_pass = 0, last_pass = 0;
    int request = -1;
    Tensor whole;
    comm::Work gather;
    std::future<void> read;  // of this rank's part, from the file
    bool reads = false, started = false, ready = false;
  };

  void request_values(MemoryPlan& plan);
  // The pass before which memory for a span is needed.
  std::size_t first_needed(const Span& span) const;
  void start_read(Span& span);
  void start(Run& run, Span& span);
  // Copies this rank's part of a whole bucket to it.
  void get(Run& run, std::size_t bucket, const Tensor& whole) const;
  Tensor mine(std::size_t bucket) const;

  const FlatLayout& layout_;
  int rank_;
  bool in_file_;
  FileArena* file_ = nullptr;
  std::vector<bool> is_forward_;  // of each pass
  comm::Group* group_ = nullptr;
  std::vector<std::int64_t> offsets_;  // of each bucket's part in values_
  std::vector<Span> spans_;
  int request_ = -1;
  Tensor values_;
};

}  // namespace atl::parallel
