#include "atoll/watch/prometheus_server.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/http/testing.h"

namespace atl::watch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MetricsServer : public ::testing::Test {
 protected:
  MetricsServer() {
    std::string name = (fs::temp_directory_path() / "atoll-metrics-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~MetricsServer() override { fs::remove_all(root_); }

  std::string secret(const std::string& text) const {
    const fs::path file = root_ / "secret";
    write_file(file, text);
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    return file.string();
  }
  static std::string refusal(const PrometheusAddress& address) {
    try {
      open_access(address);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "none";
  }

  fs::path root_;
};

std::string some_page() {
  return "# HELP atoll_loss Loss.\n# TYPE atoll_loss gauge\natoll_loss 2.5\n";
}

TEST_F(MetricsServer, ServesThePageAndTheProcess) {
  const PrometheusServer server({.listen = "127.0.0.1:0"}, some_page);
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(server.port()) + "/metrics");
  const std::string answer = http::ask(server.port(), "GET /metrics");
  EXPECT_THAT(answer,
              AllOf(StartsWith("HTTP/1.1 200 "),
                    HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
                    HasSubstr("\natoll_loss 2.5\n"), HasSubstr("\nprocess_cpu_seconds_total "),
                    HasSubstr("\nprocess_resident_memory_bytes "), HasSubstr("\nprocess_open_fds "),
                    HasSubstr("\nprocess_start_time_seconds 1")));
  EXPECT_THAT(http::ask(server.port(), "HEAD /metrics"),
              AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\n")));
  EXPECT_THAT(http::ask(server.port(), "GET /"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(http::ask(server.port(), "POST /metrics", "", "x"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(http::ask(server.port(), "GET /metrics", "", "", "evil.example"),
              StartsWith("HTTP/1.1 421 "));
}

TEST_F(MetricsServer, AsksForTheTokenWhereThereIsOne) {
  const PrometheusServer server(
      {.listen = "127.0.0.1:0", .token_file = secret("0123456789abcdef\n")}, some_page);
  EXPECT_THAT(http::ask(server.port(), "GET /metrics"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(
      http::ask(server.port(), "GET /metrics", "Authorization: Bearer 0123456789abcdeX\r\n"),
      StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(http::ask(server.port(), "GET /metrics", "Authorization: Bearer 0123456789abcdef\r\n",
                        "", "alpha.example:9100"),
              StartsWith("HTTP/1.1 200 "))
      << "a machine may be called by any name by one who knows the secret";
}

TEST_F(MetricsServer, APageThatFailsIsAnAnswer) {
  const PrometheusServer server({.listen = "127.0.0.1:0"},
                                []() -> std::string { throw std::runtime_error("no page"); });
  EXPECT_THAT(http::ask(server.port(), "GET /metrics"),
              AllOf(StartsWith("HTTP/1.1 500 "), HasSubstr("no page")));
}

TEST_F(MetricsServer, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(refusal({.listen = "0.0.0.0:0"}),
              AllOf(HasSubstr("metrics.listen 0.0.0.0:0"), HasSubstr("metrics.token_file")));
  EXPECT_THAT(refusal({.listen = "9100"}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(refusal({.token_file = "x"}), HasSubstr("has no effect without metrics.listen"));
  EXPECT_THAT(refusal({.listen = "127.0.0.1:0", .certificate = "x"}),
              HasSubstr("metrics.certificate and metrics.key belong together"));
  EXPECT_THAT(refusal({.listen = "127.0.0.1:0", .token_file = secret("short")}),
              HasSubstr("at least 16"));
  EXPECT_THAT(refusal({.listen = "0.0.0.0:1", .prefix = "--metrics-"}),
              HasSubstr("--metrics-token-file"));
  const PrometheusServer first({.listen = "127.0.0.1:0"}, some_page);
  try {
    const PrometheusServer second({.listen = "127.0.0.1:" + std::to_string(first.port())},
                                  some_page);
    ADD_FAILURE() << "the port is in use";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another program listens there"));
  }
}

}  // namespace
}  // namespace atl::watch
