#include "atoll/watch/service.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/processes/process.h"
#include "atoll/http/testing.h"
#include "atoll/watch/assets.h"

namespace atl::watch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class WatchService : public ::testing::Test {
 protected:
  WatchService() {
    std::string name = (fs::temp_directory_path() / "atoll-watch-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directories(root_ / "a");
    write_file(root_ / "a" / "metrics.jsonl", "{\"step\":1,\"time\":5,\"loss\":2.5}\n");
    write_file(root_ / "a" / "settings.toml", "[train]\nsteps = 4\n");
    write_file(root_ / "a" / "lock", "process 1 on " + host() + "\n");
    write_file(root_ / "secret.txt", "not for others");
  }
  ~WatchService() override { fs::remove_all(root_); }

  std::string run() const { return (root_ / "a").string(); }
  static std::string host() {
    char name[256] = "";
    EXPECT_EQ(::gethostname(name, sizeof name - 1), 0);
    return name;
  }

  // The whole answer to one request; `fields` end with CR LF each.
  static std::string ask(const Service& service, const std::string& first_line,
                         const std::string& fields = "", const std::string& body = "",
                         const std::string& host = "localhost") {
    return http::ask(service.port(), first_line, fields, body, host);
  }
  // Asks until the answer has `part`; a hang is ended by ctest.
  static std::string ask_until(const Service& service, const std::string& first_line,
                               const std::string& part) {
    for (;;) {
      std::string answer = ask(service, first_line);
      if (answer.find(part) != answer.npos) return answer;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ServiceOptions options() const { return {.roots = {root_}, .token = "0123456789abcdef"}; }

  fs::path root_;
};

constexpr const char* kBearer = "Authorization: Bearer 0123456789abcdef\r\n";

TEST_F(WatchService, ShowsRunsAndTheirSeries) {
  const Service service(options());
  // The state comes after the records: a run is lost once all of its file has been read.
  EXPECT_THAT(ask_until(service, "GET /api/runs", "\"state\":\"lost\""),
              HasSubstr("\"records\":1"));
  const std::string query = "GET /api/series?name=loss&run=" + run();
  EXPECT_THAT(ask(service, query), HasSubstr("\"x\":[1],\"y\":[2.5]"));
  std::ofstream(root_ / "a" / "metrics.jsonl", std::ios::app)
      << "{\"step\":2,\"time\":6,\"loss\":\"NaN\"}\n";
  EXPECT_THAT(ask_until(service, query + "&since=1&size=1", "\"records\":2"),
              HasSubstr("\"y\":[],\"bad\":[[1,2]]"));
}

TEST_F(WatchService, ALockedRunIsRunningAndAKilledOneIsNot) {
  const Service service(options());
  {
    const Fd lock(::open((root_ / "a" / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);  // as a run does
    ask_until(service, "GET /api/runs", "\"state\":\"running\"");
  }
  ask_until(service, "GET /api/runs", "\"state\":\"lost\"");
  fs::create_directories(root_ / "a" / "checkpoints" / "step-00000001");
  ask_until(service, "GET /api/runs", "\"state\":\"stopped\"");
}

// An island takes as many steps as the others leave to it.
TEST_F(WatchService, ARunThatSaysSoIsFinishedBeforeItsLastStep) {
  const Service service(options());
  ask_until(service, "GET /api/runs", "\"state\":\"lost\"");
  write_file(root_ / "a" / "finished.json", "{\"step\":1,\"time\":5}\n");
  ask_until(service, "GET /api/runs", "\"state\":\"finished\"");
  std::ofstream(root_ / "a" / "metrics.jsonl", std::ios::app)
      << "{\"step\":2,\"time\":6,\"loss\":2}\n";  // it has gone on, and was killed
  ask_until(service, "GET /api/runs", "\"state\":\"lost\"");
}

TEST_F(WatchService, RunsThatDifferInTheirSeedAloneAreAlike) {
  const auto add = [&](const char* name, const std::string& settings) {
    fs::create_directories(root_ / name);
    write_file(root_ / name / "settings.toml", settings);
    write_file(root_ / name / "metrics.jsonl", "{\"step\":1,\"time\":5,\"loss\":2.5}\n");
  };
  add("b", "[run]\nseed = 1\ndir = \"b\"\n\n[optim]\nlr = 0.1\n");
  add("c", "[run]\nseed = 2\ndir = \"c\"\n\n[optim]\nlr = 0.1\n");
  add("d", "[run]\nseed = 1\ndir = \"d\"\n\n[optim]\nlr = 0.2\n");
  const Service service(options());
  const auto alike = [&](const char* name) {
    const std::string text =
        ask_until(service, "GET /api/run?run=" + (root_ / name).string(), "\"records\":1");
    const std::size_t at = text.find("\"alike\":\"");
    return at == text.npos ? "none" : text.substr(at + 9, 32);
  };
  EXPECT_EQ(alike("b"), alike("c"));
  EXPECT_NE(alike("b"), alike("d"));
}

TEST_F(WatchService, ABrowserFindsAnIconWhereItLooksFirst) {
  const Service service(options());
  const std::string answer = ask(service, "GET /favicon.ico");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("image/svg+xml"));
}

TEST_F(WatchService, ARunOfAnotherMachineIsRunningWhileItsFileGrows) {
  write_file(root_ / "a" / "lock", "process 1 on another-" + host() + "\n");
  const Service service(options());
  ask_until(service, "GET /api/runs", "\"state\":\"running\"");
  fs::last_write_time(root_ / "a" / "metrics.jsonl",
                      fs::file_time_type::clock::now() - std::chrono::minutes(2));
  ask_until(service, "GET /api/runs", "\"state\":\"lost\"");
}

TEST_F(WatchService, EveryAnswerKeepsTheBrowserToThisServer) {
  const Service service(options());
  for (const char* line : {"GET /", "GET /api/runs", "GET /nothing", "GET /app.js", "PUT /"}) {
    const std::string answer = ask(service, line);
    EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'self';")) << line;
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff")) << line;
  }
}

TEST_F(WatchService, AStrangersNameForThisMachineIsRefused) {
  const Service service(options());
  EXPECT_THAT(ask(service, "GET /api/runs", "", "", "evil.example"), StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(ask(service, "GET /?token=0123456789abcdef", "", "", "evil.example"),
              Not(HasSubstr("Set-Cookie")));
}

TEST_F(WatchService, NoPathLeadsOutOfThePage) {
  const Service service(options());
  for (const char* path : {"/../secret.txt", "/%2e%2e/secret.txt", "/secret.txt", "//etc/passwd"}) {
    EXPECT_THAT(ask(service, std::string("GET ") + path), StartsWith("HTTP/1.1 404")) << path;
  }
  EXPECT_THAT(ask(service, "GET /api/run?run=" + root_.string()), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(service, "GET /api/run?run=" + run() + "/../a"), StartsWith("HTTP/1.1 400"));
}

TEST_F(WatchService, WritingNeedsTheTokenAndAPageOfThisServer) {
  const Service service(options());
  ask_until(service, "GET /api/runs", "\"records\":1");
  const std::string line = "POST /api/note?run=" + run();
  const std::string body = R"({"text": "a note <b> #good"})";
  EXPECT_THAT(ask(service, line, "", body), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(service, line, "Authorization: Bearer 0123456789abcdee\r\n", body),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(service, line, std::string(kBearer) + "Origin: http://evil.example\r\n", body),
              StartsWith("HTTP/1.1 403"));
  EXPECT_FALSE(fs::exists(root_ / "a" / "notes.jsonl"));
  EXPECT_THAT(ask(service, line, kBearer, "{\"text\": 3}"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(service, line, kBearer, body), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(read_file(root_ / "a" / "notes.jsonl"), HasSubstr("a note <b> #good"));
  ask_until(service, "GET /api/run?run=" + run(), "a note <b> #good");
}

TEST_F(WatchService, TheTokenBecomesACookie) {
  ServiceOptions with_token = options();
  with_token.reading_needs_token = true;
  const Service service(with_token);
  EXPECT_THAT(ask(service, "GET /api/runs"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(service, "GET /api/stream"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(service, "GET /?token=wrong"), StartsWith("HTTP/1.1 401"));
  const std::string answer = ask(service, "GET /?token=0123456789abcdef");
  EXPECT_THAT(answer, HasSubstr("HttpOnly; SameSite=Strict"));
  const std::string cookie = fmt::format("Cookie: atoll-{}=0123456789abcdef\r\n", service.port());
  EXPECT_THAT(ask(service, "GET /api/runs", cookie), StartsWith("HTTP/1.1 200"));
}

TEST_F(WatchService, OddQuestionsAreRefused) {
  const Service service(options());
  ask_until(service, "GET /api/runs", "\"records\":1");
  const std::string query = "GET /api/series?name=loss&run=" + run();
  for (const char* more :
       {"&points=x", "&points=-1", "&from=1e999", "&axis=height", "&since=1.5"}) {
    EXPECT_THAT(ask(service, query + more), StartsWith("HTTP/1.1 400")) << more;
  }
  EXPECT_THAT(ask(service, query + "&points=0&size=99999999999&since=99999999999999"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(service, query + "&from=nan&to=nan"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(service, "GET /api/trace?run=" + run()), HasSubstr("null"));
  EXPECT_THAT(ask(service, "GET /api/study?dir=" + run()), StartsWith("HTTP/1.1 400"));
}

TEST_F(WatchService, ThePageAsksForNothingElsewhere) {
  for (const http::Asset& asset : assets()) {
    std::string text(asset.text);
    // The name of SVG's elements is no address that is asked for.
    for (std::size_t at = 0; (at = text.find("http://www.w3.org/2000/svg")) != text.npos;) {
      text.erase(at, 26);
    }
    EXPECT_EQ(text.find("http://"), text.npos) << asset.path;
    EXPECT_EQ(text.find("https://"), text.npos) << asset.path;
    EXPECT_EQ(text.find("innerHTML"), text.npos) << asset.path;
    EXPECT_EQ(text.find("insertAdjacentHTML"), text.npos) << asset.path;
  }
  EXPECT_GE(assets().size(), 5u);
}

}  // namespace
}  // namespace atl::watch
