#include "atoll/param_server/slice_state.h"

#include <gtest/gtest.h>

#include <cstring>

namespace atl::param_server {
namespace {

constexpr std::int64_t kElements = 4;

std::string bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

class SliceStates : public testing::Test {
 protected:
  SliceStates() {
    spec_.num_lanes = 3;
    spec_.num_elements = kElements;
    spec_.optimizer.kind = "sgd";
    spec_.optimizer.values = {{"weight_decay", 0.0}, {"momentum", 0.0}, {"nesterov", false}};
    spec_.slices = {
        {.begin = 0,
         .count = kElements,
         .ranges = {{.begin = 0, .count = kElements, .value_begin = 0, .grad_begin = 0}}}};
  }
  SliceState make(Consistency consistency) {
    spec_.consistency = consistency;
    SliceState state({&spec_, stream_.get()}, 0);
    state.load({.slice = 0,
                .step = 0,
                .updates = 0,
                .values = bytes({0, 0, 0, 0}),
                .state = {bytes({0, 0, 0, 0})}});
    return state;
  }
  static Push push(std::int64_t lane, std::int64_t step, float g) {
    return {.slice = 0,
            .step = step,
            .lane = lane,
            .lr = 1,
            .scale = 1,
            .loss = g,
            .data = bytes({g, g, g, g})};
  }
  // Of what a pull is given.
  static float seen(SliceState& state) {
    float first = 0;
    const std::string values = state.values({.slice = 0, .step = 0, .lane = 0}).data;
    std::memcpy(&first, values.data(), sizeof(first));
    return first;
  }
  // Of what a checkpoint is given.
  static float value(const SliceState& state) {
    float first = 0;
    const std::string values = state.state().values;
    std::memcpy(&first, values.data(), sizeof(first));
    return first;
  }
  std::unique_ptr<Device> device_ = open_device({.threads = 1});
  std::unique_ptr<Stream> stream_ = device_->open_stream();
  RunSpec spec_;
};

using Outcome = SliceState::Outcome;

// In f32, (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1: the order shows.
TEST_F(SliceStates, SumsRunInLaneOrderWhateverCameFirst) {
  SliceState state = make(Consistency::kBsp);
  EXPECT_EQ(state.push(push(2, 0, -1e8f)), Outcome::kTaken);
  EXPECT_EQ(state.push(push(1, 0, 1)), Outcome::kTaken);
  EXPECT_FALSE(state.has_sum(0));
  EXPECT_EQ(state.push(push(0, 0, 1e8f)), Outcome::kTaken);
  ASSERT_TRUE(state.has_sum(0));
  EXPECT_EQ(state.sum(0).losses, (std::vector<double>{1e8, 1, -1e8}));
  state.update(0, {.is_given = true, .lr = 1, .scale = 1});
  EXPECT_EQ(value(state), 0);
}

TEST_F(SliceStates, APushCountsOnceHoweverOftenItIsMade) {
  for (const Consistency consistency :
       {Consistency::kBsp, Consistency::kSsp, Consistency::kEasgd}) {
    SliceState state = make(consistency);
    EXPECT_EQ(state.push(push(1, 0, 3)), Outcome::kTaken);
    EXPECT_EQ(state.push(push(1, 0, 3)), Outcome::kDuplicate);
    EXPECT_EQ(state.push(push(1, 2, 3)), Outcome::kAhead);
    EXPECT_EQ(state.next(1), 1);
  }
}

TEST_F(SliceStates, APullWaitsForTheSlowestLaneOnlyAsFarAsTheBoundSays) {
  spec_.staleness = 1;
  SliceState state = make(Consistency::kSsp);
  state.push(push(0, 0, 1));
  EXPECT_TRUE(state.can_answer({.slice = 0, .step = 1, .lane = 0}));
  state.push(push(0, 1, 1));
  EXPECT_FALSE(state.can_answer({.slice = 0, .step = 2, .lane = 0}));
  EXPECT_FALSE(state.can_answer({.slice = 0, .step = 1, .lane = 1})) << "its own push is missing";
  state.push(push(1, 0, 1));
  state.push(push(2, 0, 1));
  EXPECT_TRUE(state.can_answer({.slice = 0, .step = 2, .lane = 0}));
}

TEST_F(SliceStates, ABspPullWaitsForTheUpdateOfAllLanes) {
  SliceState state = make(Consistency::kBsp);
  EXPECT_TRUE(state.can_answer({.slice = 0, .step = 0, .lane = 0}));
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    state.push(push(lane, 0, 1));
    EXPECT_FALSE(state.can_answer({.slice = 0, .step = 1, .lane = 0})) << lane;
  }
  state.update(0, {.lr = 1, .scale = 1});
  EXPECT_TRUE(state.can_answer({.slice = 0, .step = 1, .lane = 0}));
  EXPECT_FALSE(state.can_answer({.slice = 0, .step = 2, .lane = 0}));
}

TEST_F(SliceStates, ACopyGoesOnAsTheOriginal) {
  for (const Consistency consistency : {Consistency::kBsp, Consistency::kSsp}) {
    SliceState first = make(consistency);
    first.push(push(0, 0, 2));
    first.push(push(2, 0, 5));
    SliceState second = make(consistency);
    second.decode(first.encode());
    for (SliceState* state : {&first, &second}) state->push(push(1, 0, 7));
    if (consistency == Consistency::kBsp) {
      for (SliceState* state : {&first, &second}) state->update(0, {.lr = 1, .scale = 1});
    }
    EXPECT_EQ(first.encode(), second.encode());
    EXPECT_EQ(value(second), -14);
  }
}

TEST_F(SliceStates, DelayIsCompensatedByWhatTheValuesHaveMoved) {
  spec_.compensation = 0.5;
  SliceState state = make(Consistency::kAsync);
  state.mark_pulled(1);
  state.push(push(0, 0, -2));  // values become 2
  state.push(push(1, 0, 4));
  // g + lambda / rms * g * g * (2 - 0) with rms = |g| = 4: 4 + 0.5 / 4 * 16 * 2 = 8.
  EXPECT_NEAR(seen(state), 2 - 8, 1e-5);
}

// AdamW moves each element by about lr, whatever the gradient: an update of each push would move it
// three times as far.
TEST_F(SliceStates, ARoundOfPushesIsOneUpdate) {
  spec_.optimizer.kind = "adamw";
  spec_.optimizer.values = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.0}};
  RunSpec summing = spec_, counting = spec_;
  summing.consistency = Consistency::kBsp;
  counting.consistency = Consistency::kSsp;
  const auto loaded = [&](const RunSpec& spec) {
    SliceState state({&spec, stream_.get()}, 0);
    state.load({.slice = 0,
                .step = 0,
                .updates = 0,
                .values = bytes({0, 0, 0, 0}),
                .state = {bytes({0, 0, 0, 0}), bytes({0, 0, 0, 0})}});
    return state;
  };
  SliceState summed = loaded(summing);
  SliceState each = loaded(counting);
  for (std::int64_t step = 0; step < 3; ++step) {
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      const float g = static_cast<float>(1 + lane + 2 * step);
      summed.push(push(lane, step, g));
      each.push(push(lane, step, g));
      // A part of a round is seen as a part of its step.
      const float moved = -seen(each) - static_cast<float>(step);
      if (step == 0) {
        EXPECT_NEAR(moved, static_cast<float>(lane + 1) / 3, 1e-5);
      }
    }
    summed.update(step, {.is_given = true, .lr = 1, .scale = 1});
    EXPECT_EQ(value(each), value(summed)) << step;
    EXPECT_EQ(each.state().state, summed.state().state) << step;
  }
}

