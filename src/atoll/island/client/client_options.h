#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// Who this island is and where its run is coordinated.
struct ClientOptions {
  std::string name;
  std::string coordinator;                        ///< HOST:PORT
  std::string address;                            ///< join_addresses() of all its ranks
  std::optional<std::filesystem::path> identity;  ///< see wire::ServerOptions
  std::optional<std::filesystem::path> secret = {};
  RunIdentity run;
  RunPlan plan;
  double give_up_after_s = 600;  ///< without a coordinator: an error
  bool has_final_model = false;  ///< from its checkpoint: the run has ended, see MemberOptions
};

}  // namespace atl::island
