// A real Prometheus, where there is one: it scrapes programs that run, and answers what the board
// and the rules of docs/ ask it.

#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "atoll/base/processes/process.h"
#include "prometheus_fixture.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;

// Debian's package `prometheus`, in a directory of its own.
class Prometheus {
 public:
  Prometheus(const fs::path& dir, const std::vector<int>& targets) {
    std::string listed;
    for (const int port : targets) {
      listed += fmt::format("{}\"127.0.0.1:{}\"", listed.empty() ? "" : ", ", port);
    }
    const fs::path rules = test_source_dir() / "docs" / "prometheus-rules.yml";
    fs::create_directories(dir);
    write_file(dir / "prometheus.yml", fmt::format(R"(global:
  scrape_interval: 2s
  scrape_timeout: 2s
  evaluation_interval: 2s
rule_files: ["{}"]
scrape_configs:
  - job_name: atoll
    static_configs:
      - targets: [{}]
)",
                                                   rules.string(), listed));
    child_.emplace(
        ChildOptions{.argv = {"prometheus", "--config.file=" + (dir / "prometheus.yml").string(),
                              "--storage.tsdb.path=" + (dir / "data").string(),
                              "--web.listen-address=127.0.0.1:0"}});
  }
  ~Prometheus() { child_->kill(); }

  // Where it listens; 0: it has not said so yet.
  int port() {
    read();
    const std::regex line("Listening on\" address=127\\.0\\.0\\.1:([0-9]+)");
    std::smatch found;
    return std::regex_search(said_, found, line) ? std::stoi(found[1]) : 0;
  }
  const std::string& said() const { return said_; }

  // What its API answers to an expression.
  nlohmann::json answer(const std::string& expression) {
    read();
    std::string escaped;
    for (const unsigned char c : expression) escaped += fmt::format("%{:02X}", c);
    const std::string body = http::body_of(http::ask(port(), "GET /api/v1/query?query=" + escaped));
    return nlohmann::json::parse(body, nullptr, false);
  }
  // How many series an expression gives, without those that are NaN.
  int count(const std::string& expression) {
    // One number: a longer answer would come in chunks.
    const nlohmann::json json = answer(fmt::format("count(({0}) == ({0}))", expression));
    if (!json.is_object()) return 0;  // it is not ready yet
    EXPECT_EQ(json.value("status", ""), "success") << expression << ": " << json;
    if (json.value("status", "") != "success" || json["data"]["result"].empty()) return 0;
    return std::stoi(json["data"]["result"][0]["value"][1].get<std::string>());
  }

 private:
  void read() {
    reader_.read(child_->errors(),
                 [this](std::string_view line) { said_ += std::string(line) + "\n"; });
  }

  std::optional<Child> child_;
  LineReader reader_;
  std::string said_;
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// What the board asks, as Grafana would with all jobs and instances chosen; its annotations too.
void add_expressions(const nlohmann::json& json, std::vector<std::string>& expressions) {
  if (json.is_object() && json.contains("expr")) {
    std::string text = replaced(json["expr"], "$job", ".+");
    text = replaced(text, "$instance", ".+");
    expressions.push_back(replaced(text, "$__rate_interval", "30s"));
  }
  if (json.is_structured()) {
    for (const auto& part : json) add_expressions(part, expressions);
  }
}