// One lane is ahead: what it has pushed is seen, and in the optimizer's state once there are three
// pushes, or all lanes are as far.
TEST_F(SliceStates, WhoeverPushesIsOfTheRound) {
  spec_.staleness = 3;
  SliceState state = make(Consistency::kSsp);
  state.push(push(0, 0, 1));
  state.push(push(0, 1, 1));
  EXPECT_EQ(value(state), 0);
  EXPECT_EQ(seen(state), -2);
  SliceState copy = make(Consistency::kSsp);
  copy.decode(state.encode());
  for (SliceState* one : {&state, &copy}) {
    one->push(push(1, 0, 4));
    EXPECT_EQ(value(*one), -6);
    one->push(push(2, 0, 1));
    EXPECT_EQ(value(*one), -6);
    EXPECT_EQ(seen(*one), -7);
  }
  EXPECT_EQ(state.encode(), copy.encode());
}

TEST_F(SliceStates, WhatADiskDidNotHaveIsCountedAsLost) {
  SliceState state = make(Consistency::kSsp);
  EXPECT_EQ(state.skip_lost(0, 5), 0) << "it is not from a disk";
  state.set_restored();
  EXPECT_EQ(state.skip_lost(0, 5), 5);
  EXPECT_EQ(state.next(0), 5);
  SliceState summed = make(Consistency::kBsp);
  summed.set_restored();
  EXPECT_EQ(summed.lose_contribution(0, 2), 2 * 3 + 1) << "two steps of three lanes, and its own";
  summed.push(push(1, 2, 1));
  summed.push(push(2, 2, 1));
  EXPECT_TRUE(summed.has_sum(2));
}

