#pragma once

#include <string>

namespace atl::cli {

/// How this program was compiled.
struct Build {
  std::string type;        ///< CMAKE_BUILD_TYPE
  std::string sanitizers;  ///< "address,undefined", or empty
  std::string compiler;    ///< "GNU 12.2.0"
};

/// The build that is running.
Build this_build();

}  // namespace atl::cli
