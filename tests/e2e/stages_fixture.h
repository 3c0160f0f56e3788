#pragma once

// What the tests of a model on several machines share: processes of stages and of a server, and
// clients whose answers are known.

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "atoll/http/testing.h"
#include "train_fixture.h"

namespace atl::e2e {

/// A run of a model of four layers, with one token a character.
class Stages : public Train {
 protected:
  void SetUp() override {
    Train::SetUp();
    std::string text = read_file(recipe());
    const std::string size = "vocab_size = 300\n";
    write_file(recipe(), text.erase(text.find(size), size.size()));
    trained("run", {"--train.steps=5", "--data.new_tokenizer=char", "--train.context=128",
                    "--checkpoint.every=5", "--model.num_hidden_layers=4"});
  }

  /// A process that says where it listens.
  struct Running {
    std::unique_ptr<Program> program;
    int port = 0;
  };
  Running start(const std::vector<std::string>& arguments, const std::string& line) const {
    const std::string said = path("said-" + std::to_string(next_++));
    Running running = {std::make_unique<Program>(arguments, said)};
    const std::regex pattern(line + "127\\.0\\.0\\.1:([0-9]+)");
    EXPECT_TRUE(soon([&] {
      std::smatch match;
      const std::string text = std::filesystem::exists(said) ? read_file(said) : "";
      if (!std::regex_search(text, match, pattern)) return false;
      running.port = std::stoi(match[1]);
      return true;
    })) << running.program->errors();
    return running;
  }
  Running stage(int port = 0) const {
    return start(
        {"stage", path("run"), "--threads=1", "--listen=127.0.0.1:" + std::to_string(port)},
        "stage at ");
  }
  static std::string list(const std::vector<Running>& stages) {
    std::string text;
    for (const Running& stage : stages) {
      text += (text.empty() ? "" : ",") + ("127.0.0.1:" + std::to_string(stage.port));
    }
    return text;
  }
  Running serve(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"serve", path("run"), "--port=0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return start(arguments, "serving run at http://");
  }
  static int end(Running& running) {
    running.program->send(SIGTERM);
    return running.program->wait().exit_code;
  }

  /// What a stream of completion `seed` says in all.
  static std::string stream(int port, int seed) {
    const nlohmann::json request = {{"prompt", "the sea is"},
                                    {"max_tokens", 90 + seed},
                                    {"seed", seed},
                                    {"stream", true},
                                    {"frequency_penalty", seed % 2 == 0 ? 0.0 : 0.1}};
    const std::string events = http::body_of(http::ask(
        port, "POST /v1/completions", "Content-Type: application/json\r\n", request.dump()));
    std::string text;
    const std::regex event("data: (\\{.*\\})");
    for (std::sregex_iterator it(events.begin(), events.end(), event), none; it != none; ++it) {
      const auto chunk = nlohmann::json::parse((*it)[1].str());
      if (chunk.contains("error")) return "error: " + chunk.dump();
      text += chunk["choices"][0]["text"].get<std::string>();
    }
    return text + (events.find("data: [DONE]") == std::string::npos ? " (not done)" : "");
  }
  static bool is_healthy(int port) {
    return http::ask(port, "GET /health").find(" 200 ") != std::string::npos;
  }

  /// The answers of one process.
  std::vector<std::string> expected(int count) const {
    Running server = serve({"--threads=1"});
    std::vector<std::string> texts;
    for (int seed = 0; seed < count; ++seed) texts.push_back(stream(server.port, seed));
    EXPECT_EQ(end(server), 0);
    return texts;
  }

  /// Clients that ask for the same streams again and again, until they are told to stop.
  class Clients {
   public:
    Clients(int port, const std::vector<std::string>& expected) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        threads_.emplace_back([this, port, i, text = expected[i]] {
          while (!is_over_) {
            EXPECT_EQ(stream(port, static_cast<int>(i)), text) << "client " << i;
            ++count_;
          }
        });
      }
    }
    ~Clients() { stop(); }
    Clients(const Clients&) = delete;
    Clients& operator=(const Clients&) = delete;

    void stop() {
      is_over_ = true;
      for (std::thread& thread : threads_) thread.join();
      threads_.clear();
    }
    /// Streams that have ended.
    int count() const { return count_; }

   private:
    std::atomic<bool> is_over_ = false;
    std::atomic<int> count_ = 0;
    std::vector<std::thread> threads_;
  };

  /// Kills a stage while streams run, brings it back, and waits until streams end again.
  void kill_and_restart(Running& stage, int server, const Clients& clients) const {
    stage.program->send(SIGKILL);
    stage.program->wait();
    stage = this->stage(stage.port);
    EXPECT_TRUE(soon([&] { return is_healthy(server); }));
    const int seen = clients.count();
    EXPECT_TRUE(soon([&] { return clients.count() >= seen + 3; }));
  }

 private:
  mutable int next_ = 0;
};

}  // namespace atl::e2e
