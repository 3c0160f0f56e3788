#include "atoll/device/sdpa.h"

#include "atoll/base/error.h"

namespace atl {

bool has_cudnn() {
  return false;
}

std::string cudnn_problem() {
  return "this atoll was built without cuDNN's attention; install cuDNN and its front end (the "
         "Python package nvidia-cudnn-frontend has the headers) and build the preset cuda again "
         "(docs/gpus.md)";
}

std::unique_ptr<Sdpa> open_sdpa(void* /*stream*/) {
  throw make_error(ErrorKind::kResource, "{}", cudnn_problem());
}

}  // namespace atl
