#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/serve/batch/step_adapters.h"

namespace atl::serve {

/// The adapters that requests may ask for. One that is taken out lives until the last request that
/// asked for it is done, and counts until then. Any thread may call it.
class AdapterTable {
 public:
  using Ptr = std::shared_ptr<const StepAdapter>;  // shared by the requests that ask for it

  /// Room for so many adapters, each of a rank up to that, and for one more that takes another's
  /// place.
  AdapterTable(std::int64_t max_adapters, std::int64_t max_rank)
      : max_adapters_(max_adapters), max_rank_(max_rank) {}

  /// Throws Error(kResource), saying what to do, where there is no room for an adapter of that
  /// name. One of the same name makes room for it.
  void check_room(const std::string& name) const;
  /// Requests that ask for that name get this adapter from now on. Throws as check_room, and
  /// Error(kUser) for a rank beyond the bound.
  void put(StepAdapter adapter);
  /// From now on there is none of that name. False: there was none.
  bool remove(const std::string& name);
  /// Null: there is none of that name.
  Ptr find(const std::string& name) const;
  /// In the order in which they came.
  std::vector<std::string> names() const;

 private:
  void check_room_locked(const std::string& name) const;
  std::int64_t place_of(const std::string& name) const;  // -1: none

  const std::int64_t max_adapters_, max_rank_;
  mutable std::mutex mutex_;
  std::vector<Ptr> served_;
  mutable std::vector<std::weak_ptr<const StepAdapter>> alive_;  // those taken out among them
  std::uint64_t next_number_ = 1;
};

}  // namespace atl::serve
