// `atoll serve` and `atoll generate --jobs` with a real model: the same text by each way, streams,
// forms, a newer checkpoint, the page, and how it ends.

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "atoll/http/testing.h"
#include "serve_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Serve;
using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(Serve, TheSameTextByEveryWay) {
  Running server = serve();
  const json request = {{"prompt", "the sea is"}, {"max_tokens", 40}, {"seed", 7}};
  const std::string text = text_of(post(server.port, "/v1/completions", request));
  EXPECT_EQ(text.size(), 40U);

  // Beside others, in a stream, of a file, and of the command.
  std::vector<std::thread> others;
  for (int i = 0; i < 6; ++i) {
    others.emplace_back([&, i] {
      post(server.port, "/v1/completions",
           {{"prompt", "a ring"}, {"max_tokens", 60}, {"n", 2}, {"seed", i}});
    });
  }
  EXPECT_EQ(text_of(post(server.port, "/v1/completions", request)), text);
  for (std::thread& other : others) other.join();

  json streamed = request;
  streamed["stream"] = true;
  const std::string events =
      http::body_of(http::ask(server.port, "POST /v1/completions", "", streamed.dump()));
  std::string pieces;
  const std::regex event("data: (\\{.*\\})");
  for (std::sregex_iterator it(events.begin(), events.end(), event), none; it != none; ++it) {
    pieces += text_of(json::parse((*it)[1].str()));
  }
  EXPECT_EQ(pieces, text);
  EXPECT_THAT(events, HasSubstr("data: [DONE]"));

  json line = request;
  line["custom_id"] = "x";
  write_file(path("requests"), line.dump() + "\n{\"prompt\": 1}\n" + request.dump() + "\n");
  const Finished jobs =
      atoll({"generate", path("run"), "--jobs", path("requests"), "--out", path("answers")});
  EXPECT_EQ(jobs.exit_code, 1) << jobs.err;
  std::istringstream answers(read_file(path("answers")));
  std::string answer;
  std::getline(answers, answer);
  EXPECT_EQ(json::parse(answer)["text"], text);
  EXPECT_EQ(json::parse(answer)["custom_id"], "x");
  std::getline(answers, answer);
  EXPECT_EQ(json::parse(answer)["error"]["param"], "prompt");
  std::getline(answers, answer);
  EXPECT_EQ(json::parse(answer)["text"], text);

  const Finished command = atoll({"generate", path("run"), "--prompt=the sea is", "--max-tokens=40",
                                  "--seed=7", "--temperature=1", "--top-p=1", "--no-prompt"});
  EXPECT_EQ(command.out, text + "\n");
  EXPECT_EQ(end(server), 0);
}

TEST_F(Serve, RanksThatShareProductsWriteTheSameText) {
  const json request = {{"prompt", "the sea is"}, {"max_tokens", 40}, {"seed", 7}};
  Running one = serve();
  const std::string text = text_of(post(one.port, "/v1/completions", request));
  const std::vector<double> expected = prompt_logprobs(one.port, "run");
  EXPECT_EQ(end(one), 0);
  Running two = serve({"--tp=2"});
  EXPECT_EQ(text_of(post(two.port, "/v1/completions", request)), text);
  const std::vector<double> found = prompt_logprobs(two.port, "run");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
  EXPECT_EQ(end(two), 0);

  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"serve", path("run"), "--port=0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 2);
    return error_line(finished);
  };
  EXPECT_THAT(refused({"--tp=2", "--stages=127.0.0.1:1"}), HasSubstr("--tp=2 with --stages"));
  EXPECT_THAT(refused({"--tp=2", "--follow=3"}), HasSubstr("--tp=2 with --follow"));
  EXPECT_THAT(refused({"--tp=2", "--adapter=a=b"}), HasSubstr("--tp=2 with --adapter"));
  EXPECT_THAT(refused({"--tp=2", "--adapter-dir=" + path(".")}), HasSubstr("with --adapter-dir"));
  EXPECT_THAT(refused({"--tp=2", "--threads=1"}), HasSubstr("with fewer --threads"));
  EXPECT_THAT(refused({"--tp=64"}), HasSubstr("cannot be shared"));
}

