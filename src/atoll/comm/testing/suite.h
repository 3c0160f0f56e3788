#pragma once

// What every backend must do. Depends on no test library: each check throws Error(kInternal), so
// that it runs in threads and in processes alike.

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/comm/mesh.h"
#include "atoll/comm/testing/numbers.h"
#include "atoll/comm/world.h"

namespace atl::comm::test {

inline constexpr Reduce kReduces[] = {Reduce::kSum, Reduce::kMax, Reduce::kMin};

inline std::vector<int> all_of(const Group& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <typename T>
void check_all_reduce(Group& group, std::int64_t n, std::uint64_t salt, Reduce reduce) {
  std::vector<T> data = numbers<T>(group.rank(), n, salt);
  group.all_reduce(view(data), reduce);
  ATOLL_CHECK(same_bits(data, reduced<T>(all_of(group), 0, n, salt, reduce)),
              "all_reduce of {} {} on rank {}", n, dtype_name(dtype_of<T>()), group.rank());
}

template <typename T>
void check_reduce_scatter(Group& group, const std::vector<std::int64_t>& parts, std::uint64_t salt,
                          Reduce reduce, bool accumulate, const std::vector<int>& contributors) {
  const int rank = group.rank();
  const std::int64_t n = parts.back();
  const std::int64_t begin = parts[static_cast<std::size_t>(rank)];
  const std::int64_t end = parts[static_cast<std::size_t>(rank) + 1];
  const bool gives = std::count(contributors.begin(), contributors.end(), rank) != 0;
  std::vector<T> data = numbers<T>(rank, n, salt);
  const std::vector<T> before = numbers<T>(rank, end - begin, salt + 99);
  std::vector<T> result = before;
  const std::vector<T> expected =
      reduced<T>(contributors, begin, end, salt, reduce, accumulate ? &before : nullptr);
  Group::ReduceScatter how;
  how.accumulate = accumulate;
  how.reduce = reduce;
  if (static_cast<int>(contributors.size()) < group.size()) how.contributors = contributors;
  group.reduce_scatter(gives ? view(data) : Tensor(), parts, view(result), how);
  ATOLL_CHECK(same_bits(result, expected), "reduce_scatter of {} {} on rank {}, {} contribute", n,
              dtype_name(dtype_of<T>()), rank, contributors.size());
  ATOLL_CHECK(same_bits(data, numbers<T>(rank, n, salt)), "reduce_scatter changes its data");
}

/// The result in the place of this rank's part.
template <typename T>
void check_reduce_scatter_in_place(Group& group, const std::vector<std::int64_t>& parts,
                                   std::uint64_t salt) {
  const std::int64_t begin = parts[static_cast<std::size_t>(group.rank())];
  const std::int64_t end = parts[static_cast<std::size_t>(group.rank()) + 1];
  std::vector<T> data = numbers<T>(group.rank(), parts.back(), salt);
  std::vector<T> expected = data;
  const std::vector<T> sums = reduced<T>(all_of(group), begin, end, salt, Reduce::kSum);
  std::copy(sums.begin(), sums.end(), expected.begin() + begin);
  group.reduce_scatter(view(data), parts, {data.data() + begin, {dtype_of<T>(), {end - begin}}});
  ATOLL_CHECK(same_bits(data, expected), "reduce_scatter of {} {} in place on rank {}",
              parts.back(), dtype_name(dtype_of<T>()), group.rank());
}

template <typename T>
void check_all_gather(Group& group, const std::vector<std::int64_t>& parts, std::uint64_t salt) {
  std::vector<T> data(static_cast<std::size_t>(parts.back())), expected;
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::int64_t begin = parts[static_cast<std::size_t>(rank)];
    for (std::int64_t i = begin; i < parts[static_cast<std::size_t>(rank) + 1]; ++i) {
      expected.push_back(number<T>(rank, i, salt));
      if (rank == group.rank()) data[static_cast<std::size_t>(i)] = expected.back();
    }
  }
  group.all_gather(view(data), parts);
  ATOLL_CHECK(same_bits(data, expected), "all_gather of {} {} on rank {}", parts.back(),
              dtype_name(dtype_of<T>()), group.rank());
}

template <typename T>
void check_broadcast(Group& group, std::int64_t n, std::uint64_t salt) {
  for (int root = 0; root < group.size(); ++root) {
    std::vector<T> data = numbers<T>(group.rank(), n, salt);
    group.broadcast(view(data), root);
    ATOLL_CHECK(same_bits(data, numbers<T>(root, n, salt)), "broadcast of {} from {} on rank {}", n,
                root, group.rank());
  }
}

/// How much rank `from` sends to rank `to`: little, much, or nothing.
inline std::int64_t amount(int from, int to, std::int64_t scale) {
  return (3 * from + 5 * to) % 7 * scale;
}

template <typename T>
void check_all_to_all(Group& group, std::int64_t scale, std::uint64_t salt) {
  std::vector<std::int64_t> parts{0}, result_parts{0};
  std::vector<T> data, expected;
  const auto piece = [&](int from, int to, std::vector<T>& into) {
    for (std::int64_t i = 0; i < amount(from, to, scale); ++i) {
      into.push_back(number<T>(from, 1000 * to + i, salt));
    }
  };
  for (int peer = 0; peer < group.size(); ++peer) {
    piece(group.rank(), peer, data);
    piece(peer, group.rank(), expected);
    parts.push_back(static_cast<std::int64_t>(data.size()));
    result_parts.push_back(static_cast<std::int64_t>(expected.size()));
  }
  std::vector<T> result(expected.size());
  group.all_to_all(view(data), parts, view(result), result_parts);
  ATOLL_CHECK(same_bits(result, expected), "all_to_all on rank {}", group.rank());
}

/// All sums, in every way in which they can be asked for.
template <typename T>
void check_reductions(Group& group, std::int64_t n, std::uint64_t salt) {
  for (const Reduce reduce : kReduces) {
    check_all_reduce<T>(group, n, ++salt, reduce);
    for (const auto& parts : ways_to_cut(group, n)) {
      const std::vector<int> all = all_of(group);
      check_reduce_scatter<T>(group, parts, ++salt, reduce, false, all);
      check_reduce_scatter<T>(group, parts, ++salt, reduce, true, all);
      check_reduce_scatter<T>(group, parts, ++salt, reduce, true, {all.back()});
      if (group.size() == 1) continue;
      check_reduce_scatter<T>(group, parts, ++salt, reduce, false, {all.begin() + 1, all.end()});
      check_reduce_scatter<T>(group, parts, ++salt, reduce, false, {0});
    }
  }
  for (const auto& parts : ways_to_cut(group, n)) {
    check_reduce_scatter_in_place<T>(group, parts, ++salt);
  }
}

template <typename T>
void check_moves(Group& group, std::int64_t n, std::uint64_t salt) {
  for (const auto& parts : ways_to_cut(group, n)) check_all_gather<T>(group, parts, ++salt);
  check_broadcast<T>(group, n, ++salt);
  check_all_to_all<T>(group, n / 16, ++salt);
}

/// NaN survives max and min from whichever rank it comes.
inline void check_nan(Group& group) {
  for (int from = 0; from < group.size(); ++from) {
    for (const Reduce reduce : {Reduce::kMax, Reduce::kMin}) {
      std::vector<float> data(37, static_cast<float>(group.rank()));
      if (group.rank() == from) data[5] = data[36] = std::nanf("");
      group.all_reduce(view(data), reduce);
      const int best = reduce == Reduce::kMax ? group.size() - 1 : 0;
      ATOLL_CHECK(std::isnan(data[5]) && std::isnan(data[36]), "NaN of rank {} is lost", from);
      ATOLL_CHECK(data[4] == static_cast<float>(best), "max or min beside a NaN: {}", data[4]);
    }
  }
}

/// Rings both ways at the same time, several pieces of a pair in order, pieces to oneself, and
/// pieces of one exchange that the peer sends one by one.
inline void check_exchange(Group& group) {
  const int size = group.size();
  const int next = (group.rank() + 1) % size;
  const int before = (group.rank() + size - 1) % size;
  for (const std::int64_t n : {0, 5, 30'001}) {
    std::vector<float> right = numbers<float>(group.rank(), n, 1);
    std::vector<double> left = numbers<double>(group.rank(), n + 3, 2);
    std::vector<float> from_left(right.size());
    std::vector<double> from_right(left.size());
    const std::vector<Piece> sends{{next, view(right)}, {before, view(left)}};
    const std::vector<Piece> receives{{before, view(from_left)}, {next, view(from_right)}};
    group.exchange(sends, receives);
    ATOLL_CHECK(same_bits(from_left, numbers<float>(before, n, 1)), "ring to the right");
    ATOLL_CHECK(same_bits(from_right, numbers<double>(next, n + 3, 2)), "ring to the left");
  }
  if (size == 1) return;
  std::vector<std::int64_t> one = numbers<std::int64_t>(7, 3, 3),
                            two = numbers<std::int64_t>(8, 3, 4);
  std::vector<std::int64_t> got_one(3), got_two(3);
  if (group.rank() == 0) {
    group.send(view(one), size - 1);
    group.send(view(two), size - 1);
  } else if (group.rank() == size - 1) {
    const std::vector<Piece> receives{{0, view(got_one)}, {0, view(got_two)}};
    group.exchange({}, receives);
    ATOLL_CHECK(got_one == one && got_two == two, "pieces of two sends");
  }
  if (group.rank() == 0) {
    const std::vector<Piece> sends{{size - 1, view(one)}, {size - 1, view(two)}};
    group.exchange(sends, {});
  } else if (group.rank() == size - 1) {
    group.recv(view(got_two), 0);
    group.recv(view(got_one), 0);
    ATOLL_CHECK(got_two == one && got_one == two, "pieces for two receives");
  }
}

/// Calls that are under way at the same time, of groups that overlap, in the order of the calls:
/// each works on what the one before it has made.
inline void check_started(World& world, Group& part) {
  Group& all = world.all();
  constexpr std::int64_t kCount = 4099;
  const std::vector<std::int64_t> parts = all.even_parts(kCount);
  const std::int64_t begin = parts[static_cast<std::size_t>(all.rank())];
  const std::int64_t end = parts[static_cast<std::size_t>(all.rank()) + 1];
  for (std::uint64_t salt = 1; salt <= 8; ++salt) {
    std::vector<float> a = numbers<float>(all.rank(), kCount, salt);
    std::vector<float> b = numbers<float>(all.rank(), kCount, salt + 50);
    std::vector<float> c = numbers<float>(part.rank(), kCount, salt + 70);
    const Tensor own(a.data() + begin, {Dtype::kF32, {end - begin}});
    Work first = all.start_reduce_scatter(view(a), parts, own, {});
    Work second = part.start_all_reduce(view(c));
    Work third = all.start_all_gather(view(a), parts);
    Work fourth = all.start_broadcast(view(b), all.size() - 1);
    fourth.wait();
    ATOLL_CHECK(first.done() && third.done(), "a later call is done before an earlier one");
    second.wait();
    second.wait();
    ATOLL_CHECK(same_bits(a, reduced<float>(all_of(all), 0, kCount, salt, Reduce::kSum)),
                "started reduce_scatter, then all_gather");
    ATOLL_CHECK(same_bits(b, numbers<float>(all.size() - 1, kCount, salt + 50)),
                "started broadcast");
    ATOLL_CHECK(same_bits(c, reduced<float>(all_of(part), 0, kCount, salt + 70, Reduce::kSum)),
                "started all_reduce of a part");
    Work last = all.start_all_reduce(view(b), Reduce::kMax);
    part.all_reduce(view(c), Reduce::kMin);  // waits for those before it
    ATOLL_CHECK(last.done(), "a blocking call runs before a started one");
  }
}

/// Groups of some ranks, called between calls of all.
inline void check_subgroups(World& world) {
  const int size = world.size();
  std::vector<int> low, high;  // of three or more ranks both have the middle ones
  for (int rank = 0; rank < size; ++rank) {
    if (rank + 1 < size || size == 1) low.push_back(rank);
    if (rank > 0 || size == 1) high.push_back(rank);
  }
  const auto is_in = [&](const std::vector<int>& members) {
    return std::count(members.begin(), members.end(), world.rank()) != 0;
  };
  const auto first = is_in(low) ? world.group(low, "low") : nullptr;
  const auto second = is_in(high) ? world.group(high, "high") : nullptr;
  for (std::uint64_t salt = 1; salt <= 4; ++salt) {
    if (first) check_all_reduce<double>(*first, 501, salt, Reduce::kSum);
    if (second) check_all_reduce<double>(*second, 502, salt, Reduce::kSum);
    check_all_reduce<double>(world.all(), 503, salt, Reduce::kSum);
    if (second) check_exchange(*second);
    if (first) check_moves<Bf16>(*first, 505, salt);
  }
  const auto own = world.group({world.rank()}, "own");
  check_started(world, first ? *first : *own);
}

/// A grid of named axes.
inline void check_mesh(World& world) {
  const int inner = world.size() % 2 == 0 ? 2 : 1;
  Mesh mesh(world, {{"dp", world.size() / inner}, {"tp", inner}});
  ATOLL_CHECK_EQ(mesh.coordinate("dp") * inner + mesh.coordinate("tp"), world.rank());
  for (const char* axis : {"dp", "tp", "dp"}) {
    Group& group = mesh.group(axis);
    ATOLL_CHECK_EQ(group.rank(), mesh.coordinate(axis));
    check_all_reduce<float>(group, 100, 1, Reduce::kSum);
  }
}

/// Every rank learns of a mistake of any.
inline void check_agree(World& world) {
  world.agree([] {});
  ATOLL_CHECK(world.reports(), "reports() without a mistake");
  for (int wrong = 0; wrong < world.size(); ++wrong) {
    std::string message;
    try {
      world.agree([&] {
        if (world.rank() >= wrong) throw user_error("rank {} found no file", world.rank());
      });
    } catch (const Error& error) {
      message = error.what();
      ATOLL_CHECK_EQ(error.exit_code(), 2);
    }
    ATOLL_CHECK_EQ(message, fmt::format("rank {} found no file", wrong));
    ATOLL_CHECK_EQ(world.reports(), world.rank() == wrong);
  }
}

/// What has been sent and received, in bytes, by the formulas.
inline void check_traffic(World& world) {
  const auto all = world.group(world.all().members(), "counted");
  const auto n = static_cast<std::uint64_t>(world.size());
  const std::int64_t count = 840 * world.size();
  const std::uint64_t bytes = 840 * n * sizeof(float);
  std::vector<float> data(static_cast<std::size_t>(count));
  const std::vector<std::int64_t> parts = all->even_parts(count);
  const auto check_moved = [&](const char* what, std::uint64_t expected, auto call) {
    const Traffic before = all->traffic();
    call();
    const Traffic after = all->traffic();
    ATOLL_CHECK(
        after.sent - before.sent == expected && after.received - before.received == expected,
        "{}: {} sent, {} received", what, after.sent - before.sent,
        after.received - before.received);
  };
  const std::uint64_t share = bytes / n * (n - 1);
  const Tensor own(data.data() + parts[static_cast<std::size_t>(all->rank())],
                   {Dtype::kF32, {840}});
  check_moved("all_reduce", 2 * share, [&] { all->all_reduce(view(data)); });
  check_moved("reduce_scatter", share, [&] { all->reduce_scatter(view(data), parts, own); });
  check_moved("all_gather", share, [&] { all->all_gather(view(data), parts); });
  ATOLL_CHECK_EQ(all->traffic().collectives, n == 1 ? 0u : 3u);
}

/// Runs all of it; every rank of the world must call it. Small: thousands of calls in a second.
inline void check_collectives(World& world) {
  Group& all = world.all();
  for (const std::int64_t n : {0, 1, 3, 1001}) {
    const auto salt = static_cast<std::uint64_t>(1000 * n);
    check_reductions<float>(all, n, salt);
    check_reductions<double>(all, n, salt);
    check_reductions<Bf16>(all, n, salt);
    check_reductions<std::int32_t>(all, n, salt);
    check_reductions<std::int64_t>(all, n, salt);
    check_moves<std::uint8_t>(all, n, salt);
    check_moves<Bf16>(all, n, salt);
    check_moves<double>(all, n, salt);
  }
  check_all_reduce<float>(all, 70'001, 1, Reduce::kSum);
  check_all_reduce<Bf16>(all, 270'001, 2, Reduce::kSum);
  check_broadcast<float>(all, 70'001, 3);
  check_nan(all);
  check_exchange(all);
  all.barrier();
  check_subgroups(world);
  check_mesh(world);
  check_agree(world);
  check_traffic(world);
}

}  // namespace atl::comm::test
