#include "atoll/launch/rank_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankListText, SaysWhatItWasMadeOf) {
  const std::vector<ListedRank> ranks = {{0, ""}, {4, "alpha"}, {12, "me@beta.example"}};
  EXPECT_EQ(parse_rank_list(format_rank_list(ranks)), ranks);
  EXPECT_THAT(parse_rank_list(""), IsEmpty());
}

TEST(RankListText, DamageIsNamed) {
  for (const char* text :
       {"\n", "1\n", "x \n", "1 a", "-1 a\n", "1x a\n", " a\n", "99999999999 a\n", "0 \n\n"}) {
    try {
      parse_rank_list(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged) << text;
    }
  }
}

class RankListTest : public ::testing::Test {
 protected:
  // The newest list, as a rank would read it.
  std::vector<ListedRank> newest() {
    return parse_rank_list(store_->get(rank_list_key(rank_list_.generation())).value());
  }

  comm::RendezvousServer server_{"127.0.0.1", 0};
  RankList rank_list_{server_.address()};
  std::unique_ptr<comm::Rendezvous> store_ = comm::open_rendezvous(server_.address(), 5);
};

TEST_F(RankListTest, WhoIsLeftMovesDown) {
  rank_list_.begin({"", "a", "a"});
  EXPECT_THAT(newest(), ElementsAre(ListedRank{0, ""}, ListedRank{1, "a"}, ListedRank{2, "a"}));
  const int before = rank_list_.generation();
  rank_list_.remove(1);
  EXPECT_EQ(rank_list_.generation(), before + 1);
  EXPECT_THAT(newest(), ElementsAre(ListedRank{0, ""}, ListedRank{2, "a"}));
  EXPECT_EQ(rank_list_.rank_of(2), 1);
  EXPECT_EQ(rank_list_.rank_of(1), -1);
}

TEST_F(RankListTest, WhoIsReadyComesLast) {
  rank_list_.begin({"", ""});
  const int first = rank_list_.expect("a");
  const int second = rank_list_.expect("b");
  EXPECT_EQ(rank_list_.rank_of(first), -1);
  EXPECT_EQ(rank_list_.place_of(second), 3);
  store_->set(ready_key(second), "");
  EXPECT_EQ(rank_list_.admit(), 0) << "places are taken in order";
  store_->set(ready_key(first), "");
  EXPECT_EQ(rank_list_.admit(), 2);
  EXPECT_THAT(newest(), ElementsAre(ListedRank{0, ""}, ListedRank{1, ""}, ListedRank{2, "a"},
                                    ListedRank{3, "b"}));
}

TEST_F(RankListTest, WhoNeverCameChangesNothing) {
  rank_list_.begin({"", ""});
  const int before = rank_list_.generation();
  rank_list_.remove(rank_list_.expect("a"));
  EXPECT_EQ(rank_list_.generation(), before);
  EXPECT_EQ(rank_list_.num_processes(), 2);
}

TEST_F(RankListTest, AnotherIslandKnowsNothingOfTheOneBefore) {
  rank_list_.begin({"", ""});
  store_->set(ready_key(rank_list_.expect("")), "");
  rank_list_.dissolve();
  EXPECT_THAT(newest(), IsEmpty());
  EXPECT_EQ(rank_list_.rank_of(1), 1) << "what it was";
  rank_list_.begin({""});
  EXPECT_EQ(rank_list_.expect(""), 1);
  EXPECT_EQ(rank_list_.expect(""), 2);
  EXPECT_EQ(rank_list_.admit(), 0) << "number 2 was another's";
}

}  // namespace
}  // namespace atl::launch