TEST_F(Serve, JobsGoOnWhereTheyWere) {
  std::string requests;
  for (int i = 0; i < 20; ++i) {
    requests += json({{"messages", {{{"role", "user"}, {"content", std::string(1 + i % 7, 'a')}}}},
                      {"max_tokens", 5 + i}})
                    .dump() +
                "\n";
  }
  write_file(path("requests"), requests);
  const auto run = [&](const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"generate",        path("run"),       "--jobs",
                                          path("requests"),  "--out",           path(out),
                                          "--chat-template", path("chat.jinja")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return atoll(arguments);
  };
  EXPECT_EQ(run("whole").exit_code, 0);
  const std::string whole = read_file(path("whole"));
  EXPECT_EQ(std::ranges::count(whole, '\n'), 20);
  // Half a line, as a kill leaves it.
  for (const std::size_t bytes : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
    write_file(path("part"), whole.substr(0, bytes));
    const Finished on = run("part", {"--slots=3"});
    EXPECT_EQ(on.exit_code, 0) << on.err;
    EXPECT_EQ(read_file(path("part")), whole);
  }
  EXPECT_THAT(error_line(run("part", {"--seed=9"})),
              HasSubstr("line 1: it answers another request"));
  EXPECT_EQ(read_file(path("part")), whole);
}

TEST_F(Serve, ANewerCheckpointAnswersAndFormsHold) {
  Running server = serve({"--follow=1"});
  const json request = {{"prompt", "the sea is"}, {"max_tokens", 30}, {"temperature", 0}};
  const json first = post(server.port, "/v1/completions", request);
  EXPECT_THAT(first["system_fingerprint"].get<std::string>(), HasSubstr("step-00000005"));
  trained("run", steps(10));
  json then;
  EXPECT_TRUE(soon([&] {
    then = post(server.port, "/v1/completions", request);
    return then["system_fingerprint"] != first["system_fingerprint"];
  })) << server.program->errors();
  EXPECT_THAT(then["system_fingerprint"].get<std::string>(), HasSubstr("step-00000010"));

  json formed = request;
  formed["regex"] = "(sea|ring) is [a-z]{3}\\.";
  EXPECT_TRUE(std::regex_match(text_of(post(server.port, "/v1/completions", formed)),
                               std::regex("(sea|ring) is [a-z]{3}\\.")));
  EXPECT_EQ(end(server), 0);
}

TEST_F(Serve, ThePageAndWhatItNeeds) {
  Running server = serve();
  const std::string page = http::ask(server.port, "GET /");
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'"));
  const std::regex script("src=\"/?([a-z_]+\\.js)\"");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(page, match, script)) << page;
  EXPECT_THAT(http::ask(server.port, "GET /" + match[1].str()), HasSubstr("200 OK"));
  const json models = json::parse(http::body_of(http::ask(server.port, "GET /v1/models")));
  EXPECT_EQ(models["data"][0]["atoll"]["chat"], true);
  EXPECT_EQ(models["data"][0]["atoll"]["max_tokens"], 128);
  EXPECT_THAT(http::ask(server.port, "GET /metrics"), HasSubstr("atoll_requests"));
  EXPECT_EQ(end(server), 0);
}

TEST_F(Serve, ItsLoadIsLogged) {
  Running server = serve({"--log=" + path("load"), "--log-every=1"});
  post(server.port, "/v1/completions", {{"prompt", "the sea"}, {"max_tokens", 30}});
  EXPECT_THAT(error_line(atoll({"serve", path("run"), "--port=0", "--chat-template",
                                path("chat.jinja"), "--log=" + path("load")})),
              HasSubstr("is in use by process"));
  EXPECT_EQ(end(server), 0);
  json sum = json::object();
  std::istringstream lines(read_file(path("load/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const json record = json::parse(line);
    for (const auto& [key, value] : record.items()) {
      if (value.is_number()) sum[key] = sum.value(key, 0.0) + value.get<double>();
    }
  }
  EXPECT_GT(sum["tokens/generated_per_s"], 0.0) << sum;
  EXPECT_GT(sum["latency/first_token_p95_s"], 0.0) << sum;
}

TEST_F(Serve, WhatCannotBeServedIsOneLineBeforeAnythingListens) {
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"serve", path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return error_line(atoll(arguments));
  };
  EXPECT_THAT(refused({"--port=0", "--host=0.0.0.0"}), HasSubstr("--api-key-file"));
  write_file(path("keys"), "0123456789abcdef\n");
  std::filesystem::permissions(path("keys"), std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  EXPECT_THAT(refused({"--port=0", "--api-key-file=" + path("keys")}), HasSubstr("keys"));
  EXPECT_THAT(error_line(atoll({"serve", path("nothing"), "--port=0"})), HasSubstr("nothing"));
  EXPECT_THAT(refused({"--port=0", "--context=500"}), HasSubstr("128 positions"));
  Running server = serve();
  EXPECT_THAT(refused({fmt::format("--port={}", server.port)}), HasSubstr("in use"));
}

}  // namespace
}  // namespace atl
