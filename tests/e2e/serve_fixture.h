#pragma once

// What tests of `atoll serve` share: a small model, and a server of it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "atoll/http/testing.h"
#include "train_fixture.h"

namespace atl::e2e {

/// A run of a few steps, and servers of it.
class Serve : public Train {
 protected:
  /// With one token a character, so that every text is one of the model's.
  void SetUp() override {
    Train::SetUp();
    std::string text = read_file(recipe());
    const std::string size = "vocab_size = 300\n";
    write_file(recipe(), text.erase(text.find(size), size.size()));
    trained("run", steps(5));
    write_file(path("chat.jinja"), "{% for m in messages %}{{ m.content }} {% endfor %}");
  }

  static std::vector<std::string> steps(int count) {
    return {fmt::format("--train.steps={}", count), "--data.new_tokenizer=char",
            "--train.context=128", "--checkpoint.every=5"};
  }

  /// A server of the run, and its port.
  struct Running {
    std::unique_ptr<Program> program;
    int port = 0;
  };
  Running serve(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"serve", path("run"), "--port=0", "--chat-template",
                                          path("chat.jinja")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::filesystem::remove(path("said"));  // of a server before
    Running running = {std::make_unique<Program>(arguments, path("said"))};
    const std::regex line("serving run at http://127\\.0\\.0\\.1:([0-9]+)");
    EXPECT_TRUE(soon([&] {
      const std::string said = std::filesystem::exists(path("said")) ? read_file(path("said")) : "";
      std::smatch match;
      if (!std::regex_search(said, match, line)) return false;
      running.port = std::stoi(match[1]);
      return true;
    })) << running.program->errors();
    return running;
  }

  static nlohmann::json post(int port, const std::string& where, const nlohmann::json& body) {
    const std::string answer =
        http::ask(port, "POST " + where, "Content-Type: application/json\r\n", body.dump());
    return nlohmann::json::parse(http::body_of(answer));
  }
  static std::string text_of(const nlohmann::json& answer) { return answer["choices"][0]["text"]; }
  /// The log-probabilities of a prompt, of this model of a server.
  static std::vector<double> prompt_logprobs(int port, const std::string& model) {
    const nlohmann::json answer = post(port, "/v1/completions",
                                       {{"model", model},
                                        {"prompt", "the sea is wide and a ring"},
                                        {"max_tokens", 1},
                                        {"temperature", 0},
                                        {"echo", true},
                                        {"logprobs", 1}});
    std::vector<double> found;
    for (const nlohmann::json& one : answer["choices"][0]["logprobs"]["token_logprobs"]) {
      if (one.is_number()) found.push_back(one.get<double>());
    }
    return found;
  }
  static int end(Running& running) {
    running.program->send(SIGTERM);
    return running.program->wait().exit_code;
  }
};

}  // namespace atl::e2e
