#pragma once

#include <string_view>

#include "atoll/base/error.h"

namespace atl::comm {

/// Another rank is gone, hangs, or makes other calls. Kind kPeer.
class PeerError : public Error {
 public:
  /// `rank`: which rank of the world it is about; -1: unknown.
  PeerError(int rank, std::string_view message) : Error(ErrorKind::kPeer, message), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

}  // namespace atl::comm
