// Adapters of `atoll serve`: beside their base, and those that come and go under load.

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "serve_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Program;
using nlohmann::json;
using ::testing::HasSubstr;

class ServeAdapters : public e2e::Serve {
 protected:
  // An adapter of the run, trained for some steps.
  void tune(const std::string& name, int steps) const {
    const std::string recipe = path("tune.toml");
    write_file(recipe,
               fmt::format("[run]\ndir = \"{}\"\n[model]\nfrom = \"{}\"\n[data]\ntext = "
                           "[\"{}\"]\n[lora]\nrank = 4\ntargets = [\"all-linear\"]\n[train]\n"
                           "context = 32\nbatch_size = 4\nmicro_batch = 4\nsteps = {}\n"
                           "[optim]\nlr = 0.05\nwarmup_steps = 1\n",
                           path(name), path("run"), path("text.txt"), steps));
    const Finished trained = atoll({"train", recipe});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  static json load(int port, const std::string& name, const std::string& where,
                   bool in_place = false) {
    return post(port, "/v1/load_lora_adapter",
                {{"lora_name", name}, {"lora_path", where}, {"load_inplace", in_place}});
  }
  static json unload(int port, const std::string& name) {
    return post(port, "/v1/unload_lora_adapter", {{"lora_name", name}});
  }
};

TEST_F(ServeAdapters, OneBesideItsBaseSaysWhatItSaysMerged) {
  tune("tuned", 6);
  Running server = serve({"--adapter", "tuned=" + path("tuned")});
  const json models = json::parse(http::body_of(http::ask(server.port, "GET /v1/models")));
  EXPECT_EQ(models["data"][1]["id"], "tuned");
  const std::vector<double> base = prompt_logprobs(server.port, "run");
  const std::vector<double> beside = prompt_logprobs(server.port, "tuned");
  EXPECT_EQ(end(server), 0);

  Program merged({"serve", path("tuned"), "--port=0", "--model-name=run", "--chat-template",
                  path("chat.jinja")},
                 path("merged"));
  Running alone = {nullptr, 0};
  const std::regex line("serving run at http://127\\.0\\.0\\.1:([0-9]+)");
  ASSERT_TRUE(soon([&] {
    const std::string said =
        std::filesystem::exists(path("merged")) ? read_file(path("merged")) : "";
    std::smatch match;
    if (!std::regex_search(said, match, line)) return false;
    alone.port = std::stoi(match[1]);
    return true;
  })) << merged.errors();
  const std::vector<double> expected = prompt_logprobs(alone.port, "run");
  ASSERT_EQ(beside.size(), expected.size());
  ASSERT_GT(expected.size(), 10U);
  double change = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(beside[i], expected[i], 1e-3);
    change = std::max(change, std::abs(base[i] - expected[i]));
  }
  EXPECT_GT(change, 0.05);  // the adapter has learnt something

  const auto refused = [&](const std::string& adapter) {
    return error_line(atoll({"serve", path("run"), "--port=0", "--chat-template",
                             path("chat.jinja"), "--adapter", adapter}));
  };
  EXPECT_THAT(refused("tuned"), HasSubstr("give NAME=DIRECTORY"));
  EXPECT_THAT(refused("x=" + path("run")), HasSubstr("is a whole model"));
  EXPECT_THAT(refused("run=" + path("tuned")), HasSubstr("--model-name"));
}

