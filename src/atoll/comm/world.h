#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/comm/peer_error.h"
#include "atoll/comm/record/recorder.h"
#include "atoll/comm/transport.h"
#include "atoll/comm/world_options.h"

namespace atl::comm {

struct WorldState;
class Channel;

/// All ranks of one island, as one of them sees them. Owns the channels, each with its transport
/// and the thread on which its started collectives run, and the record of the last ones. When a
/// collective fails, all channels end with its error.
class World {
 public:
  World(std::unique_ptr<Transport> transport, const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  /// Of the backend.
  std::string backend() const;
  const WorldOptions& options() const;

  /// The group of all ranks.
  Group& all();
  /// A group of some of them: every member makes it, with the same ranks (ascending) and name. Its
  /// calls are in one order with those of all().
  std::unique_ptr<Group> group(std::vector<int> members, std::string name);
  /// A group whose calls are in the order of `channel`, which has all its ranks.
  std::unique_ptr<Group> group(std::vector<int> members, std::string name, Channel& channel);
  /// The channel of that name between `members` (ascending, this rank among them), opened when it
  /// is asked for first. All ranks of the world ask for the same names, new ones in the same order,
  /// each rank with the members that it shares the channel with. The first name with two members or
  /// more gets the channel that all() has, so that a Mesh with one axis in use has one channel.
  Channel& channel(const std::string& name, const std::vector<int>& members);

  /// The last collectives of this rank, oldest first.
  const Recorder& recorder() const;
  /// See Recorder::listen().
  void listen(std::function<void(const RecordedCall& call)> listener);
  /// Tells the others that this rank ends with an error; nothing when agree() has just told all.
  void abort(const std::string& why) noexcept;

  /// Runs `action` on every rank, and says on all of them whether all came through: when some threw
  /// an Error, every rank throws the one of the lowest of them, and reports() is true on that rank
  /// alone, so that a mistake that all ranks see is told once. Every rank must call it. The action
  /// makes no collective calls; it may take longer than the timeout, as long as its rank lives.
  void agree(const std::function<void()>& action);
  /// Whether it is this rank that prints what a failed agree() threw; true before any.
  bool reports() const;

  /// Of the files of comm/ alone.
  WorldState& state() { return *state_; }

 private:
  int number_of(const std::string& name);

  std::unique_ptr<WorldState> state_;
};

/// The world of a process that is alone.
std::unique_ptr<World> open_self(const WorldOptions& options = {});

/// Runs `body` on `num_ranks` threads of this process, each a rank with a World of its own, and
/// returns when all have ended. When some throw, the others' collectives end with a PeerError; what
/// the first of them threw is thrown here.
void run_threads(int num_ranks, const WorldOptions& options,
                 const std::function<void(World& world)>& body);

}  // namespace atl::comm
