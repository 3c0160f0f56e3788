#include "atoll/parallel/runner/pass_graphs.h"

#include <algorithm>
#include <utility>

namespace atl::parallel {

PassGraphs::Captured PassGraphs::capture(Run run, const std::function<void(Run& run)>& queue) {
  auto& stream = dynamic_cast<cuda::KernelStream&>(*run.stream);
  Captured captured;
  captured.record = std::make_unique<ops::StepRecord>(run.stream->device());
  run.record = captured.record.get();
  stream.begin_capture();
  try {
    queue(run);
  } catch (...) {
    stream.abandon_capture();
    throw;
  }
  captured.graph = stream.end_capture();
  return captured;
}

void PassGraphs::run(const Run& run, const Batch& batch, bool begins,
                     const std::function<void(Run& run)>& queue) {
  const Addresses addresses = {batch.tokens.raw(), batch.targets.raw(), batch.positions.raw(),
                               batch.sequence_positions.raw()};
  if (addresses != std::exchange(addresses_, addresses)) graphs_.clear();
  const auto [found, is_first] = graphs_.try_emplace(begins);
  Run inner = run;
  inner.first_sample = batch.first_sample;
  if (is_first) return queue(inner);
  Captured& captured = found->second;
  if (captured.graph == nullptr) captured = capture(inner, queue);
  captured.record->write(inner);
  dynamic_cast<cuda::KernelStream&>(*run.stream).launch(*captured.graph);
}

std::size_t PassGraphs::num_captured() const {
  return static_cast<std::size_t>(std::count_if(
      graphs_.begin(), graphs_.end(), [](const auto& one) { return one.second.graph != nullptr; }));
}

}  // namespace atl::parallel
