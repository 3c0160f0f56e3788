#include "atoll/train/config/outer_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>

#include "atoll/island/client/shard.h"

namespace atl::train {

namespace {

// "model.layers.3.mlp.up_proj.weight" and "h.3.mlp.c_fc.weight" are of layer 3.
int layer_of(const std::string& name) {
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) return std::stoi(part);
    begin = end + 1;
  }
  return -1;
}

}  // namespace

std::vector<island::Fragment> fragments_of(const parallel::FlatLayout& layout, int num_fragments) {
  std::vector<island::FlatParam> params;
  for (std::size_t i = 0; i < layout.trained().size(); ++i) {
    const nn::Param& param = *layout.trained()[i];
    params.push_back(
        {param.name, layout.offset(i), param.spec.shape.num_elements(), layer_of(param.name)});
  }
  return island::make_fragments(params, num_fragments);
}

island::OuterOptions outer_options(const OuterSettings& outer) {
  const int islands = static_cast<int>(std::max<std::int64_t>(1, outer.islands));
  island::OuterOptions options;
  options.algorithm = outer.algorithm;
  options.inner_steps = outer.inner_steps;
  options.fragments = static_cast<int>(outer.fragments);
  options.overlap = outer.overlap;
  options.merge = outer.merge;
  options.codec = outer.codec;
  options.optimizer = island::default_outer_options(islands).optimizer;
  options.optimizer.kind = outer.optimizer;
  options.optimizer.momentum = outer.optimizer == "nesterov" ? outer.momentum : 0;
  if (outer.lr > 0) options.optimizer.lr = outer.lr;
  if (outer.algorithm == "async") {
    options.optimizer.kind = outer.async_momentum + "_nesterov";
    options.optimizer.islands = islands;
  }
  return options;
}

island::PolicyPlan policy_plan(const OuterSettings& outer, double parameters) {
  const island::OuterOptions options = outer_options(outer);
  const std::int64_t P = outer.fragments;
  const std::int64_t least =
      outer.min_inner_steps > 0 ? outer.min_inner_steps : outer.inner_steps / 8;
  const std::int64_t most =
      outer.max_inner_steps > 0 ? outer.max_inner_steps : 8 * outer.inner_steps;
  constexpr std::array<std::string_view, 4> kChangeable = {"f32", "bf16", "int8", "e3m0"};
  const bool is_streaming = outer.algorithm == "streaming";
  const bool is_whole = outer.algorithm == "eager" || outer.algorithm == "async";
  return {.policy = outer.policy,
          .base = {.inner_steps = outer.inner_steps / P,
                   .overlap = is_whole ? outer.inner_steps : outer.overlap,
                   .codec = outer.codec,
                   .outer_lr = options.optimizer.lr},
          .min_inner_steps = std::max<std::int64_t>(1, least / P),
          .max_inner_steps = most / P,
          .may_overlap = is_streaming,
          .may_change_codec = std::ranges::find(kChangeable, outer.codec) != kChangeable.end(),
          .may_change_lr = outer.algorithm == "diloco" || is_streaming,
          .qsr_alpha = outer.qsr_alpha / std::sqrt(static_cast<double>(P)),
          .round_bytes = 1e6 * outer.round_mb,
          .day_bytes = 1e6 * outer.day_mb,
          .parameters = parameters,
          .fragments = P};
}

std::vector<island::OuterMemoryPart> outer_memory_of_rank(const OuterSettings& outer,
                                                          const parallel::FlatLayout& layout,
                                                          int num_ranks) {
  const island::OuterOptions options = outer_options(outer);
  const int vectors = 1 + island::make_outer_optimizer(options.optimizer)->num_state_vectors();
  const std::vector<island::Fragment> fragments = fragments_of(layout, options.fragments);
  std::vector<std::int64_t> most;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<std::int64_t> elements;
    for (const island::Fragment& fragment : fragments) {
      elements.push_back(
          island::shard_range(fragment.elements(), vectors, {rank, num_ranks}).size());
    }
    const auto sum = [](const std::vector<std::int64_t>& all) {
      return std::accumulate(all.begin(), all.end(), std::int64_t{0});
    };
    if (most.empty() || sum(elements) > sum(most)) most = std::move(elements);
  }
  return island::outer_memory(options, most);
}

std::string describe_outer_memory(const OuterSettings& outer, const parallel::FlatLayout& layout,
                                  int num_ranks) {
  const auto line = [](const std::string& name, std::size_t bytes) {
    return fmt::format("  {:<24} {:>10.2f} MiB\n", name, static_cast<double>(bytes) / (1 << 20));
  };
  std::string text;
  std::size_t sum = 0;
  for (const auto& [what, bytes] : outer_memory_of_rank(outer, layout, num_ranks)) {
    text += line(what, bytes);
    sum += bytes;
  }
  return text + line("total", sum);
}

}  // namespace atl::train
