#include "atoll/comm/world.h"

#include <algorithm>
#include <mutex>

#include "atoll/comm/world_state.h"

namespace atl::comm {

World::World(std::unique_ptr<Transport> transport, const WorldOptions& options)
    : state_(std::make_unique<WorldState>(std::move(transport), options)) {
  state_->all = group(state_->first().members(), "world");
}

World::~World() {
  // Nobody waits for calls that still run: they must not delay the end until their timeout.
  if (!state_->finished()) abort("it ended while collectives that it had started were running");
}

int World::rank() const {
  return state_->rank;
}

int World::size() const {
  return state_->size;
}

std::string World::backend() const {
  return state_->first().transport()->name();
}

const WorldOptions& World::options() const {
  return state_->options;
}

Group& World::all() {
  return *state_->all;
}

std::unique_ptr<Group> World::group(std::vector<int> members, std::string name) {
  return group(std::move(members), std::move(name), state_->first());
}

std::unique_ptr<Group> World::group(std::vector<int> members, std::string name, Channel& channel) {
  return std::make_unique<Group>(*this, channel, std::move(members), std::move(name));
}

Channel& World::channel(const std::string& name, const std::vector<int>& members) {
  auto& channels = state_->channels;
  Channel& first = state_->first();
  if (first.name() == name && members.size() > 1) return first;
  if (first.name().empty() && members.size() > 1) {
    first.rename(name);
    return first;
  }
  for (const auto& channel : channels) {
    if (channel->name() == name && channel->members() == members) return *channel;
  }
  std::unique_ptr<Transport> transport;
  if (members.size() > 1) transport = first.transport()->open_channel(number_of(name), members);
  auto opened = std::make_unique<Channel>(*state_, name, members, std::move(transport));
  const std::lock_guard lock(state_->channels_mutex);
  return *channels.emplace_back(std::move(opened));
}

// Numbers follow names, because ranks that share a channel may have different other channels.
int World::number_of(const std::string& name) {
  auto& names = state_->opened_names;
  const auto found = std::find(names.begin(), names.end(), name);
  const auto number = static_cast<int>(found - names.begin()) + 1;
  if (found == names.end()) names.push_back(name);
  return number;
}

const Recorder& World::recorder() const {
  return state_->recorder;
}

void World::listen(std::function<void(const RecordedCall& call)> listener) {
  state_->recorder.listen(std::move(listener));
}

void World::abort(const std::string& why) noexcept {
  // Some ranks may not have read that error yet, and would read this one instead.
  if (!state_->agreed_to_end) state_->abort(why);
}

bool World::reports() const {
  return state_->reports;
}

}  // namespace atl::comm
