#include "atoll/launch/roll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RollText, SaysWhatItWasMadeOf) {
  const std::vector<Listed> ranks = {{0, ""}, {4, "alpha"}, {12, "me@beta.example"}};
  EXPECT_EQ(parse_roll(format_roll(ranks)), ranks);
  EXPECT_THAT(parse_roll(""), IsEmpty());
}

TEST(RollText, DamageIsNamed) {
  for (const char* text :
       {"\n", "1\n", "x \n", "1 a", "-1 a\n", "1x a\n", " a\n", "99999999999 a\n", "0 \n\n"}) {
    try {
      parse_roll(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged) << text;
    }
  }
}

class RollTest : public ::testing::Test {
 protected:
  // The newest list, as a rank would read it.
  std::vector<Listed> newest() {
    return parse_roll(store_->get(roll_key(roll_.generation())).value());
  }

  comm::RendezvousServer server_{"127.0.0.1", 0};
  Roll roll_{server_.address()};
  std::unique_ptr<comm::Rendezvous> store_ = comm::open_rendezvous(server_.address(), 5);
};

TEST_F(RollTest, WhoIsLeftMovesDown) {
  roll_.begin({"", "a", "a"});
  EXPECT_THAT(newest(), ElementsAre(Listed{0, ""}, Listed{1, "a"}, Listed{2, "a"}));
  const int before = roll_.generation();
  roll_.remove(1);
  EXPECT_EQ(roll_.generation(), before + 1);
  EXPECT_THAT(newest(), ElementsAre(Listed{0, ""}, Listed{2, "a"}));
  EXPECT_EQ(roll_.rank_of(2), 1);
  EXPECT_EQ(roll_.rank_of(1), -1);
}

TEST_F(RollTest, WhoIsReadyComesLast) {
  roll_.begin({"", ""});
  const int first = roll_.expect("a");
  const int second = roll_.expect("b");
  EXPECT_EQ(roll_.rank_of(first), -1);
  EXPECT_EQ(roll_.place_of(second), 3);
  store_->set(ready_key(second), "");
  EXPECT_EQ(roll_.admit(), 0) << "places are taken in order";
  store_->set(ready_key(first), "");
  EXPECT_EQ(roll_.admit(), 2);
  EXPECT_THAT(newest(), ElementsAre(Listed{0, ""}, Listed{1, ""}, Listed{2, "a"}, Listed{3, "b"}));
}

TEST_F(RollTest, WhoNeverCameChangesNothing) {
  roll_.begin({"", ""});
  const int before = roll_.generation();
  roll_.remove(roll_.expect("a"));
  EXPECT_EQ(roll_.generation(), before);
  EXPECT_EQ(roll_.num_processes(), 2);
}

TEST_F(RollTest, AnotherIslandKnowsNothingOfTheOneBefore) {
  roll_.begin({"", ""});
  store_->set(ready_key(roll_.expect("")), "");
  roll_.dissolve();
  EXPECT_THAT(newest(), IsEmpty());
  EXPECT_EQ(roll_.rank_of(1), 1) << "what it was";
  roll_.begin({""});
  EXPECT_EQ(roll_.expect(""), 1);
  EXPECT_EQ(roll_.expect(""), 2);
  EXPECT_EQ(roll_.admit(), 0) << "number 2 was another's";
}

}  // namespace
}  // namespace atl::launch
