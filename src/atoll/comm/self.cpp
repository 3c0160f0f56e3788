#include "atoll/base/check.h"
#include "atoll/comm/world.h"

namespace atl::comm {

namespace {

/// The transport of a world of one rank: there is nobody to exchange with.
class SelfTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name() const override { return "self"; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    ATOLL_CHECK(outgoing.empty() && incoming.empty(), "a world of one rank has no peers");
  }
  std::unique_ptr<Transport> open_channel(int /*number*/,
                                          std::span<const int> /*members*/) override {
    return std::make_unique<SelfTransport>();
  }
};

}  // namespace

std::unique_ptr<World> open_self(const WorldOptions& options) {
  return std::make_unique<World>(std::make_unique<SelfTransport>(), options);
}

}  // namespace atl::comm
