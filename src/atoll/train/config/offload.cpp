#include "atoll/train/config/offload.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

void add_offload(SettingRegistry& settings, OffloadSettings& o) {
  constexpr const char* kInMemory =
      "the state of a run on a CPU lies in the host's memory as it is";
  constexpr const char* kShare = "dp.zero shares the state among ranks instead";
  settings.group("offload",
                 "Training state that is too large for memory, in a file: docs/offload.md. Changes "
                 "no bit of the result.",
                 Scope::kIsland);
  settings
      .add("offload.optimizer", &o.optimizer,
           "Where the optimizer's state lies. file: on the disk, read and written a piece at a "
           "time during the update. host: memory of the host beside that of a GPU.",
           one_of({"none", "file", "host"}))
      .when("host")
      .needs("device.kind", {"cuda", "fake_cuda"}, kInMemory)
      .when({})
      .not_beside("parallel.layout", "auto", "the planner does not know how fast the disk is")
      .not_beside("parallel.tp", kShare)
      .not_beside("parallel.pp", kShare)
      .not_beside("parallel.cp", kShare)
      .not_beside("parallel.ep", kShare)
      .not_beside("lora.rank", "an adapter's state is small")
      .not_beside("launch.replicate", "a copy would lie in memory")
      .not_beside("island.coordinator", "an outer step needs the state in memory")
      .not_beside("checkpoint.async", "it copies the whole state in memory");
  settings
      .add("offload.params", &o.params,
           "Where parameters and gradients lie. file: on the disk; a stage's are in memory while "
           "it runs.",
           one_of({"none", "file", "host"}))
      .when("host")
      .needs("device.kind", {"cuda", "fake_cuda"}, kInMemory)
      .when({})
      .not_beside("device.kind", {"cuda", "fake_cuda"},
                  "that is not built yet, and several GPUs share parameters with dp.zero=3, beside "
                  "offload.optimizer")
      .needs("offload.optimizer", "file")
      .not_beside("train.exact");
  settings
      .add("offload.dir", &o.dir,
           "Directory of the file, on a fast disk of this machine; empty: run.dir. The file has no "
           "name and goes when the run ends.")
      .with_scope(Scope::kHost)
      .only_with("offload.optimizer", "file");
  settings
      .add("offload.piece_mib", &o.piece_mib,
           "MiB of each f32 vector (gradients, moments, ...) in a piece of an update; three pieces "
           "are in memory at once.",
           between(0.03125, 1024))
      .only_with("offload.optimizer", {"file", "host"});
  settings.known_elsewhere_as("offload.optimizer",
                              {"offload_optimizer", "optimizer_offload", "cpu_offload"});
  settings.known_elsewhere_as("offload.params", {"offload_param", "offload_params"});
  settings.known_elsewhere_as("offload.dir", {"nvme_path", "offload_dir"});
}

}  // namespace atl::train
