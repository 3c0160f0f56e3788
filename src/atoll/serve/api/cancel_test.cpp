// Clients that go away, and queues that are full.

#include <atomic>
#include <thread>

#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using ::testing::HasSubstr;

class ServeCancel : public ServiceTest {
 protected:
  ServeCancel() : ServiceTest(/*slots=*/1, /*max_queue=*/2) {}

  static constexpr const char* kPath = "/v1/completions";
  static constexpr const char* kBody = R"({"prompt":"a","max_tokens":100})";
  static constexpr const char* kStream = R"({"prompt":"a","max_tokens":100,"stream":true})";
};

TEST_F(ServeCancel, InTheQueue) {
  generator_.play_up_to(1);
  HttpClient first(service().port());
  first.post(kPath, kStream);
  first.read_until("data: ");
  HttpClient second(service().port());
  second.post(kPath, kBody);
  generator_.wait_until([](const GeneratorStats& stats) { return stats.waiting == 1; });
  second.hang_up();
  generator_.wait_until([](const GeneratorStats& stats) { return stats.cancelled == 1; });
  EXPECT_EQ(generator_.stats().waiting, 0);
  generator_.play_all();
  EXPECT_THAT(first.read_until("[DONE]"), HasSubstr("[DONE]"));  // nobody else's ends with it
}

TEST_F(ServeCancel, WhileThePromptIsRead) {
  generator_.play_up_to(0);
  for (const char* body : {kBody, kStream}) {
    HttpClient client(service().port());
    client.post(kPath, body);
    generator_.wait_until([](const GeneratorStats& stats) { return stats.waiting == 1; });
    const std::int64_t before = generator_.stats().cancelled;
    client.hang_up();
    generator_.wait_until(
        [before](const GeneratorStats& stats) { return stats.cancelled == before + 1; });
  }
}

TEST_F(ServeCancel, InTheStream) {
  generator_.play_up_to(3);
  HttpClient client(service().port());
  client.post(kPath, kStream);
  client.read_until("\"l\"");
  client.hang_up();
  generator_.wait_until([](const GeneratorStats& stats) { return stats.cancelled == 1; });
  EXPECT_EQ(generator_.stats().running, 0);
}

TEST_F(ServeCancel, AllChoicesOfARequest) {
  generator_.play_up_to(1);
  HttpClient client(service().port());
  client.post(kPath, R"({"prompt":"a","max_tokens":100,"n":2})");
  generator_.wait_until(
      [](const GeneratorStats& stats) { return stats.running == 1 && stats.waiting == 1; });
  client.hang_up();
  generator_.wait_until([](const GeneratorStats& stats) { return stats.cancelled == 2; });
}

TEST_F(ServeCancel, AnEndOfTheServiceEndsWhatRuns) {
  generator_.play_up_to(1);
  HttpClient client(service().port());
  client.post(kPath, kStream);
  client.read_until("data: ");
  HttpClient second(service().port());
  second.post(kPath, kBody);
  generator_.wait_until([](const GeneratorStats& stats) { return stats.waiting == 1; });
  service_.reset();
  EXPECT_EQ(generator_.stats().cancelled, 2);
  EXPECT_THAT(client.read_until("[DONE]"), HasSubstr("the server is ending"));
  EXPECT_THAT(second.read_until("ending"), HasSubstr("HTTP/1.1 503"));
}

TEST_F(ServeCancel, AnEndOfTheServiceTellsWhoWaitsForEmbeddings) {
  generator_.play_up_to(0);
  HttpClient client(service().port());
  client.post("/v1/embeddings", R"({"input":["Once","Twice"]})");
  generator_.wait_until([](const GeneratorStats& stats) { return stats.waiting == 2; });
  service_.reset();
  EXPECT_EQ(generator_.stats().cancelled, 2);
  EXPECT_THAT(client.read_until("ending"), HasSubstr("HTTP/1.1 503"));
}

TEST_F(ServeCancel, AFullQueueIsTold) {
  generator_.play_up_to(0);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<HttpClient>(service().port()));
    clients.back()->post(kPath, kBody);
    generator_.wait_until([i](const GeneratorStats& stats) { return stats.waiting == i + 1; });
  }
  const HttpAnswer answer = complete();
  EXPECT_EQ(answer.status, 429);
  EXPECT_THAT(answer.head, HasSubstr("Retry-After: 1"));
  EXPECT_EQ(answer.json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(complete({{"stream", true}}).status, 429);
  generator_.play_all();
  for (const auto& client : clients) {
    EXPECT_THAT(client->read_until("Hello, world."), HasSubstr("Hello, world."));
  }
}

TEST_F(ServeCancel, AnAnswerThatFindsNoRoomForAllChoicesKeepsNone) {
  generator_.play_up_to(0);
  EXPECT_EQ(complete({{"n", 3}}).status, 429);
  generator_.wait_until([](const GeneratorStats& stats) { return stats.cancelled == 2; });
  EXPECT_EQ(generator_.stats().waiting, 0);
}

TEST_F(ServeCancel, TheIdleServiceHasSentAll) {
  generator_.play_up_to(1);
  HttpClient client(service().port());
  client.post(kPath, kStream);
  client.read_until("data: ");
  service().refuse_new();
  EXPECT_FALSE(service().is_idle());
  generator_.play_all();
  while (!service().is_idle()) std::this_thread::yield();
  service_.reset();
  EXPECT_THAT(client.read_until("[DONE]"), HasSubstr("[DONE]"));
}

TEST_F(ServeCancel, ManyHangUpsLeaveNothing) {
  says_ = std::string(50, 'a');
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i, port = service().port()] {
      for (int round = 0; round < 50; ++round) {
        HttpClient client(port);
        client.post(kPath, (i + round) % 2 == 0 ? kStream : kBody);
        if (round % 3 == 0) client.read_until("\n");
        client.hang_up();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (!service().is_idle()) std::this_thread::yield();
  generator_.wait_until(
      [](const GeneratorStats& stats) { return stats.running == 0 && stats.waiting == 0; });
  EXPECT_EQ(complete().status, 200);
}

}  // namespace
}  // namespace atl::serve::api
