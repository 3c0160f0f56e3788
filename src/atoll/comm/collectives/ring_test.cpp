// Who sends how much to whom round a ring, by a transport that counts.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "atoll/comm/collectives/call_header.h"
#include "atoll/comm/collectives/ring_nodes.h"
#include "atoll/comm/testing/numbers.h"
#include "atoll/comm/threads/transport.h"
#include "atoll/comm/world.h"

namespace atl::comm {
namespace {

using Sent = std::map<int, std::size_t>;  // bytes to each rank

class CountingTransport final : public Transport {
 public:
  CountingTransport(ThreadChannel& channel, int rank, int ranks_a_host, Sent& sent)
      : threads_(channel, rank), ranks_a_host_(ranks_a_host), sent_(sent) {}

  int rank() const override { return threads_.rank(); }
  int size() const override { return threads_.size(); }
  std::string name() const override { return "counting"; }
  int host(int rank) const override { return rank / ranks_a_host_; }
  std::size_t piece_bytes() const override { return 4096; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    for (const Outgoing& out : outgoing) sent_[out.to] += out.bytes;
    threads_.exchange(outgoing, incoming);
  }
  std::unique_ptr<Transport> open_channel(int /*number*/, std::span<const int>) override {
    return nullptr;
  }

 private:
  ThreadsTransport threads_;
  int ranks_a_host_;
  Sent& sent_;
};

/// What each rank sends in `body`.
std::vector<Sent> sent_by(int size, int ranks_a_host, Algorithm algorithm,
                          const std::function<void(Group&)>& body) {
  ThreadChannel channel(size, 60);
  std::vector<Sent> sent(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      World world(std::make_unique<CountingTransport>(channel, rank, ranks_a_host,
                                                      sent[static_cast<std::size_t>(rank)]),
                  {.timeout_s = 60, .algorithm = algorithm});
      body(world.all());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sent;
}

constexpr std::size_t kCount = 30'011;

TEST(Ring, AllReduceSendsTwoNeighboursWhatTheFormulaSays) {
  constexpr int kRanks = 5;
  const std::size_t m = kCount * sizeof(float), header = sizeof(CallHeader);
  const auto sent = sent_by(kRanks, 1, Algorithm::kRing, [](Group& all) {
    std::vector<float> data(kCount, 1.0f);
    all.all_reduce(test::view(data));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const int next = (rank + 1) % kRanks, previous = (rank + kRanks - 1) % kRanks;
    const std::size_t sums = rank < kRanks - 1 ? m : 0, results = rank != kRanks - 2 ? m : 0;
    const Sent expected{{next, header + sums + results}, {previous, header}};
    EXPECT_EQ(sent[static_cast<std::size_t>(rank)], expected) << "rank " << rank;
  }
}

TEST(Ring, AllGatherSendsEachPartOverEachLinkOnce) {
  constexpr int kRanks = 4;
  const std::size_t m = kRanks * 1000 * sizeof(double), header = sizeof(CallHeader);
  const auto sent = sent_by(kRanks, 1, Algorithm::kRing, [](Group& all) {
    std::vector<double> data(kRanks * 1000, 1.0);
    all.all_gather(test::view(data), all.even_parts(kRanks * 1000));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const int next = (rank + 1) % kRanks, previous = (rank + kRanks - 1) % kRanks;
    const Sent expected{{next, header + m / kRanks * (kRanks - 1)}, {previous, header}};
    EXPECT_EQ(sent[static_cast<std::size_t>(rank)], expected) << "rank " << rank;
  }
}

// Three hosts of two ranks: two rings side by side, each with half of the data.
TEST(Ring, OfHostsCarriesTheDataTwiceWhateverTheRanksOfAHost) {
  constexpr int kRanks = 6, kHere = 2, kHosts = 3;
  const std::size_t m = kCount * sizeof(float), header = sizeof(CallHeader);
  const auto sent = sent_by(kRanks, kHere, Algorithm::kHierarchical, [](Group& all) {
    std::vector<float> data(kCount, 1.0f);
    all.all_reduce(test::view(data));
  });
  std::map<std::pair<int, int>, std::size_t> links;  // between hosts
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const auto& [to, bytes] : sent[static_cast<std::size_t>(rank)]) {
      if (to / kHere == rank / kHere) continue;
      EXPECT_EQ(to % kHere, rank % kHere) << "a rank speaks with those of its own place";
      links[{rank / kHere, to / kHere}] += bytes;
    }
  }
  for (int host = 0; host < kHosts; ++host) {
    const int next = (host + 1) % kHosts, previous = (host + kHosts - 1) % kHosts;
    const std::size_t sums = host < kHosts - 1 ? m : 0, results = host != kHosts - 2 ? m : 0;
    EXPECT_EQ((links[{host, next}]), kHere * header + sums + results) << "host " << host;
    EXPECT_EQ((links[{host, previous}]), kHere * header) << "host " << host;
  }
}

// Each rank gets each part that it lacks in one message, from the owner or from a leader.
TEST(Ring, OfHostsBringsEachRankEachPartOnce) {
  constexpr int kRanks = 4, kHere = 2, kEach = 3000;
  const auto sent = sent_by(kRanks, kHere, Algorithm::kHierarchical, [](Group& all) {
    std::vector<float> data(kRanks * kEach, 1.0f);
    all.all_gather(test::view(data), all.even_parts(kRanks * kEach));
  });
  std::size_t total = 0;
  for (const Sent& of_rank : sent)
    for (const auto& [to, bytes] : of_rank) total += bytes;
  const std::size_t headers =
      kRanks * 2 * sizeof(CallHeader);  // its host's other rank, and a leader
  EXPECT_EQ(total, headers + kRanks * kEach * sizeof(float) * (kRanks - 1));
}

// Rank 2 is no neighbour of rank 0. It comes when the others are in the barrier or about to be: one
// that lets a rank go early is caught in some of the turns, and one that is right passes always.
TEST(Ring, BarrierWaitsForRanksThatAreNoNeighbours) {
  constexpr int kRanks = 5, kTurns = 200;
  std::atomic<int> entered = 0, turn_of_rank_2 = 0;
  sent_by(kRanks, 1, Algorithm::kRing, [&](Group& all) {
    for (int turn = 1; turn <= kTurns; ++turn) {
      if (all.rank() == 2) {
        while (entered < turn * (kRanks - 1)) std::this_thread::yield();
        turn_of_rank_2 = turn;
      } else {
        ++entered;
      }
      all.barrier();
      EXPECT_GE(turn_of_rank_2, turn) << "rank " << all.rank();
    }
  });
}

TEST(RingNodes, AreRunsOfRanksOfOneHost) {
  RingNodes nodes;
  const int hosts[] = {3, 3, 3, 5, 5, 3};
  nodes.of_hosts(hosts);
  EXPECT_EQ(nodes.size(), 3);
  EXPECT_EQ(nodes.lanes(), 1);  // the last has one rank
  EXPECT_EQ(nodes.node_of(4), 1);
  EXPECT_EQ(nodes.leader(1, 0), 3);
  EXPECT_EQ(nodes.distance(2, 1), 2);
}

}  // namespace
}  // namespace atl::comm