class RealPrometheus : public Metrics {
 protected:
  void SetUp() override {
    if (std::system("command -v prometheus > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "Prometheus is not installed (Debian's package prometheus)";
    }
    Metrics::SetUp();
  }
  static nlohmann::json board() {
    return nlohmann::json::parse(read_file(test_source_dir() / "docs" / "grafana-atoll.json"));
  }
  void write_study() const {
    write_file(path("study.toml"), fmt::format(R"([study]
recipe = "{}"
dir = "{}"
[space]
optim.lr = {{low = 1e-3, high = 3e-2, scale = "log"}}
[budget]
trials = 100000
)",
                                               recipe(), path("study")));
  }
  // The port of a page, which is said on standard output.
  static int page_port(const std::string& out) {
    const std::regex line("http://127\\.0\\.0\\.1:([0-9]+)/.*\n");
    std::smatch found;
    EXPECT_TRUE(soon([&] {
      const std::string said = fs::exists(out) ? read_file(out) : "";
      std::smatch match;
      if (!std::regex_search(said, match, line)) return false;
      return std::stoi(match[1]) > 0;
    }));
    const std::string said = read_file(out);
    return std::regex_search(said, found, line) ? std::stoi(found[1]) : 0;
  }
};

TEST_F(RealPrometheus, AnswersAllThatTheBoardAsks) {
  const std::string listen = fmt::format("--metrics.listen={}", kFree);
  const std::string listen_beside = fmt::format("--metrics-listen={}", kFree);
  Program agent(launch("launched", endless({"--min-ranks=2", "--max-ranks=2", "--backend=tcp",
                                            "--eval.every=20", listen, listen_beside})));
  Program islands(islanded("islands", 2, kEndless, {listen}));
  Program server({"server", "--listen", kAnywhere, "--metrics-listen", kFree, "--threads", "1"});
  std::vector<int> ports = ports_of(server);
  static const std::regex kScheduler("scheduler at (\\S+)");
  const std::string said = server.errors();
  std::smatch scheduler;
  ASSERT_TRUE(std::regex_search(said, scheduler, kScheduler)) << said;
  Program worker(
      ranked("worker", endless({"--sync.mode=ps", "--sync.addresses=" + scheduler[1].str(),
                                "--train.micro_batch=1", listen})));
  write_study();
  Program tune({"tune", path("study.toml"), "--train.steps=20", "--optim.schedule=constant",
                "--device.threads=1", listen_beside});
  Program watch({"watch", root_.path.string(), "--listen", kFree}, path("out"));
  for (const auto& [program, count] :
       {std::pair<Program*, std::size_t>{&agent, 2}, {&islands, 2}, {&worker, 1}, {&tune, 1}}) {
    const std::vector<int> more = ports_of(*program, count);
    ports.insert(ports.end(), more.begin(), more.end());
  }
  ports.push_back(page_port(path("out")));

  Prometheus prometheus(root_.path / "prometheus", ports);
  ASSERT_TRUE(soon([&] { return prometheus.port() != 0; })) << prometheus.said();
  EXPECT_TRUE(soon([&] { return prometheus.count("up == 1") == static_cast<int>(ports.size()); }))
      << prometheus.answer("up == 0");

  std::vector<std::string> expressions;
  add_expressions(board()["panels"], expressions);
  EXPECT_GT(expressions.size(), 40U);
  for (const std::string& expression : expressions) {
    EXPECT_TRUE(soon([&] { return prometheus.count(expression) > 0; })) << expression;
  }
  // These are of what seldom happens: they need only be expressions that it understands.
  std::vector<std::string> seldom;
  add_expressions(board()["annotations"], seldom);
  const std::string rules = read_file(test_source_dir() / "docs" / "prometheus-rules.yml");
  const std::regex rule("expr: (.+)");
  for (std::sregex_iterator it(rules.begin(), rules.end(), rule), end; it != end; ++it) {
    seldom.push_back((*it)[1]);
  }
  EXPECT_GT(seldom.size(), 8U);
  for (const std::string& expression : seldom) prometheus.count(expression);

  // What it has scraped grows with the run. A scrape that found no time leaves nothing.
  const auto step = [&] {
    const nlohmann::json json = prometheus.answer("max(atoll_run_step)");
    if (!json.is_object() || json["data"]["result"].empty()) return 0.0;
    return std::stod(json["data"]["result"][0]["value"][1].get<std::string>());
  };
  double before = 0;
  EXPECT_TRUE(soon([&] { return (before = step()) > 0; }));
  EXPECT_TRUE(soon([&] { return step() > before; }));
  for (Program* program : {&worker, &agent, &islands, &tune, &watch})
    EXPECT_EQ(stop(*program), 143);
  stop(server);
}

}  // namespace
}  // namespace atl::e2e
