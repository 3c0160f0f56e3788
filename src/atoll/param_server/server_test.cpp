#include "atoll/param_server/server.h"

#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace
}  // namespace atl::param_server
