#include "atoll/train/loop/copies_save.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/quantity.h"

namespace atl::train {

namespace {

// What a rank that is left tells the others.
struct CopyFacts {
  double old_rank = -1;
  double newest = -1;
};

std::vector<CopyFacts> gather(comm::World& left, const CopyFacts& mine) {
  std::vector<CopyFacts> all(static_cast<std::size_t>(left.size()));
  all[static_cast<std::size_t>(left.rank())] = mine;
  constexpr std::int64_t kWidth = sizeof(CopyFacts) / sizeof(double);
  const std::int64_t count = kWidth * left.size();
  left.all().all_gather({all.data(), {Dtype::kF64, {count}}}, left.all().even_parts(count, kWidth));
  return all;
}

}  // namespace

std::string write_copies(TrainRun& run, const StateCopies& copies, comm::World& left) {
  const std::vector<CopyFacts> facts =
      gather(left, {.old_rank = static_cast<double>(copies.rank()),
                    .newest = static_cast<double>(copies.newest())});
  auto step = static_cast<std::int64_t>(facts.front().newest);
  bool other_is_left = false;
  for (const CopyFacts& fact : facts) {
    step = std::min(step, static_cast<std::int64_t>(fact.newest));
    other_is_left |= static_cast<int>(fact.old_rank) == copies.other();
  }
  left.agree([&] {
    if (copies.has(step)) return;
    throw make_error(ErrorKind::kPeer, "no copies were made yet");
  });
  const std::vector<optim::StateTensor> given =
      given_once(left.all(), run.state().whole_layout(), copies.pieces(step, !other_is_left));
  const std::filesystem::path path = run.saver.path_of(step);
  std::int64_t is_there = 0;
  left.agree([&] {
    if (left.rank() > 0) return;
    if (!run.lock) run.lock = std::make_unique<ckpt::RunLock>(run.config.run.dir);
    is_there = path_exists(path) ? 1 : 0;
  });
  left.all().broadcast({&is_there, {Dtype::kI64, {1}}}, 0);
  if (is_there == 0) {
    save_pieces(path.parent_path(), run.state(), copies.position(step), run.model->carried(),
                run.model->base(), given, left.all());
  }
  return fmt::format("what {} of {} had of step {} is saved as {}", counted(left.size(), "rank"),
                     copies.num_ranks(), step, path.string());
}

}  // namespace atl::train
