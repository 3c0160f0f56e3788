// `atoll get` as a process that is killed while bytes come.

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>

#include <cstdlib>
#include <random>

#include "atoll/base/files/test_paths.h"
#include "hub_fixture.h"

namespace atl::hub {
namespace {

namespace fs = std::filesystem;

class HubKilled : public HubFixture {
 protected:
  HubKilled() {
    std::mt19937 random(5);
    for (const char* path : {"a.safetensors", "sub/b.json", "c.gguf"}) {
      std::string content(120'000 + random() % 1000, ' ');
      for (char& c : content) c = static_cast<char>(random());
      contents_[path] = content;
      server_.add(kRepo, path, content, std::string(path).find("json") == std::string::npos);
      bytes_ += content.size();
    }
    server_.set_faults([](const SeenRequest&, int) { return Fault{.piece_bytes = 4000}; });
    ::setenv("HF_ENDPOINT", server_.endpoint().c_str(), 1);
    ::setenv("HF_HUB_CACHE", settings_.cache.c_str(), 1);
  }
  ~HubKilled() override {
    ::unsetenv("HF_ENDPOINT");
    ::unsetenv("HF_HUB_CACHE");
  }
  // Runs `atoll get`, and kills it once so many bytes were sent; returns its exit status.
  int run(std::uint64_t kill_after) {
    Child child(
        {.argv = {test_program().string(), "get", "org/name", "--all"}, .shows_errors = true});
    server_.set_on_sent([&](std::uint64_t sent) {
      if (sent >= kill_after) child.kill();
    });
    pollfd end{.fd = child.pid_fd(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, -1);
    server_.set_on_sent(nullptr);
    int status = 0;
    EXPECT_TRUE(child.reap(status));
    return status;
  }
  // What has a name is whole, always.
  std::size_t num_whole() const {
    std::size_t count = 0;
    for (const auto& [path, content] : contents_) {
      if (!fs::exists(file(path))) continue;
      EXPECT_EQ(read_file(file(path)), content) << path;
      ++count;
    }
    return count;
  }

  std::map<std::string, std::string> contents_;
  std::uint64_t bytes_ = 0;
};

TEST_F(HubKilled, FiftyTimesAtAnyByteItGoesOn) {
  std::mt19937 random(7);
  int kills = 0;
  int resumed = 0;
  while (kills < 50) {
    server_.forget_seen();
    const int status = run(random() % bytes_ / 3);
    if (WIFSIGNALED(status)) {
      ++kills;
    } else {
      ASSERT_EQ(status, 0);
      EXPECT_EQ(num_whole(), contents_.size());
      empty_cache();
    }
    num_whole();
    for (const SeenRequest& request : server_.seen()) resumed += request.range.empty() ? 0 : 1;
  }
  EXPECT_GT(resumed, 25) << "what has come is kept";
  EXPECT_EQ(run(~std::uint64_t{0}), 0);
  EXPECT_EQ(num_whole(), contents_.size());
  for (const auto& entry : fs::directory_iterator(repo() / "blobs")) {
    EXPECT_NE(entry.path().extension(), ".incomplete");
  }
}

}  // namespace
}  // namespace atl::hub
