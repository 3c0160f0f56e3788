#include "atoll/param_server/server.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::param_server {
namespace {

constexpr std::int64_t kElements = 2;
constexpr SessionId kLink = 7;  // that the other server has opened

// Server 1, as it sees views and what server 2 sends it; one slice.
class ServerViews : public testing::Test {
 protected:
  ServerViews() {
    spec_.num_elements = kElements;
    spec_.replicas = 2;
    spec_.consistency = Consistency::kSsp;
    spec_.optimizer.kind = "sgd";
    spec_.optimizer.values = {{"weight_decay", 0.0}, {"momentum", 0.0}, {"nesterov", false}};
    spec_.slices = {
        {.begin = 0,
         .count = kElements,
         .ranges = {{.begin = 0, .count = kElements, .value_begin = 0, .grad_begin = 0}}}};
    server_.received_from_scheduler(Welcome{.server = 1});
    server_.received_from_scheduler(Offer{spec_});
  }
  void view(std::uint64_t number, std::vector<ServerId> chain, ServerId joining = kNobody) {
    server_.received_from_scheduler(View{.number = number,
                                         .servers = {{1, "one"}, {2, "two"}},
                                         .chains = {std::move(chain)},
                                         .joining = {joining}});
  }
  // What server 2 would send as head: a slice after `sequence` events.
  Copy copy(std::uint64_t view, std::uint64_t sequence) {
    SliceState state({&spec_, stream_.get()}, 0);
    state.load({.slice = 0, .step = 0, .updates = 0, .values = zeros(), .state = {zeros()}});
    return {.slice = 0, .view = view, .sequence = sequence, .state = state.encode()};
  }
  static Push push(std::int64_t step) {
    return {.slice = 0, .step = step, .lane = 0, .lr = 1, .scale = 1, .data = zeros()};
  }
  static std::string zeros() { return std::string(kElements * sizeof(float), '\0'); }
  // The sequences of what was acknowledged over the link.
  std::vector<std::uint64_t> acknowledged() {
    std::vector<std::uint64_t> sequences;
    for (const Server::Send& send : server_.take_sends()) {
      const auto* done = std::get_if<Replicated>(&send.message);
      if (done == nullptr) continue;
      EXPECT_EQ(send.to.id, kLink);
      sequences.push_back(done->sequence);
    }
    return sequences;
  }

