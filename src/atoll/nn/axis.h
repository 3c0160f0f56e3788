#pragma once

#include "atoll/comm/group.h"

namespace atl::nn {

/// The ranks along one axis of the mesh, as layers see them: a model is built, and its memory
/// planned, before there is a Group.
struct Axis {
  int size = 1;
  int rank = 0;                  ///< this one among them
  comm::Group* group = nullptr;  ///< null until the ranks are connected, and on an axis of one
  double waited_seconds = 0;     ///< that layers have waited for the other ranks
};

}  // namespace atl::nn
