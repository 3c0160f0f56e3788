#pragma once

// What workers, servers and the scheduler say to each other. docs/parameter-server.md draws it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "atoll/param_server/slices.h"
#include "atoll/tensor/spec.h"

namespace atl::param_server {

/// Both sides of a connection must speak the same.
inline constexpr std::uint32_t kProtocolVersion = 4;

/// When a worker may go on, and what a push does.
enum class Consistency : std::uint8_t {
  kBsp,    ///< an update is made of the pushes of all lanes, in lane order; pulls wait for it
  kSsp,    ///< a round of pushes is an update; pulls wait while a lane is more than s steps behind
  kAsync,  ///< a round of pushes is an update; pulls wait for nothing but own pushes
  kEasgd,  ///< a push is added to the values
};

/// What a run's parameters are and how they are trained: what the lead worker says, and servers
/// and the other workers must agree with.
struct RunSpec {
  std::uint32_t version = kProtocolVersion;
  std::string identity;  ///< a hash of model, data and settings
  Consistency consistency = Consistency::kBsp;
  std::int64_t staleness = 0;
  double compensation = 0;     ///< lambda of delay compensation; 0: none
  std::int64_t num_lanes = 1;  ///< workers that a step is made for; see Scheduler
  std::int64_t replicas = 1;   ///< servers that have a copy of each slice, while there are so many
  std::int64_t num_servers = 1;  ///< that must be there before the run begins
  std::int64_t num_workers = 1;  ///< the same
  std::int64_t first_step = 0;
  std::int64_t num_steps = 0;    ///< the run ends after this one
  std::int64_t fence_every = 0;  ///< steps at which all lanes meet for a checkpoint; 0: at the end
  std::uint64_t seed = 0;
  Dtype dtype = Dtype::kF32;
  std::int64_t num_elements = 0;  ///< of the flat vector
  optim::OptimizerOptions optimizer;
  std::vector<Slice> slices;
};

using ServerId = std::uint32_t;
inline constexpr ServerId kNobody = 0;

/// A server as the scheduler knows it. It never has the same number twice.
struct ServerEntry {
  ServerId id = kNobody;
  std::string address;
};

/// Who has which slice. Views are made by the scheduler alone; a higher number is newer.
struct View {
  std::uint64_t number = 0;
  std::vector<ServerEntry> servers;
  /// Of each slice, first the head, which workers speak with; empty: no server has it now.
  std::vector<std::vector<ServerId>> chains;
  /// A server that is getting a copy of the slice; kNobody: none is.
  std::vector<ServerId> joining;
};

/// A lane is a worker's place in a step: a fixed share of each step's micro-batches. Whoever has
/// the lane makes its pushes, one for each step, in order.
struct LaneAt {
  std::int64_t lane = 0;
  std::int64_t step = 0;  ///< the next one
};

/// Which scheduler speaks. A scheduler that goes on from its disk has the run of the one before,
/// and a higher epoch: whoever has heard of that one takes nothing from an older one any more.
struct Term {
  std::uint64_t run = 0;    ///< at random, of each start of a run; 0: none was heard of
  std::uint64_t epoch = 0;  ///< from 1
};

// To the scheduler, and from it.
/// A worker says who it is, first on each connection.
struct WorkerHello {
  std::uint32_t version = kProtocolVersion;
  std::string identity;
  std::int64_t worker = 0;    ///< number of the worker; 0 leads
  std::vector<LaneAt> lanes;  ///< that it has, and how far it has come
};
/// A server does.
struct ServerHello {
  std::uint32_t version = kProtocolVersion;
  std::string address;
  std::string identity;               ///< of the run whose slices it has; "" none
  std::vector<std::uint32_t> slices;  ///< that it has, from its disk or because only its link broke
  Term term;                          ///< of the scheduler that called it `server`
  ServerId server = kNobody;          ///< what it was called; kNobody: it is new
  bool is_restored = false;           ///< it has started again since, with what its disk had
};
/// What the run is.
struct Offer {
  RunSpec spec;  ///< from the lead worker
};
/// The scheduler has taken a server, or lets a worker begin.
struct Welcome {
  Term term;
  ServerId server = kNobody;  ///< what a server is called from now on
  bool shall_load = false;    ///< the lead shall give all slices their state
  std::int64_t step = 0;      ///< that a worker's clock begins with
};
/// The scheduler has not; the connection ends.
struct Refused {
  std::string why;
};
/// The lead has given all slices their state.
struct Loaded {
  std::uint64_t view = 0;  ///< that it knew when it began: those of an older one may be elsewhere
};
struct Assign {
  std::vector<LaneAt> lanes;  ///< all that the worker has now
  std::int64_t until = 0;     ///< no lane begins this step yet
};
struct Done {
  LaneAt at;  ///< `step` is the next one
};
struct Released {
  LaneAt at;  ///< a lane that an Assign took away
};
struct Save {
  std::int64_t step = 0;
};
struct Saved {
  std::int64_t step = 0;
};
struct StopRun {};  ///< a worker was asked to end the run
struct End {
  std::string why;  ///< "" all steps are done
};
struct Ready {
  std::uint32_t slice = 0;
  ServerId server = kNobody;  ///< whose copy is complete: the head waits for it from now on
};

// Between a worker and the head of a slice.
/// A gradient of one lane, for one slice.
struct Push {
  std::uint32_t slice = 0;
  std::int64_t step = 0;
  std::int64_t lane = 0;
  bool is_skipped = false;  ///< its gradient is not finite: it counts, and changes nothing
  double lr = 0;            ///< ssp and async
  double scale = 1;         ///< what multiplies the gradient, there: clipping
  double loss = 0;          ///< bsp: the sum of the lane's losses
  std::string data;         ///< gradients in the compute dtype; easgd: what to add
};
/// It counts, or has counted before.
struct Pushed {
  std::uint32_t slice = 0;
  std::int64_t lane = 0;
  std::int64_t next = 0;  ///< the lane's step that the slice waits for
};
/// bsp: asks for the sum of a step.
struct AwaitSum {
  std::uint32_t slice = 0;
  std::int64_t step = 0;
  std::vector<std::int64_t> lanes;  ///< whose pushes of this step the caller has had acknowledged
};
/// bsp: what a worker must know of the sum to decide the update.
struct Sum {
  std::uint32_t slice = 0;
  std::int64_t step = 0;
  std::vector<double> squares;  ///< of the blocks of the norm; empty: the step is long past
  std::vector<double> losses;   ///< of each lane
};
/// How the update of a step is made: bsp.
struct Update {
  bool is_given = false;
  bool is_skipped = false;
  double lr = 0;
  double scale = 1;
};
struct Pull {
  std::uint32_t slice = 0;
  std::int64_t step = 0;  ///< that the values are for
  std::int64_t lane = 0;
  Update update;  ///< bsp: of step - 1
};
struct Values {
  std::uint32_t slice = 0;
  std::int64_t step = 0;
  std::int64_t lane = 0;
  std::int64_t slowest = 0;  ///< the fewest steps that any lane had pushed
  std::int64_t next = 0;     ///< what this lane is to push next
  std::string data;          ///< in the values' dtype
};
struct Load {
  std::uint32_t slice = 0;
  std::int64_t step = 0;     ///< of all lanes
  std::int64_t updates = 0;  ///< of the optimizer so far
  std::string values;
  std::vector<std::string> state;  ///< dense, in the order of state_names()
};
struct LoadedSlice {
  std::uint32_t slice = 0;
};
struct Read {
  std::uint32_t slice = 0;
  std::int64_t step = 0;  ///< that all lanes have come to
};
struct State {
  std::uint32_t slice = 0;
  std::string values;
  std::vector<std::string> state;
};
/// Whoever was asked is not the head of the slice: a view says who is.
struct NotHead {
  std::uint32_t slice = 0;
};

/// How far lanes are, from whoever has them, to each server: when they meet it, when lanes change
/// hands, and when all of them wait for a checkpoint. A server that has lost pushes of a lane whose
/// worker asks for nothing more would wait for them.
struct Clocks {
  std::vector<LaneAt> lanes;
};

// Between the head of a slice and the others that have it.
/// An event of a slice, for those that have a copy.
struct Replicate {
  std::uint32_t slice = 0;
  std::uint64_t view = 0;
  std::uint64_t sequence = 0;
  std::string event;  ///< an encoded Push, Pull or Load
};
/// All of a slice.
struct Copy {
  std::uint32_t slice = 0;
  std::uint64_t view = 0;
  std::uint64_t sequence = 0;
  std::string state;  ///< SliceState::encode
};
/// A copy has taken all events up to this one.
struct Replicated {
  std::uint32_t slice = 0;
  std::uint64_t view = 0;
  std::uint64_t sequence = 0;
};

using Message = std::variant<WorkerHello, ServerHello, Offer, Welcome, Refused, View, Loaded,
                             Assign, Done, Released, Save, Saved, StopRun, End, Ready, Push, Pushed,
                             AwaitSum, Sum, Pull, Values, Load, LoadedSlice, Read, State, NotHead,
                             Replicate, Copy, Replicated, Clocks>;

/// A frame holds one message. Slices are small enough for that (kMaxSliceElements).
inline constexpr std::size_t kMaxFrame = std::size_t{64} << 20;

/// What a scheduler must not forget, for its disk.
struct SchedulerState {
  struct KnownWorker {
    std::int64_t number = 0;
    std::string identity;
  };
  struct KnownLane {
    std::int64_t owner = -1;  ///< number of the worker; -1: nobody has it
    std::int64_t next = 0;
    bool is_releasing = false;
  };
  struct Leaving {
    std::uint32_t slice = 0;
    ServerId server = kNobody;
  };
  Term term;
  bool has_spec = false;
  RunSpec spec;
  View view;  ///< with the servers
  ServerId last_server = kNobody;
  std::vector<KnownWorker> workers;
  std::vector<KnownLane> lanes;
  std::vector<Leaving> leaving;
  std::int64_t until = 0;
  bool is_loaded = false, is_begun = false, is_saving = false, stops = false, is_over = false;
  std::string end_why;
};
std::string encode(const SchedulerState& state);
/// Throws Error(kDamaged) for bytes that are none, or of what no run is.
SchedulerState decode_scheduler(std::string_view bytes);

/// The bytes of a message.
std::string encode(const Message& message);
/// Throws Error(kDamaged) for bytes that are no message.
Message decode(std::string_view frame);

/// Throws Error(kDamaged) for what no run is: counts below 1, slices that are not one after the
/// other, or have no room in a frame.
void check_spec(const RunSpec& spec);

/// The names of the dense vectors of Load and State: what the optimizer keeps.
std::vector<std::string> state_names(const optim::OptimizerOptions& options, Dtype dtype);

}  // namespace atl::param_server