  std::unique_ptr<Device> device_ = open_device({.threads = 1});
  std::unique_ptr<Stream> stream_ = device_->open_stream();
  RunSpec spec_;
  Server server_{*stream_, "one"};
};

using Sequences = std::vector<std::uint64_t>;

// The head sends a copy once. This server is still head in the view that it knows.
TEST_F(ServerViews, ACopyThatComesBeforeItsViewIsKept) {
  view(1, {1, 2});
  server_.received(kLink, copy(/*view=*/3, /*sequence=*/9));
  server_.received(kLink,
                   Replicate{.slice = 0, .view = 3, .sequence = 10, .event = encode(push(0))});
  EXPECT_EQ(acknowledged(), Sequences());
  view(2, {2});
  EXPECT_EQ(acknowledged(), Sequences());
  view(3, {2}, /*joining=*/1);
  EXPECT_EQ(acknowledged(), (Sequences{9, 10}));
  view(4, {2, 1});
  server_.received(kLink,
                   Replicate{.slice = 0, .view = 4, .sequence = 11, .event = encode(push(1))});
  EXPECT_EQ(acknowledged(), Sequences{11});
  EXPECT_EQ(server_.slice(0)->next(0), 2);
}

// A server's own words with the scheduler may be slower than the head's link to it.
TEST_F(ServerViews, ACopyThatComesBeforeTheRunsSpecIsKept) {
  Server server(*stream_, "one");
  server.received(kLink, copy(/*view=*/1, /*sequence=*/5));
  server.received_from_scheduler(Welcome{.server = 1});
  server.received_from_scheduler(Offer{spec_});
  EXPECT_TRUE(server.take_sends().empty());
  server.received_from_scheduler(
      View{.number = 1, .servers = {{1, "one"}, {2, "two"}}, .chains = {{2}}, .joining = {1}});
  EXPECT_EQ(server.take_sends().size(), 1U);
  ASSERT_NE(server.slice(0), nullptr);
  EXPECT_TRUE(server.slice(0)->is_loaded());
}

TEST_F(ServerViews, AHeadThatLeavesAndJoinsInOneViewTakesTheCopy) {
  view(1, {1, 2});
  view(2, {2}, /*joining=*/1);
  server_.received(kLink, copy(/*view=*/2, /*sequence=*/5));
  EXPECT_EQ(acknowledged(), Sequences{5});
}

// Otherwise each view that changes another slice would cost the copy that has just come.
TEST_F(ServerViews, ACopyIsKeptWhileItsServerJoins) {
  view(1, {2});
  view(2, {2}, /*joining=*/1);
  server_.received(kLink, copy(/*view=*/2, /*sequence=*/5));
  view(3, {2}, /*joining=*/1);
  EXPECT_EQ(acknowledged(), Sequences{5});
  ASSERT_NE(server_.slice(0), nullptr);
}

TEST_F(ServerViews, WhatCameEarlyOverALinkThatClosedIsDropped) {
  view(1, {1, 2});
  server_.received(kLink, copy(/*view=*/2, /*sequence=*/5));
  server_.closed(kLink);
  view(2, {2}, /*joining=*/1);
  EXPECT_EQ(acknowledged(), Sequences());
  EXPECT_EQ(server_.slice(0), nullptr);
}

// What the lead has given a server alone is lost with it, until a disk has it.
TEST_F(ServerViews, ALoadIsAcknowledgedWhenItIsOnTheDisk) {
  constexpr SessionId kLead = 9;
  server_.keep_on_disk();
  view(1, {1});
  server_.received(
      kLead, Load{.slice = 0, .step = 0, .updates = 0, .values = zeros(), .state = {zeros()}});
  server_.received(kLead, push(0));
  EXPECT_TRUE(server_.take_sends().empty());
  EXPECT_TRUE(server_.waits_for_disk());
  EXPECT_EQ(server_.take_changed().size(), 1U);
  server_.written();
  EXPECT_FALSE(server_.waits_for_disk());
  const std::vector<Server::Send> sends = server_.take_sends();
  ASSERT_EQ(sends.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<LoadedSlice>(sends[0].message));
  EXPECT_TRUE(std::holds_alternative<Pushed>(sends[1].message));
  server_.received(kLead, push(1));
  EXPECT_EQ(server_.take_sends().size(), 1U) << "the disk has an older one";
}

// Once a copy is acknowledged the server that had the slice may leave it.
TEST_F(ServerViews, ACopyIsAcknowledgedWhenItIsOnTheDisk) {
  server_.keep_on_disk();
  view(1, {2}, /*joining=*/1);
  server_.received(kLink, copy(/*view=*/1, /*sequence=*/5));
  server_.received(kLink,
                   Replicate{.slice = 0, .view = 1, .sequence = 6, .event = encode(push(0))});
  EXPECT_EQ(acknowledged(), Sequences());
  server_.take_changed();
  server_.written();
  EXPECT_EQ(acknowledged(), Sequences{6});
  server_.received(kLink,
                   Replicate{.slice = 0, .view = 1, .sequence = 7, .event = encode(push(1))});
  EXPECT_EQ(acknowledged(), Sequences{7});
}

// Server 1 of a bsp run of two lanes, started again. Its disk has the updates of one step, and
// nothing of the pushes of the next one, which all other slices have.
class RestoredServer : public ServerViews {
 protected:
  RestoredServer() {
    spec_.consistency = Consistency::kBsp;
    spec_.num_lanes = 2;
    spec_.num_steps = 9;
    SliceState state({&spec_, stream_.get()}, 0);
    state.load({.slice = 0, .step = 1, .updates = 1, .values = zeros(), .state = {zeros()}});
    restored_.restore(spec_, {{0, state.encode()}});
    restored_.received_from_scheduler(Welcome{.server = 1});
  }
  void be_head() {
    restored_.received_from_scheduler(
        View{.number = 1, .servers = {{1, "one"}}, .chains = {{1}}, .joining = {kNobody}});
  }
  // The worker of lane 1 has pushed for step 1.
  void await_sum() { restored_.received(kLink, AwaitSum{.slice = 0, .step = 1, .lanes = {1}}); }
  // That of lane 0 waits for a checkpoint.
  void say_clocks() { restored_.received(kLink + 1, Clocks{.lanes = {{0, 2}}}); }
  void expect_that_step_is_past() {
    const std::vector<Server::Send> sends = restored_.take_sends();
    ASSERT_EQ(sends.size(), 1U);
    const auto* sum = std::get_if<Sum>(&sends[0].message);
    ASSERT_NE(sum, nullptr);
    EXPECT_EQ(sum->step, 1);
    EXPECT_TRUE(sum->squares.empty()) << "the other slices have its update";
    EXPECT_EQ(restored_.lost_pushes(), 2) << "of two lanes, one of them taken for zero before";
  }

  Server restored_{*stream_, "one"};
};

TEST_F(RestoredServer, LearnsOfALaneThatAsksForNothingMore) {
  be_head();
  await_sum();
  EXPECT_TRUE(restored_.take_sends().empty());
  say_clocks();
  expect_that_step_is_past();
}

TEST_F(RestoredServer, RemembersWhatItWasToldBeforeItIsTheHead) {
  say_clocks();
  be_head();
  await_sum();
  expect_that_step_is_past();
}

TEST_F(RestoredServer, MakesAnUpdateThatItHasTheSumOf) {
  be_head();
  for (const std::int64_t lane : {0, 1}) {
    Push own = push(1);
    own.lane = lane;
    restored_.received(kLink, own);
  }
  restored_.take_sends();
  say_clocks();
  await_sum();
  const std::vector<Server::Send> sends = restored_.take_sends();
  ASSERT_EQ(sends.size(), 1U);
  EXPECT_FALSE(std::get<Sum>(sends[0].message).squares.empty());
  EXPECT_EQ(restored_.lost_pushes(), 0);
}

TEST_F(RestoredServer, RefusesStepsThatThereAreNot) {
  be_head();
  EXPECT_THROW(restored_.received(kLink, Clocks{.lanes = {{2, 1}}}), Error);
  EXPECT_THROW(restored_.received(kLink, Clocks{.lanes = {{0, 10}}}), Error);
}

}  // namespace
}  // namespace atl::param_server
