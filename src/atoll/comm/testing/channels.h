#pragma once

// What every backend must do where a world has several channels. As suite.h it depends on no test
// library. No check here is of a time: where a call had to wait for another channel, ranks would
// wait for each other for ever.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/comm/testing/suite.h"

namespace atl::comm::test {

/// The group of all ranks, with a channel of its own.
inline std::unique_ptr<Group> all_on(World& world, const std::string& channel) {
  const std::vector<int>& members = world.all().members();
  return world.group(members, channel, world.channel(channel, members));
}

inline bool is_last(const World& world) {
  return world.rank() == world.size() - 1;
}

/// A reduction of gradients that cannot end, because one rank has not come to it, holds up no other
/// axis: nor a synchronous call, nor a started one.
inline void check_slow_reduction(World& world) {
  const auto dp = all_on(world, "dp"), tp = all_on(world, "tp");
  std::vector<float> bucket = numbers<float>(world.rank(), 40'001, 1);
  Work reduction;
  if (!is_last(world)) reduction = dp->start_all_reduce(view(bucket));
  for (int layer = 0; layer < 3; ++layer) check_all_reduce<float>(*tp, 5003, 7, Reduce::kSum);
  std::vector<float> data = numbers<float>(world.rank(), 1003, 2);
  tp->start_all_reduce(view(data)).wait();
  ATOLL_CHECK(is_last(world) || !reduction.done(), "a reduction ends without rank {}",
              world.size() - 1);
  tp->barrier();  // only now the last rank comes to the reduction
  if (is_last(world)) reduction = dp->start_all_reduce(view(bucket));
  reduction.wait();
  ATOLL_CHECK(same_bits(bucket, reduced<float>(all_of(*dp), 0, 40'001, 1, Reduce::kSum)),
              "the reduction that waited");
}

/// The same with the axes of a Mesh, two of which share a channel.
inline void check_mesh_channels(World& world) {
  if (world.size() != 4) return;
  Mesh mesh(world, {{"replicate", 2, "dp"}, {"shard", 1, "dp"}, {"tp", 2}});
  const auto signal = all_on(world, "signal");
  std::vector<float> bucket = numbers<float>(mesh.coordinate("replicate"), 999, 3);
  std::vector<float> copied(bucket.size());
  const std::vector<std::int64_t> parts{0, 999};
  const bool is_late = mesh.coordinate("replicate") == 1;
  Work reduction, copy;
  const auto begin = [&] {
    reduction = mesh.group("replicate").start_all_reduce(view(bucket));
    copy = mesh.group("shard").start_reduce_scatter(view(bucket), parts, view(copied), {});
  };
  if (!is_late) begin();
  check_all_reduce<double>(mesh.group("tp"), 77, 4, Reduce::kSum);
  ATOLL_CHECK(is_late || (!reduction.done() && !copy.done()), "an axis did not wait");
  signal->barrier();
  if (is_late) begin();
  copy.wait();
  ATOLL_CHECK(same_bits(copied, reduced<float>({0, 1}, 0, 999, 3, Reduce::kSum)),
              "axes of one channel keep the order of their calls");
}

/// Neighbours that send to each other first, more than anything on the way holds, and that reduce
/// before or after that.
inline void check_pipeline(World& world) {
  const int size = world.size(), rank = world.rank();
  Mesh mesh(world, {{"pp", size, "", true}});
  Group& pp = mesh.group("pp");
  const auto dp = all_on(world, "gradients");
  constexpr std::int64_t kCount = 700'001;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const auto salt = [](int from, int to) { return static_cast<std::uint64_t>(100 * from + to); };
  std::vector<float> up = numbers<float>(rank, kCount, salt(rank, next));
  std::vector<float> down = numbers<float>(rank, kCount, salt(rank, previous) + 1000);
  std::vector<float> from_previous(up.size()), from_next(up.size());
  std::vector<float> gradients = numbers<float>(rank, 5001, 5);
  Work reduction;
  if (rank % 2 == 0) reduction = dp->start_all_reduce(view(gradients));
  Work sends[] = {pp.start_send(view(up), next), pp.start_send(view(down), previous)};
  Work receives[2];
  // Of two ranks both messages come from the same one, in the order in which it sends.
  receives[0] = pp.start_recv(view(from_previous), previous);
  receives[1] = pp.start_recv(view(from_next), next);
  for (Work& work : receives) work.wait();
  if (rank % 2 != 0) reduction = dp->start_all_reduce(view(gradients));
  for (Work& work : sends) work.wait();
  reduction.wait();
  ATOLL_CHECK(same_bits(from_previous, numbers<float>(previous, kCount, salt(previous, rank))) &&
                  same_bits(from_next, numbers<float>(next, kCount, salt(next, rank) + 1000)),
              "messages of neighbours on rank {}", rank);
  // Of one message each way, by blocking calls.
  std::vector<float> token{static_cast<float>(rank)};
  if (rank > 0) pp.recv(view(token), rank - 1);
  token[0] += 1;
  if (rank + 1 < size) pp.send(view(token), rank + 1);
  ATOLL_CHECK_EQ(token[0], static_cast<float>(rank + 1));
}

/// What a step calls, on two channels.
inline void call_everything(World& world, Group& other, std::vector<float>& data,
                            std::vector<float>& result) {
  Group& all = world.all();
  const auto n = static_cast<std::int64_t>(data.size());
  const auto size = static_cast<std::size_t>(all.size()),
             rank = static_cast<std::size_t>(all.rank());
  std::int64_t parts[9] = {};
  for (std::size_t i = 0; i <= size; ++i) parts[i] = n / all.size() * static_cast<std::int64_t>(i);
  const std::span<const std::int64_t> even(parts, size + 1);
  const Tensor whole(data.data(), {Dtype::kF32, {parts[size]}});
  const Tensor own(data.data() + parts[rank], {Dtype::kF32, {parts[rank + 1] - parts[rank]}});
  const Tensor target(result.data(), {Dtype::kF32, {parts[size]}});
  Work reduction = all.start_all_reduce(whole);
  Work scatter = all.start_reduce_scatter(whole, even, own, {});
  other.all_reduce(target);
  Work gather = other.start_all_gather(target, even);
  scatter.wait();
  gather.wait();
  all.start_all_to_all(whole, even, target, even).wait();
  all.broadcast(whole, 0);
  const Piece send{static_cast<int>((rank + 1) % size), own};
  const Piece receive{static_cast<int>((rank + size - 1) % size),
                      Tensor(result.data(), own.spec())};
  other.start_exchange({&send, 1}, {&receive, 1}).wait();
  all.barrier();
}

/// After the first calls none allocates. `count` is how many allocations this process has made. A
/// rank that waits for a second looks for a failure at the rendezvous, and that allocates. So calls
/// that took a second on any rank are made again.
inline void check_no_allocations(World& world, const std::function<std::int64_t()>& count) {
  using Clock = std::chrono::steady_clock;
  const auto other = all_on(world, "other");
  for (const std::size_t elements : {40'000u, 400u}) {
    std::vector<float> data(elements, 1.0f), result(elements, 1.0f);
    for (int i = 0; i < 3; ++i) call_everything(world, *other, data, result);
    std::vector<std::int64_t> slow{1};  // on any rank
    world.all().all_reduce(view(slow), Reduce::kMax);
    while (slow[0] != 0) {
      const std::int64_t before = count();
      const Clock::time_point start = Clock::now();
      world.all().barrier();  // ranks that are threads count together
      for (int i = 0; i < 4; ++i) call_everything(world, *other, data, result);
      const std::int64_t after = count();
      slow[0] = Clock::now() - start >= std::chrono::seconds(1) ? 1 : 0;
      world.all().barrier();
      world.all().all_reduce(view(slow), Reduce::kMax);
      ATOLL_CHECK(slow[0] != 0 || after == before, "{} allocations", after - before);
    }
  }
}

/// started all_to_all is what all_to_all is.
inline void check_started_all_to_all(World& world) {
  Group& all = world.all();
  const std::int64_t n = 33 * all.size();
  std::vector<std::int64_t> data = numbers<std::int64_t>(all.rank(), n, 8);
  std::vector<std::int64_t> waited(data.size()), started(data.size());
  const std::vector<std::int64_t> parts = all.even_parts(n);
  all.all_to_all(view(data), parts, view(waited), parts);
  all.start_all_to_all(view(data), parts, view(started), parts).wait();
  ATOLL_CHECK(same_bits(waited, started), "started all_to_all on rank {}", all.rank());
}

/// Runs all of it but check_no_allocations(), on two ranks or more.
inline void check_channels(World& world) {
  check_slow_reduction(world);
  check_slow_reduction(world);  // its channels are there
  check_mesh_channels(world);
  check_pipeline(world);
  check_started_all_to_all(world);
}

/// A mistake of the last rank on one channel, while all others wait for it on another. Throws what
/// the first channel failed with, once the second has said the same.
inline void fail_on_one_channel(World& world) {
  const auto dp = all_on(world, "dp"), tp = all_on(world, "tp");
  std::vector<float> bucket(1000), data(10);
  Work reduction;
  if (!is_last(world)) reduction = dp->start_all_reduce(view(bucket));
  std::string first;
  try {
    if (is_last(world)) tp->broadcast(view(data), 0);
    tp->all_reduce(view(data));
  } catch (const PeerError& error) {
    first = error.what();
  }
  ATOLL_CHECK(!first.empty(), "rank {} sees no mistake", world.rank());
  try {
    reduction.wait();
    dp->barrier();
  } catch (const PeerError& error) {
    ATOLL_CHECK_EQ(std::string(error.what()), first);
    throw;
  }
}

}  // namespace atl::comm::test
