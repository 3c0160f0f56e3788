#include "atoll/comm/collectives/call_header.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "atoll/comm/world.h"

namespace atl::comm {
namespace {

Collective reduction() {
  static std::array<float, 12> memory;
  Collective call;
  call.op = Op::kReduceScatter;
  call.sequence = 7;
  call.members = {0, 2};
  call.group = "dp";
  call.data = Tensor(memory.data(), {Dtype::kF32, {12}});
  call.result = Tensor(memory.data(), {Dtype::kF32, {6}});
  call.parts = {0, 6, 12};
  return call;
}

TEST(Fingerprint, DiffersWhereverACallDoes) {
  std::vector<Collective> others(9, reduction());
  others[0].op = Op::kAllGather;
  others[1].sequence = 8;
  others[2].members = {0, 1};
  others[3].group = "tp";
  others[4].parts = {0, 6, 13};  // so is the shape
  others[5].parts = {0, 5, 12};
  others[6].contributors = {1};
  others[7].reduce = Reduce::kMax;
  others[8].root = 1;
  const CallHeader mine = make_header(reduction());
  std::set<std::uint64_t> seen = {fingerprint(mine)};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const CallHeader theirs = make_header(others[i]);
    EXPECT_TRUE(seen.insert(fingerprint(theirs)).second) << "other " << i;
    EXPECT_THROW(compare_calls(mine, theirs, 1), PeerError) << "other " << i;
  }
}

TEST(Fingerprint, IsTheSameWhereCallsCompareEqual) {
  Collective elsewhere = reduction();
  elsewhere.where = Where::current();
  CallHeader theirs = make_header(elsewhere);
  EXPECT_EQ(fingerprint(theirs), fingerprint(make_header(reduction())));
  EXPECT_NO_THROW(compare_calls(make_header(reduction()), theirs, 1));
}

}  // namespace
}  // namespace atl::comm
