#include "atoll/param_server/messages.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"

namespace atl::param_server {
namespace {

RunSpec some_spec() {
  RunSpec spec;
  spec.identity = "abc";
  spec.consistency = Consistency::kSsp;
  spec.staleness = 3;
  spec.optimizer.kind = "adamw";
  spec.optimizer.values = {{"beta1", 0.9}, {"nesterov", true}, {"word", std::string("x")}};
  spec.slices = {{.begin = 3, .count = 5, .ranges = {{.begin = 3, .count = 4, .decay = true}}}};
  return spec;
}

std::vector<Message> some_messages() {
  return {Offer{some_spec()},
          View{.number = 4, .servers = {{1, "a:1"}}, .chains = {{1, 2}, {}}, .joining = {0, 3}},
          Push{.slice = 1, .step = 2, .lane = 3, .lr = 0.5, .data = "abcd"},
          Sum{.slice = 1, .step = 2, .squares = {1, 2.5}, .losses = {3}},
          Load{.slice = 0, .step = 1, .updates = 2, .values = "xy", .state = {"a", "", "b"}},
          Assign{.lanes = {{1, 2}, {3, 4}}, .until = 9},
          Clocks{.lanes = {{1, 2}, {3, 4}}},
          Loaded{}};
}

TEST(ParamServerMessages, ComeBackAsTheyWere) {
  for (const Message& message : some_messages()) {
    const std::string bytes = encode(message);
    EXPECT_EQ(encode(decode(bytes)), bytes) << message.index();
  }
  const auto spec = std::get<Offer>(decode(encode(Offer{some_spec()}))).spec;
  EXPECT_EQ(spec.optimizer.values, some_spec().optimizer.values);
  EXPECT_EQ(spec.slices.front().ranges.front().count, 4);
  EXPECT_TRUE(spec.slices.front().ranges.front().decay);
}

TEST(ParamServerMessages, ThatAreDamagedAreRefusedOrReadButNeverMore) {
  const RngStream random(1, RngPurpose::kSynthetic);
  std::uint64_t draws = 0;
  for (const Message& message : some_messages()) {
    const std::string whole = encode(message);
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      EXPECT_THROW((void)decode(std::string_view(whole).substr(0, cut)), Error) << cut;
    }
    for (int i = 0; i < 300; ++i) {
      std::string bytes = whole;
      const std::uint64_t place = random.word(draws++);
      bytes[place % bytes.size()] = static_cast<char>(random.word(draws++));
      try {
        (void)decode(bytes);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kDamaged) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace atl::param_server
