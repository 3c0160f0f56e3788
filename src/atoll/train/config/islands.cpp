// island.* and outer.*: runs of several islands.

#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/compress/codec.h"
#include "atoll/island/client/shard.h"
#include "atoll/island/policy/policy.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/outer_options.h"
#include "atoll/train/config/rules.h"
#include "atoll/wire/address.h"

namespace atl::train {

namespace {

// Nobody means more.
constexpr double kMaxCount = 1 << 20;

void check_addresses(const TrainConfig& config, const Settings&) {
  if (config.island.coordinator.empty()) return;
  wire::parse_address(config.island.coordinator, "island.coordinator");
  for (const auto& [text, name] : {std::pair(config.island.listen, "island.listen"),
                                   std::pair(config.island.advertise, "island.advertise")}) {
    if (text.empty()) continue;
    for (const std::string& one : island::split_addresses(text)) wire::parse_address(one, name);
  }
}

void check_codec(const TrainConfig& config, const Settings& s) {
  try {
    (void)compress::make_codec(config.outer.codec);
  } catch (const Error& error) {
    throw user_error("{}: {}", named(s, "outer.codec"), error.what());
  }
}

void check_multiple_of_fragments(std::int64_t steps, const char* key, const TrainConfig& config,
                                 const Settings& s) {
  if (steps % config.outer.fragments == 0) return;
  throw user_error("{} must be a multiple of {}: fragments take turns at even distances",
                   named(s, key), named(s, "outer.fragments"));
}

void check_inner_steps(const TrainConfig& config, const Settings& s) {
  check_multiple_of_fragments(config.outer.inner_steps, "outer.inner_steps", config, s);
}

void check_least_inner_steps(const TrainConfig& config, const Settings& s) {
  check_multiple_of_fragments(config.outer.min_inner_steps, "outer.min_inner_steps", config, s);
}

void check_most_inner_steps(const TrainConfig& config, const Settings& s) {
  check_multiple_of_fragments(config.outer.max_inner_steps, "outer.max_inner_steps", config, s);
}

void check_overlap(const TrainConfig& config, const Settings& s) {
  const OuterSettings& outer = config.outer;
  if (outer.overlap <= outer.inner_steps / outer.fragments) return;
  throw user_error("{} is more than the {} between two fragments ({} / {}); make it smaller",
                   named(s, "outer.overlap"), counted(outer.inner_steps / outer.fragments, "step"),
                   named(s, "outer.inner_steps"), named(s, "outer.fragments"));
}

void check_merge(const TrainConfig& config, const Settings& s) {
  if (config.outer.algorithm != "streaming" || config.outer.merge < 1) return;
  throw user_error(
      "{}: an island that keeps all of its own parameters takes none from the others; it must be "
      "below 1",
      named(s, "outer.merge"));
}

void check_grace(const TrainConfig& config, const Settings& s) {
  if (config.outer.algorithm != "async") return;
  if (!is_given(s, "outer.grace_s") || config.outer.grace_s == 0) return;
  throw user_error("{} does not go together with {}: nobody is waited for; set outer.grace_s=0",
                   named(s, "outer.grace_s"), named(s, "outer.algorithm"));
}

void check_policy(const TrainConfig& config, const Settings& s) {
  const int islands = static_cast<int>(config.outer.islands);
  const std::string why =
      island::policy_fault(policy_plan(config.outer, /*parameters=*/0), islands);
  if (!why.empty()) throw user_error("{}: {}", named(s, "outer.policy"), why);
}

// Whatever else these refuse when an island begins, they refuse here.
void check_outer_algorithm(const TrainConfig& config, const Settings&) {
  const island::OuterOptions options = outer_options(config.outer);
  const auto optimizer = island::make_outer_optimizer(options.optimizer);
  (void)island::make_outer_algorithm(options, *optimizer);
}

}  // namespace

void add_islands(SettingRegistry& settings, TrainConfig& c) {
  IslandSettings& i = c.island;
  settings.group("island",
                 "This island, where a run has several: docs/first-islands.md. `atoll train "
                 "--islands N` sets these by itself.",
                 Scope::kIsland);
  settings
      .add("island.coordinator", &i.coordinator,
           "HOST:PORT of the run's coordinator; empty: the run has no islands.")
      .needs("island.name", changed("lyon"))
      .checked("", check_addresses);
  settings
      .add("island.name", &i.name,
           "Under which it is known for the whole run, whenever it comes back.")
      .only_with("island.coordinator", changed("HOST:PORT"));
  settings
      .add("island.listen", &i.listen,
           "HOST:PORT where other islands fetch from it, port 0 takes a free one; of several "
           "ranks, each takes the next port, or one of a list with commas. Empty: it only calls "
           "out, and everything goes through the coordinator.")
      .only_with("island.coordinator", changed("HOST:PORT"));
  settings
      .add("island.advertise", &i.advertise,
           "HOST:PORT under which others reach island.listen, of ranks likewise; empty: the same.")
      .only_with("island.coordinator", changed("HOST:PORT"));
  settings
      .add("island.identity", &i.identity,
           "Directory with its certificate, made by `atoll certs issue`; needed wherever an "
           "address is not of this host.")
      .only_with("island.coordinator", changed("HOST:PORT"));
  settings
      .add("island.secret", &i.secret,
           "File with the secret of the run, which its coordinator has made: islands of one "
           "machine know each other by it, where they have no certificates.")
      .only_with("island.coordinator", changed("HOST:PORT"));
}

void add_outer(SettingRegistry& settings, TrainConfig& c) {
  constexpr const char* kSums = "it needs an optimizer whose steps are sums of the islands'";
  constexpr const char* kTogether = "policies choose for islands that exchange together";
  OuterSettings& o = c.outer;
  settings.group("outer", "What islands do together; the same on all of them.");
  settings.add("outer.islands", &o.islands,
               "Islands that the run is planned for: it begins when so many are there, and has "
               "train.steps for each of them. They may come and go later.",
               between(0, 1 << 16));
  settings
      .add("outer.algorithm", &o.algorithm,
           "diloco: all parameters every outer.inner_steps. streaming: by fragments, one after the "
           "other. eager: as diloco, and training goes on for a whole round meanwhile. async: "
           "islands come one by one, and none waits for others. gossip: pairs of islands average "
           "what they have, and all do at the end.",
           one_of({"diloco", "streaming", "eager", "async", "gossip"}))
      .when("eager")
      .needs("outer.optimizer", {"nesterov", "sgd"}, kSums)
      .when("async")
      .needs("outer.optimizer", "nesterov", "it has Nesterov's momentum, in its own way")
      .needs("outer.policy", "fixed", kTogether)
      .when("gossip")
      .needs("outer.optimizer", {"nesterov", "sgd"}, kSums)
      .needs("outer.codec", "f32",
             "it exchanges parameters, and not their changes, which a codec may round")
      .needs("outer.policy", "fixed", kTogether);
  settings
      .add("outer.async_momentum", &o.async_momentum,
           "async: delayed: a step of the momentum for as many arrivals as there are islands. "
           "naive: one for each arrival, for comparison.",
           one_of({"delayed", "naive"}))
      .only_with("outer.algorithm", "async");
  settings
      .add("outer.inner_steps", &o.inner_steps,
           "Steps between two exchanges of the same parameters (H).", between(1, kMaxCount))
      .checked("A multiple of outer.fragments.", check_inner_steps);
  settings
      .add("outer.fragments", &o.fragments,
           "streaming: parts of the model, which take turns; divides outer.inner_steps.",
           between(1, 4096))
      .only_with("outer.algorithm", "streaming");
  settings
      .add("outer.overlap", &o.overlap,
           "streaming: steps that are taken while a fragment is exchanged (tau).",
           between(0, kMaxCount))
      .only_with("outer.algorithm", "streaming")
      .checked("At most outer.inner_steps / outer.fragments.", check_overlap);
  settings
      .add("outer.merge", &o.merge,
           "streaming: how much of its own parameters an island keeps when an exchange ends "
           "(alpha).",
           between(0, 1))
      .only_with("outer.algorithm", "streaming")
      .checked("Below 1.", check_merge);
  settings.add("outer.optimizer", &o.optimizer, "What applies the islands' mean change.",
               one_of({"nesterov", "sgd", "adam"}));
  settings.add("outer.lr", &o.lr,
               "Its learning rate; 0: the published one for so many outer.islands.", at_least(0));
  settings.add("outer.momentum", &o.momentum, "nesterov: its momentum.", from_below(0, 1))
      .only_with("outer.optimizer", "nesterov");
  settings
      .add("outer.codec", &o.codec,
           "How changes are sent: f32, bf16, int8, int4, e3m0 (4 bits), topk, sign_prune; "
           "docs/codecs.md.")
      .checked("", check_codec);
  settings
      .add("outer.quorum", &o.quorum,
           "Islands that an outer step needs at least; 0: half of those there are.",
           between(0, 1 << 16))
      .not_beside("outer.algorithm", "async", "nobody is waited for");
  settings
      .add("outer.grace_s", &o.grace_s,
           "Seconds that an outer step waits for more islands than it needs.", between(0, 1e6))
      .checked("With outer.algorithm async only 0.", check_grace);
  settings.add("outer.data", &o.data,
               "shared: one corpus, of which each island is leased parts. private: each island has "
               "a corpus of its own, which it never sends.",
               one_of({"shared", "private"}));
  settings.add("outer.policy", &o.policy,
               "How much is communicated while the run goes on: fixed: as these settings say. qsr: "
               "longer rounds as the learning rate falls. adacomm: shorter ones as the loss falls. "
               "budget: the most that outer.round_mb and outer.day_mb allow. auto: what is "
               "predicted to be fastest by what was measured.",
               one_of({"fixed", "qsr", "adacomm", "budget", "auto"}));
  settings
      .add("outer.min_inner_steps", &o.min_inner_steps,
           "The least that a policy makes of outer.inner_steps; 0: an eighth of them.",
           between(0, kMaxCount))
      .only_with("outer.policy", {"qsr", "adacomm", "budget", "auto"})
      .checked("A multiple of outer.fragments.", check_least_inner_steps);
  settings
      .add("outer.max_inner_steps", &o.max_inner_steps, "And the most; 0: eight times as many.",
           between(0, kMaxCount))
      .only_with("outer.policy", {"qsr", "adacomm", "budget", "auto"})
      .checked("A multiple of outer.fragments.", check_most_inner_steps);
  settings
      .add("outer.qsr_alpha", &o.qsr_alpha,
           "qsr: (alpha / learning rate)^2 inner steps, as soon as that is more than "
           "outer.inner_steps; 0: from the highest learning rate on.",
           at_least(0))
      .only_with("outer.policy", "qsr");
  settings
      .add("outer.round_mb", &o.round_mb,
           "budget, auto: MB that an island may send for an outer step; 0: any number.",
           at_least(0))
      .only_with("outer.policy", {"budget", "auto"});
  settings
      .add("outer.day_mb", &o.day_mb,
           "budget, auto: MB that an island may send for the outer steps of a day; 0: any number.",
           at_least(0))
      .only_with("outer.policy", {"budget", "auto"})
      .checked("", check_policy)
      .checked("", check_outer_algorithm);
}

}  // namespace atl::train
