#pragma once

// What the tests of /metrics share.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "atoll/http/testing.h"
#include "islands_fixture.h"

namespace atl::e2e {

/// Programs that serve metrics.
class Metrics : public Islands {
 protected:
  static constexpr const char* kFree = "127.0.0.1:0";
  /// The ports at which a program has said that it serves metrics, once there are so many.
  static std::vector<int> ports_of(const Program& program, std::size_t count = 1) {
    const std::regex line("metrics for Prometheus at http://127\\.0\\.0\\.1:([0-9]+)/metrics");
    std::vector<int> ports;
    EXPECT_TRUE(soon([&] {
      ports.clear();
      const std::string said = program.errors();
      for (std::sregex_iterator it(said.begin(), said.end(), line), end; it != end; ++it) {
        ports.push_back(std::stoi((*it)[1]));
      }
      return ports.size() >= count;
    })) << program.errors();
    return ports;
  }
  static std::string page(int port) { return http::body_of(http::ask(port, "GET /metrics")); }
  /// The value of a sample; NaN where there is none.
  static double value(const std::string& page, const std::string& sample) {
    const std::size_t at = page.find("\n" + sample + " ");
    if (at == page.npos) return std::nan("");
    return std::strtod(page.c_str() + at + sample.size() + 2, nullptr);
  }
  /// Asks until a sample is at least so high; the page then.
  static std::string page_with(int port, const std::string& sample, double least) {
    std::string last;
    EXPECT_TRUE(soon([&] {
      last = page(port);
      return value(last, sample) >= least;
    })) << sample
        << "\n"
        << last;
    return last;
  }
  static void expect_lint(const std::string& page) {
    if (std::system("command -v promtool > /dev/null 2>&1") != 0) return;
    std::FILE* tool = ::popen("promtool check metrics", "w");
    ASSERT_NE(tool, nullptr);
    std::fwrite(page.data(), 1, page.size(), tool);
    EXPECT_EQ(::pclose(tool), 0) << page;
  }
  static std::vector<std::string> endless(std::vector<std::string> more) {
    more.insert(more.end(), {fmt::format("--train.steps={}", kEndless), "--log.every=1",
                             "--log.tensorboard=false"});
    return more;
  }
  static int stop(Program& program) {
    program.send(SIGTERM);
    return program.wait().exit_code;
  }
};

}  // namespace atl::e2e
