#include "atoll/train/loop/train_run.h"

namespace atl::train {

Saver::Source TrainRun::to_save() const {
  return {.state = state(),
          .position = position,
          .carried = model->carried(),
          .base = model->base(),
          .extra = beside_state ? beside_state() : ExtraPart()};
}

}  // namespace atl::train