// A contribution that is taken for zero is counted then; where its whole step is lost later, the
// others of the step are counted, on the server's copy too.
TEST_F(SliceStates, EachPushIsCountedAsLostOnce) {
  SliceState state = make(Consistency::kBsp);
  state.set_restored();
  EXPECT_EQ(state.lose_contribution(1, 0), 1);
  EXPECT_EQ(state.lose_contribution(1, 0), 0) << "asked again";
  SliceState copy = make(Consistency::kBsp);
  copy.decode(state.encode());
  for (SliceState* one : {&state, &copy}) {
    EXPECT_EQ(one->skip_lost(0, 2), 2 + 3) << "the rest of the step, and the next one";
    EXPECT_EQ(one->lose_contribution(2, 3), 3 + 1);
  }
  EXPECT_EQ(state.encode(), copy.encode());
}

TEST_F(SliceStates, WhatALaterUpdateTookForZeroIsNoPushOfTheNextStep) {
  SliceState state = make(Consistency::kBsp);
  state.set_restored();
  EXPECT_EQ(state.lose_contribution(0, 0), 1);
  state.push(push(1, 0, 1));
  state.push(push(2, 0, 1));
  ASSERT_TRUE(state.can_update(0));
  state.update(0, {.is_given = true, .lr = 1, .scale = 1});
  EXPECT_EQ(state.skip_lost(0, 2), 3);
}

// A disk may have been written at any moment of a step: before its pushes, between them, or between
// the last one and the update. Whoever speaks of the next step has had the update.
TEST_F(SliceStates, GoOnFromADiskOfAnyMomentOfAStep) {
  for (int pushed = 0; pushed <= 3; ++pushed) {
    SliceState before = make(Consistency::kBsp);
    for (std::int64_t lane = 0; lane < pushed; ++lane) before.push(push(lane, 0, 1));
    SliceState state = make(Consistency::kBsp);
    state.decode(before.encode());
    state.set_restored();
    EXPECT_EQ(state.waits_for(0), 0);
    EXPECT_EQ(state.skip_lost(0, 1), 3) << "of a step of three lanes, " << pushed << " on disk";
    EXPECT_EQ(state.skip_lost(1, 1), 0) << "counted once";
    EXPECT_TRUE(state.can_answer({.slice = 0, .step = 1, .lane = 2}));
    EXPECT_TRUE(state.is_past(0) || state.has_sum(0)) << "who awaits the sum is answered";
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      EXPECT_EQ(state.push(push(lane, 1, 2)), Outcome::kTaken) << pushed;
    }
    ASSERT_TRUE(state.can_update(1));
    state.update(1, {.is_given = true, .lr = 1, .scale = 1});
    EXPECT_EQ(value(state), -6);
  }
}

TEST_F(SliceStates, ACopyOfOneFromADiskIsOneToo) {
  SliceState state = make(Consistency::kBsp);
  state.set_restored();
  SliceState copy = make(Consistency::kBsp);
  copy.decode(state.encode());
  EXPECT_EQ(copy.skip_lost(0, 2), 6);
  copy.load({.slice = 0, .values = bytes({0, 0, 0, 0}), .state = {bytes({0, 0, 0, 0})}});
  EXPECT_EQ(copy.skip_lost(0, 2), 0) << "the lead has given it all";
}

}  // namespace
}  // namespace atl::param_server
