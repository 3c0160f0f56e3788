#include "atoll/cli/commands/plan_layouts.h"

#include <fmt/format.h>

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/cli/commands/plan_islands.h"
#include "atoll/cli/commands/simulate.h"
#include "atoll/cli/models/vocabulary.h"
#include "atoll/plan/choice.h"
#include "atoll/plan/gpu.h"
#include "atoll/plan/table.h"

namespace atl::cli {

namespace {

plan::Hosts hosts_of(const LayoutFlags& flags) {
  plan::Hosts hosts = {.ranks = flags.ranks,
                       .ranks_per_host = flags.ranks_per_host,
                       .figures = flags.figures,
                       .gpu = flags.gpu};
  if (!flags.memory.empty()) hosts.memory_gib = parse_bytes(flags.memory, "--memory") / 0x1p30;
  if (flags.link.empty()) return hosts;
  const island::SimulatedLink link = parse_link(flags.link);
  const double bytes = std::isfinite(link.bits_per_second) ? link.bits_per_second / 8 : 1e15;
  hosts.network = {.latency_s = link.latency,
                   .gather_bytes_per_s = bytes,
                   .reduce_bytes_per_s = bytes,
                   .send_bytes_per_s = bytes};
  return hosts;
}

}  // namespace

void add_layout_flags(ArgumentParser& parser, LayoutFlags& flags,
                      const std::vector<Argument>& others) {
  Argument ranks = parser
                       .add_option("--ranks", flags.ranks,
                                   "print the layouts of so many ranks, best first: memory, "
                                   "time of a step, and why others are refused")
                       .range(1, 1 << 20);
  for (const Argument& other : others) ranks.excludes(other);
  parser
      .add_option("--ranks-per-host", flags.ranks_per_host,
                  "ranks that share a machine like this one; 0: all, or one with --link")
      .range(0, 1 << 20);
  parser.add_option("--memory", flags.memory, "that a rank may plan: 16GiB; else what there is");
  parser.add_option("--link", flags.link, "between hosts: bits a second, latency: 10Gbit/s,50us");
  const Argument figures =
      parser.add_option("--figures", flags.figures,
                        "TOML file of a machine's figures, instead of measuring this one");
  parser
      .add_option("--gpu", flags.gpu,
                  "plan for GPUs that need not be here, by what their maker states: H100, \"A100 "
                  "40GB\", H200, 4090, L40S, B200")
      .excludes(figures);
  parser.add_option("--write-figures", flags.write_figures, "also write the figures to this file");
  parser
      .add_option("--islands", flags.islands,
                  "also say what so many islands of the first layout would exchange")
      .range(2, 1000);
  parser.add_option("--island-link", flags.island_link, "of each island: bits a second, latency")
      .show_default();
  parser.add_option("--rows", flags.rows, "layouts to print").range(1, 10'000);
  parser.add_flag("--all", flags.all, "print each refused layout on a line of its own");
  parser.add_flag("--json", flags.json, "one line for programs");
}

void refuse_without_ranks(const LayoutFlags& flags) {
  const bool is_given = flags.ranks_per_host > 0 || !flags.memory.empty() || !flags.link.empty() ||
                        !flags.figures.empty() || !flags.write_figures.empty() || flags.all ||
                        flags.json || flags.islands > 0;
  if (!is_given) return;
  throw user_error(
      "--ranks-per-host, --memory, --link, --figures, --write-figures, --islands, --all and --json "
      "are about "
      "the table of layouts; give --ranks N");
}

int print_layouts(const std::string& path, const LayoutFlags& flags, const Invocation& invocation) {
  const std::vector<std::string> overrides =
      flags.gpu.empty() ? invocation.overrides
                        : plan::overrides_for_gpu(path, invocation.overrides);
  plan::check_but_for_layout(path, overrides);
  const plan::Variants as_given(path, overrides);
  const Vocabulary vocabulary = find_vocabulary(as_given.config());
  plan::Question question = plan::ask(path, overrides, vocabulary.size, hosts_of(flags));
  question.rows = static_cast<std::size_t>(flags.rows);
  if (!flags.write_figures.empty()) write_file(flags.write_figures, to_toml(question.figures));
  const plan::Ranking ranking = plan::rank_layouts(question);
  fmt::print("{}\n", flags.json ? plan::ranking_json(ranking, question)
                                : plan::ranking_table(ranking, question, flags.all));
  if (flags.islands > 0 && !flags.json) {
    const train::TrainConfig& config = as_given.config();
    fmt::print("{}", islands_table(ranking.rows.front(), config.outer, flags.islands,
                                   parse_link(flags.island_link), ranking.parameters));
  }
  return 0;
}

}  // namespace atl::cli
