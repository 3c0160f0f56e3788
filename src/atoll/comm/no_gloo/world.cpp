#include "atoll/comm/gloo/world.h"
#include "atoll/base/error.h"

namespace atl::comm {

bool has_gloo() {
  return false;
}

std::unique_ptr<World> open_gloo(const GlooOptions&, const WorldOptions&) {
  throw user_error(
      "backend gloo cannot be used: this atoll was built without Gloo; install the "
      "package libgloo-dev and build again, or use another backend");
}

}  // namespace atl::comm
