// `atoll rl` that is killed a hundred times: no prompt lost or taken twice, and the same bits.

#include <gtest/gtest.h>

#include "rl_fixture.h"

namespace atl {
namespace {

class RlKills : public e2e::Rl {};

TEST_F(RlKills, AHundred) {
  survives(100, {});
}

TEST_F(RlKills, WithBatchesThatWait) {
  survives(30, {"--rl.async=2"});
}

TEST_F(RlKills, WhileProgramsGrade) {
  survives(20,
           {"--rl.rewards=program", "--rl.program=sh,-c,grep -c \"completion\\\":\\\"1\" || true"});
}

}  // namespace
}  // namespace atl
