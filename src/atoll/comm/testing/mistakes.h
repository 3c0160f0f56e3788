#pragma once

// Calls that do not fit together. A world is of no more use after one, so each needs its own.

#include <string>
#include <vector>

#include "atoll/comm/testing/numbers.h"
#include "atoll/comm/world.h"

namespace atl::comm::test {

/// What a mistaken program does, and what the error of every rank must say.
struct Mistake {
  const char* name;
  void (*body)(World& world);
  std::vector<std::string> words;
};

/// Whether this is the rank that does otherwise than the others: the last.
inline bool is_odd(const World& world) {
  return world.rank() == world.size() - 1;
}

/// Mistakes of worlds of two ranks or more.
inline std::vector<Mistake> mistakes() {
  return {
      {"AnotherOperation",
       [](World& world) {
         std::vector<float> data(10);
         world.all().barrier();
         if (is_odd(world)) return world.all().broadcast(view(data), 0);
         world.all().all_reduce(view(data));
       },
       {"all_reduce #2 of world, f32 (10), at mistakes.h:",
        "broadcast #2 of world, f32 (10), at mistakes.h:", "rank "}},
      {"AnotherShape",
       [](World& world) {
         std::vector<float> data(is_odd(world) ? 11 : 10);
         world.all().all_reduce(view(data));
       },
       {"f32 (10)", "f32 (11)"}},
      {"AnotherDtype",
       [](World& world) {
         std::vector<float> single(10);
         std::vector<double> twice(10);
         world.all().broadcast(is_odd(world) ? view(twice) : view(single), 0);
       },
       {"f32 (10)", "f64 (10)"}},
      {"AnotherOrder",
       [](World& world) {
         std::vector<float> data(10);
         const auto twin = world.group(world.all().members(), "twin");
         if (is_odd(world)) twin->all_reduce(view(data));
         world.all().all_reduce(view(data));
         if (!is_odd(world)) twin->all_reduce(view(data));
       },
       {"all_reduce #1 of world", "all_reduce #1 of twin"}},
      {"AnotherReduction",
       [](World& world) {
         std::vector<float> data(10);
         world.all().all_reduce(view(data), is_odd(world) ? Reduce::kMax : Reduce::kSum);
       },
       {"with another reduction"}},
      {"AnotherRoot",
       [](World& world) {
         std::vector<float> data(10);
         world.all().broadcast(view(data), is_odd(world) ? 1 : 0);
       },
       {"with another root"}},
      {"OtherParts",
       [](World& world) {
         std::vector<float> data(10);
         std::vector<std::int64_t> parts = world.all().even_parts(10);
         if (is_odd(world)) parts[1] -= 1;
         world.all().all_gather(view(data), parts);
       },
       {"with other parts"}},
      {"OtherContributors",
       [](World& world) {
         std::vector<float> data(10);
         const std::vector<std::int64_t> parts = world.all().even_parts(10);
         const auto begin = parts[static_cast<std::size_t>(world.rank())];
         const auto end = parts[static_cast<std::size_t>(world.rank()) + 1];
         const int who = is_odd(world) ? 1 : 0;
         Group::ReduceScatter how;
         how.contributors = {&who, 1};
         world.all().reduce_scatter(view(data), parts,
                                    {data.data() + begin, {Dtype::kF32, {end - begin}}}, how);
       },
       {"with other contributors"}},
      {"OtherAmounts",
       [](World& world) {
         const auto size = static_cast<std::int64_t>(world.size());
         std::vector<std::int64_t> parts{0}, result_parts{0};
         for (std::int64_t rank = 0; rank < size; ++rank) {
           parts.push_back(2 * (rank + 1));
           // The odd one expects more of rank 0 than that sends.
           result_parts.push_back(2 * (rank + 1) + (is_odd(world) && world.size() > 1 ? 1 : 0));
         }
         std::vector<float> data(static_cast<std::size_t>(parts.back()));
         std::vector<float> result(static_cast<std::size_t>(result_parts.back()));
         world.all().all_to_all(view(data), parts, view(result), result_parts);
       },
       {"elements", "expects"}},
  };
}

}  // namespace atl::comm::test
