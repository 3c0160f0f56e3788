// What the ranks of an island tell each other.

#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/parallel/layout/gather_text.h"
#include "atoll/train/island/rounds.h"
#include "atoll/wire/access_token.h"

namespace atl::train {

using Clock = std::chrono::steady_clock;

// A fragment as the ranks have it, or are to have it.
void IslandRounds::read(int f) {
  if (params_.has(f)) return;
  tell({.command = Command::kRead, .fragment = f});
  params_.gather(f);
}

// What each rank's part adds to a hash, added up.
island::StateHash IslandRounds::sum_of_ranks(const island::StateHash& own) const {
  if (!shares_state()) return own;
  std::string text(sizeof(own), '\0');
  std::memcpy(text.data(), &own, sizeof(own));
  island::StateHash sum;
  for (const std::string& one : parallel::gather_text(&ranks_->group(), text)) {
    island::StateHash part;
    std::memcpy(&part, one.data(), sizeof(part));
    sum = sum + part;
  }
  return sum;
}

// Each rank with a part listens for other islands; the lead tells them where.
void IslandRounds::make_exchange() {
  const IslandSettings& settings = config_.island;
  const auto unless_empty = [](const std::string& path) {
    return path.empty() ? std::nullopt : std::optional<std::filesystem::path>(path);
  };
  comm::Group* group = shares_state() ? &ranks_->group() : nullptr;
  const auto of_lead = [&](const std::string& text) {
    return parallel::gather_text(group, ranks_->is_lead() ? text : "").front();
  };
  island::RankExchangeOptions options = {
      .place = {ranks_->is_lead() ? 0 : ranks_->rank(), params_.num_shares()},
      .coordinator = settings.coordinator,
      .listen = {},
      .advertise = {},
      .identity = unless_empty(settings.identity),
      .secret = unless_empty(settings.secret),
      .kept_list = std::filesystem::path(config_.run.dir) / "revoked.pem",
      .relay_token = of_lead(wire::new_access_token()),
      .peer_token = of_lead(wire::new_access_token()),
      .codec = options_.codec,
      .codec_errors = std::move(codec_errors_)};
  // One list for each process: they are written.
  if (options.place.rank > 0) *options.kept_list += fmt::format(".{}", options.place.rank);
  const auto make = [&] {
    const auto of_rank = [&](const std::string& setting, const char* name) {
      return setting.empty() ? setting : island::address_of_rank(setting, name, options.place);
    };
    options.listen = of_rank(settings.listen, "island.listen");
    options.advertise = of_rank(settings.advertise, "island.advertise");
    exchange_ = std::make_unique<island::RankExchange>(options, part_->outer());
  };
  if (group == nullptr) {
    make();
  } else {
    ranks_->world().agree(make);
  }
  const std::vector<std::string> addresses = parallel::gather_text(group, exchange_->address());
  address_ = exchange_->address().empty() ? "" : island::join_addresses(addresses);
  if (group == nullptr) return;
  std::vector<int> all(static_cast<std::size_t>(ranks_->size()));
  std::iota(all.begin(), all.end(), 0);
  comm::World& world = ranks_->world();
  link_ = std::make_unique<RankLink>(world.group(all, "island", world.channel("island", all)));
  if (ranks_->is_lead()) return;
  rank_client_ = std::make_unique<island::RankClient>(
      *exchange_, part_->outer(),
      [this](std::uint64_t number, const std::string& text) { link_->answer(number, text); });
  link_->begin([this](std::uint64_t number, const std::string& order) {
    rank_client_->take(number, order);
  });
}

void IslandRounds::write_parameters() {
  for (const int f : params_.changed()) {
    tell({.command = Command::kWrite, .fragment = f});
    params_.scatter(f);
  }
}

void IslandRounds::regrouped(TrainState& state, Ranks& ranks, double seconds) {
  ATOLL_CHECK(!shares_state(), "a rank that is lost takes its part of the outer state with it");
  state_ = &state;
  ranks_ = &ranks;
  params_.regrouped(state, ranks);
  pace_.waited(seconds);
  if (ranks.is_alone()) return write_parameters();
  std::vector<std::int64_t> facts(
      1 + static_cast<std::size_t>(params_.num_fragments()));  // the rest: is it unwritten?
  facts[0] = static_cast<std::int64_t>(is_over_);
  for (const int f : params_.changed()) facts[1 + static_cast<std::size_t>(f)] = 1;
  ranks.group().broadcast({facts.data(), {Dtype::kI64, {static_cast<std::int64_t>(facts.size())}}},
                          0);
  is_over_ = facts[0] != 0;
  for (std::size_t f = 0; f + 1 < facts.size(); ++f) {
    if (facts[1 + f] != 0) params_.scatter(static_cast<int>(f));
  }
  // Nobody is told that all have what they share out before they do.
  ranks.group().barrier();
}

void IslandRounds::tell(Order order) {
  if (ranks_->is_alone()) return;
  told_at_ = Clock::now();
  std::array<std::int64_t, 11> words = {static_cast<std::int64_t>(order.command),
                                        order.batch,
                                        order.schedule_step,
                                        order.steps_left,
                                        order.is_over,
                                        order.fragment,
                                        order.outer_step,
                                        std::bit_cast<std::int64_t>(order.share),
                                        order.takes_back,
                                        std::bit_cast<std::int64_t>(order.hash.high),
                                        std::bit_cast<std::int64_t>(order.hash.low)};
  ranks_->group().broadcast({words.data(), {Dtype::kI64, {words.size()}}}, 0);
}

void IslandRounds::tell_parts(const Order& order) {
  if (shares_state()) tell(order);
}

IslandRounds::Order IslandRounds::hear() {
  std::array<std::int64_t, 11> words = {};
  ranks_->group().broadcast({words.data(), {Dtype::kI64, {words.size()}}}, 0);
  return {
      .command = static_cast<Command>(words[0]),
      .batch = words[1],
      .schedule_step = words[2],
      .steps_left = words[3],
      .is_over = words[4],
      .fragment = words[5],
      .outer_step = words[6],
      .share = std::bit_cast<double>(words[7]),
      .takes_back = words[8],
      .hash = {std::bit_cast<std::uint64_t>(words[9]), std::bit_cast<std::uint64_t>(words[10])}};
}

// What the lead does at the same time with its own part.
void IslandRounds::follow_with_part(const Order& order) {
  const int f = static_cast<int>(order.fragment);
  switch (order.command) {
    case Command::kReset:
      return part_->reset(f, rank_client_->state_of(f, order.hash));
    case Command::kHandIn:
      return rank_client_->hand_in(order.outer_step, part_->hand_in(f, order.share));
    case Command::kApply:
      return part_->apply(f, rank_client_->state_of(f, order.hash));
    case Command::kRebase:
      return part_->rebase(f, rank_client_->state_of(f, order.hash), order.takes_back != 0);
    default:
      ATOLL_CHECK(false, "order {}", static_cast<std::int64_t>(order.command));
  }
}

// A rank that does not lead does what it is told, until a step is due or the end.
IslandRounds::Next IslandRounds::follow() {
  for (;;) {
    const Order order = hear();
    switch (order.command) {
      case Command::kRead:
        params_.gather(static_cast<int>(order.fragment));
        break;
      case Command::kWrite:
        params_.scatter(static_cast<int>(order.fragment));
        break;
      case Command::kWait:
        break;
      case Command::kTrain:
        return {.what = Next::What::kStep,
                .batch = order.batch,
                .schedule_step = order.schedule_step,
                .steps_left = order.steps_left};
      case Command::kRegroup:
        return {.what = Next::What::kRegroup};
      case Command::kEnd:
        is_over_ = order.is_over != 0;
        return {.what = Next::What::kEnd};
      case Command::kReset:
      case Command::kHandIn:
      case Command::kApply:
      case Command::kRebase:
        follow_with_part(order);
        break;
    }
  }
}

}  // namespace atl::train
