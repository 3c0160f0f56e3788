#include "atoll/plan/measure_links.h"

#include <algorithm>
#include <vector>

#include "atoll/comm/mesh.h"
#include "atoll/plan/stopwatch.h"

namespace atl::plan {

namespace {

constexpr std::int64_t kSmall = 1 << 10;    // f32 elements: 4 KiB
constexpr std::int64_t kLarge = 1 << 19;    // 2 MiB, as a bucket of gradients
constexpr std::int64_t kMessage = 1 << 18;  // 1 MiB, as an edge between stages

Tensor f32_view(std::vector<float>& values, std::int64_t count) {
  return {values.data(), {Dtype::kF32, {count}}};
}

/// What all ranks of a link's group do.
class LinkRuler {
 public:
  LinkRuler(comm::World& world, comm::Group& group)
      : all_(world.all()), group_(group), data_(kLarge), result_(kLarge) {}

  Link measure() {
    Link link;
    const auto gather = [&](std::int64_t count) {
      const std::vector<std::int64_t> parts = group_.even_parts(count);
      return time_together(all_, [&] { group_.all_gather(f32_view(data_, count), parts); });
    };
    const auto reduce = [&](std::int64_t count) {
      const std::vector<std::int64_t> parts = group_.even_parts(count);
      const auto at = static_cast<std::size_t>(group_.rank());
      const Tensor mine = f32_view(result_, parts[at + 1] - parts[at]);
      return time_together(all_,
                           [&] { group_.reduce_scatter(f32_view(data_, count), parts, mine); });
    };
    link.latency_s = std::min(gather(kSmall), reduce(kSmall));
    const double others = static_cast<double>(group_.size() - 1) / group_.size();
    link.gather_bytes_per_s = others * 4 * kLarge / beyond(gather(kLarge), link.latency_s);
    link.reduce_bytes_per_s = others * 4 * kLarge / beyond(reduce(kLarge), link.latency_s);
    const double message = time_together(all_, [&] { pass_on(); });
    link.send_bytes_per_s = 4.0 * kMessage / beyond(message, link.latency_s);
    return link;
  }

 private:
  static double beyond(double seconds, double latency) {
    return std::max(seconds - latency, 0.1 * seconds);
  }
  void pass_on() {
    const int size = group_.size(), rank = group_.rank();
    const comm::Piece there{(rank + 1) % size, f32_view(data_, kMessage)};
    const comm::Piece here{(rank + size - 1) % size, f32_view(result_, kMessage)};
    group_.exchange({&there, 1}, {&here, 1});
  }

  comm::Group& all_;
  comm::Group& group_;
  std::vector<float> data_, result_;
};

}  // namespace

std::map<int, Link> measure_links(comm::World& world) {
  std::map<int, Link> links;
  for (int size = 2; size <= world.size(); ++size) {
    if (world.size() % size != 0) continue;
    comm::Mesh mesh(world, {{"outer", world.size() / size}, {"inner", size}});
    links[size] = LinkRuler(world, mesh.group("inner")).measure();
  }
  return links;
}

double measure_overlap(comm::World& world, const std::function<void()>& compute) {
  comm::Group& all = world.all();
  std::vector<float> data(kLarge), result(kLarge);
  const std::vector<std::int64_t> parts = all.even_parts(kLarge);
  const auto at = static_cast<std::size_t>(all.rank());
  const Tensor mine = f32_view(result, parts[at + 1] - parts[at]);
  const double alone = time_together(all, compute);
  const double once =
      time_together(all, [&] { all.reduce_scatter(f32_view(data, kLarge), parts, mine); });
  // As many reductions as take about as long as the compute.
  const int count = std::clamp(static_cast<int>(alone / std::max(once, 1e-9)), 1, 64);
  const double both = time_together(all, [&] {
    std::vector<comm::Work> under_way;
    for (int i = 0; i < count; ++i) {
      under_way.push_back(all.start_reduce_scatter(f32_view(data, kLarge), parts, mine, {}));
    }
    compute();
    for (comm::Work& work : under_way) work.wait();
  });
  const double hidden = alone + count * once - both;
  return std::clamp(hidden / std::min(alone, count * once), 0.0, 1.0);
}

}  // namespace atl::plan