// What clients that ask all the time get, by the version that they are told.
class Load {
 public:
  explicit Load(int port) : port_(port) {
    for (const char* model : {"run", "a", "a", "b"}) {
      threads_.emplace_back([this, model] {
        while (!ends_) ask(model);
      });
    }
  }
  ~Load() { end(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void end() {
    ends_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  // How often a version whose name has that part has answered.
  std::size_t answers_of(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [version, texts] : texts_) {
      if (version.find(part) != version.npos) count += counts_.at(version);
    }
    return count;
  }
  // The texts of each version; there must be one. After end().
  const std::map<std::string, std::set<std::string>>& texts() const { return texts_; }
  const std::vector<std::string>& lost() const { return lost_; }

 private:
  void ask(const std::string& model) {
    const json body = {
        {"model", model}, {"prompt", "the sea is"}, {"max_tokens", 24}, {"temperature", 0}};
    const std::string answer = http::ask(port_, "POST /v1/completions", "", body.dump());
    const json got = json::parse(http::body_of(answer), nullptr, /*allow_exceptions=*/false);
    const std::lock_guard lock(mutex_);
    if (got.is_object() && got.contains("choices")) {
      const std::string version = got["system_fingerprint"];
      texts_[version].insert(got["choices"][0]["text"].get<std::string>());
      ++counts_[version];
      return;
    }
    // What is not loaded now is not there.
    const bool is_absent = got.is_object() && got["error"]["code"] == "model_not_found";
    if (model == "run" || !is_absent) lost_.push_back(answer);
  }

  const int port_;
  std::atomic<bool> ends_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, std::set<std::string>> texts_;
  std::map<std::string, std::size_t> counts_;
  std::vector<std::string> lost_;
  std::vector<std::thread> threads_;
};

TEST_F(ServeAdapters, ComeAndGoUnderLoad) {
  tune("adapters/one", 4);
  tune("adapters/two", 8);
  Running server = serve({"--adapter-dir=" + path("adapters"), "--max-adapters=2",
                          "--max-adapter-rank=4", "--follow=1"});
  Load clients(server.port);
  const json one = load(server.port, "a", "one");
  ASSERT_TRUE(one.contains("version")) << one;
  const std::string version_of_one = one["version"];
  EXPECT_THAT(version_of_one, HasSubstr("a@step-00000004."));
  ASSERT_TRUE(soon([&] { return clients.answers_of(version_of_one) > 3; }));

  // Another in its place; and one that comes and goes.
  json two;
  ASSERT_TRUE(soon([&] {
    two = load(server.port, "a", path("adapters/two"), /*in_place=*/true);
    return two.contains("version");
  })) << two;
  const std::string version_of_two = two["version"];
  ASSERT_NE(version_of_one, version_of_two);
  ASSERT_TRUE(soon([&] { return clients.answers_of(version_of_two) > 3; }));
  for (std::size_t round = 1; round <= 5; ++round) {
    json loaded;
    ASSERT_TRUE(soon([&] {
      loaded = load(server.port, "b", "one");
      return loaded.contains("version");
    })) << loaded;
    ASSERT_TRUE(soon([&] { return clients.answers_of("+b@") >= round; }));
    EXPECT_EQ(unload(server.port, "b")["deleted"], true);
  }

  // A newer checkpoint of the base, and the adapter on it.
  trained("run", steps(10));
  ASSERT_TRUE(soon([&] { return clients.answers_of("step-00000010+a@") > 3; }));
  ASSERT_TRUE(soon([&] { return clients.answers_of("step-00000010") > 6; }));
  clients.end();
  for (const std::string& lost : clients.lost()) ADD_FAILURE() << lost;
  for (const auto& [version, texts] : clients.texts()) {
    EXPECT_EQ(texts.size(), 1U) << version << " says several things";
  }
  // What has answered beside others says the same alone.
  for (const char* model : {"run", "a"}) {
    const json again =
        post(server.port, "/v1/completions",
             {{"model", model}, {"prompt", "the sea is"}, {"max_tokens", 24}, {"temperature", 0}});
    const auto& said = clients.texts().at(again["system_fingerprint"]);
    EXPECT_EQ(*said.begin(), text_of(again));
  }
  EXPECT_EQ(end(server), 0);
}

TEST_F(ServeAdapters, OnlyThoseOfTheDirectoryAreLoaded) {
  tune("adapters/one", 2);
  Running server =
      serve({"--adapter-dir=" + path("adapters"), "--max-adapters=1", "--max-adapter-rank=4"});
  std::filesystem::create_directory_symlink(path("run"), path("adapters/out"));
  std::filesystem::copy(path("adapters/one"), path("elsewhere"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::create_directory(path("adapters/empty"));
  for (const std::string& where :
       {std::string("../elsewhere"), path("elsewhere"), std::string("out"), std::string("none"),
        std::string("one/../../elsewhere"), std::string(""), std::string("."),
        std::string("one\0", 4), std::string("empty")}) {
    const json answer = load(server.port, "a", where);
    EXPECT_EQ(answer["error"]["param"], "lora_path") << where << answer;
  }
  EXPECT_EQ(load(server.port, "run", "one")["error"]["param"], "lora_name");
  EXPECT_EQ(load(server.port, "a", "one")["id"], "a");
  const json full = load(server.port, "b", "one");
  EXPECT_THAT(full["error"]["message"].get<std::string>(), HasSubstr("--max-adapters")) << full;
  EXPECT_EQ(end(server), 0);

  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"serve", path("run"), "--port=0", "--chat-template",
                                          path("chat.jinja")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return error_line(atoll(arguments));
  };
  EXPECT_THAT(refused({"--adapter-dir=" + path("nothing")}), HasSubstr("no such directory"));
  EXPECT_THAT(refused({"--adapter-dir=" + path("adapters"), "--max-adapters=1", "--adapter",
                       "x=" + path("adapters/one"), "--adapter", "y=" + path("adapters/one")}),
              HasSubstr("--max-adapters=1"));
  Running narrow = serve({"--adapter-dir=" + path("adapters"), "--max-adapter-rank=1"});
  EXPECT_THAT(load(narrow.port, "a", "one")["error"]["message"].get<std::string>(),
              HasSubstr("--max-adapter-rank"));
  EXPECT_EQ(end(narrow), 0);
  Running without = serve();
  EXPECT_EQ(load(without.port, "a", "one")["error"]["code"], "not_enabled");
  EXPECT_EQ(end(without), 0);
}

}  // namespace
}  // namespace atl
