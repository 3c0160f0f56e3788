#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "atoll/param_server/messages.h"

namespace atl::param_server {

/// When a worker asks a server again that has closed the link in place of an answer: whoever asks
/// at once asks for ever, as fast as links open. Each pause is twice as long as the one before.
class Pauses {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kFirst{50};
  static constexpr std::chrono::milliseconds kLast{5000};

  /// The link to it is there, for the first time or again: whether it is to be asked now. Else
  /// due() gives it later.
  bool opened(ServerId server, Time now);
  void answered(ServerId server) { links_[server].silences = 0; }
  /// How often in a row the link has been there without an answer until it closed; 0: it was not
  /// there.
  int closed(ServerId server);
  /// Those that are to be asked now.
  std::vector<ServerId> due(Time now);

 private:
  struct Link {
    int silences = 0;  // this one included, until there is an answer
    bool is_open = false;
    bool is_waiting = false;  // to be asked
    Time until = {};
  };
  std::map<ServerId, Link> links_;
};

}  // namespace atl::param_server
