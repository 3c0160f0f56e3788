#include "atoll/island/suspicion.h"

#include <gtest/gtest.h>

namespace atl::island {
namespace {

TEST(Suspicion, ItsPatienceIsMedianAndDeviationsUpToTheCap) {
  Suspicion suspicion({.cap = 2.5, .num_mads = 12}, 0);
  EXPECT_EQ(suspicion.patience(), 2.5) << "nothing is known yet";
  Seconds now = 0;
  for (int i = 0; i < 8; ++i) suspicion.heard(now += 0.1);
  // Regular: the deviation counts as a quarter of the median.
  EXPECT_NEAR(suspicion.patience(), 0.1 + 12 * 0.025, 1e-9);
  EXPECT_FALSE(suspicion.is_silent(now + 0.39));
  EXPECT_TRUE(suspicion.is_silent(now + 0.41));
  for (int i = 0; i < 16; ++i) suspicion.heard(now += i % 2 == 0 ? 0.1 : 0.2);
  EXPECT_NEAR(suspicion.patience(), 0.2 + 12 * 0.1, 1e-9);
  for (int i = 0; i < 16; ++i) suspicion.heard(now += 1);
  EXPECT_EQ(suspicion.patience(), 2.5);
}

TEST(Suspicion, WhatComesTogetherIsOneSignOfLife) {
  Suspicion suspicion({.cap = 2.5, .num_mads = 12}, 0);
  Seconds now = 0;
  for (int i = 0; i < 8; ++i) {
    suspicion.heard(now += 0.1);
    for (int j = 0; j < 20; ++j) suspicion.heard(now);
  }
  EXPECT_NEAR(suspicion.patience(), 0.4, 1e-9);
}

}  // namespace
}  // namespace atl::island
