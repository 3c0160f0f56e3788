#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "hub_fixture.h"

namespace atl::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HubGet : public HubFixture {
 protected:
  HubGet() {
    server_.add(kRepo, "config.json", "{\"hidden_size\": 8}");
    server_.add(kRepo, "sub/empty.txt", "");
    server_.add(kRepo, "model.safetensors", large_, true);
  }
  const std::string large_ = std::string(100'000, 'w') + "eights";
};

TEST_F(HubGet, FilesLieAsHuggingfaceHubPutsThem) {
  const Snapshot snapshot = get();
  EXPECT_EQ(snapshot.directory, repo() / "snapshots" / std::string(40, 'c'));
  EXPECT_EQ(snapshot.files.size(), 3u);
  EXPECT_EQ(snapshot.fetched_bytes, large_.size() + 18);
  EXPECT_EQ(read_file(repo() / "refs" / "main"), std::string(40, 'c'));
  EXPECT_EQ(fs::read_symlink(file("model.safetensors")), "../../blobs/" + sha256(large_));
  EXPECT_EQ(fs::read_symlink(file("sub/empty.txt")), "../../../blobs/" + git_sha1(""));
  EXPECT_EQ(read_file(file("model.safetensors")), large_);
  EXPECT_EQ(read_file(file("config.json")), "{\"hidden_size\": 8}");
  EXPECT_TRUE(fs::exists(repo() / "trees" / (std::string(40, 'c') + ".json")));
  EXPECT_TRUE(
      fs::exists(settings_.cache / ".locks" / "models--org--name" / (sha256(large_) + ".lock")));
  EXPECT_TRUE(fs::exists(settings_.cache / "CACHEDIR.TAG"));
  for (const auto& entry : fs::directory_iterator(repo() / "blobs")) {
    EXPECT_NE(entry.path().extension(), ".incomplete");
  }
}

TEST_F(HubGet, WhatIsThereIsNotGotAgain) {
  get();
  server_.forget_seen();
  EXPECT_EQ(get().fetched_bytes, 0u);
  ASSERT_EQ(server_.seen().size(), 1u) << "which commit main is";
  EXPECT_EQ(server_.seen()[0].target, "/api/models/org/name/revision/main");
  server_.forget_seen();
  get(std::string(40, 'c'));
  EXPECT_TRUE(server_.seen().empty()) << "a commit never changes";
}

TEST_F(HubGet, ANewCommitTakesTheContentsThatAreThere) {
  get();
  server_.repo(kRepo).commit = std::string(40, 'e');
  server_.add(kRepo, "config.json", "{}");
  EXPECT_EQ(get().fetched_bytes, 2u);
  EXPECT_EQ(read_file(repo() / "refs" / "main"), std::string(40, 'e'));
  EXPECT_EQ(read_file(file("config.json")), "{\"hidden_size\": 8}") << "the old snapshot stays";
}

TEST_F(HubGet, ARevisionMayHaveASlash) {
  get("v1/x");
  EXPECT_EQ(server_.seen()[0].target, "/api/models/org/name/revision/v1%2Fx");
  EXPECT_EQ(read_file(repo() / "refs" / "v1" / "x"), std::string(40, 'c'));
}

TEST_F(HubGet, ListsComeInPages) {
  server_.set_page_size(1);
  EXPECT_EQ(get().files.size(), 3u);
}

TEST_F(HubGet, TheTokenGoesToTheHubAlone) {
  settings_.token = "hf_secret";
  get();
  bool asked_storage = false;
  for (const SeenRequest& request : server_.seen()) {
    EXPECT_EQ(request.authorization, request.is_of_storage ? "" : "Bearer hf_secret");
    asked_storage = asked_storage || request.is_of_storage;
  }
  EXPECT_TRUE(asked_storage);
}

TEST_F(HubGet, WhatMayNotBeHadIsTold) {
  server_.repo(kRepo).token = "hf_right";
  EXPECT_THAT(error_of_get(ErrorKind::kUser), AllOf(HasSubstr("org/name"), HasSubstr("HF_TOKEN")));
  settings_.token = "hf_wrong";
  const std::string refusal = error_of_get(ErrorKind::kUser);
  EXPECT_THAT(refusal, AllOf(HasSubstr("the token that was sent"), Not(HasSubstr("hf_wrong"))));
  server_.repo(kRepo).is_gated = true;
  EXPECT_THAT(error_of_get(ErrorKind::kUser), HasSubstr("gated: Access is restricted."));
  settings_.token = "hf_right";
  EXPECT_NO_THROW(get());
  const auto other = [&](const RepoName& name) {
    try {
      get_snapshot(settings_, name, all);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(other({.id = "org/other"}), HasSubstr("org/other"));
  EXPECT_THAT(other({.id = "org/name", .revision = "v9"}), HasSubstr("has no revision v9"));
}

TEST_F(HubGet, OfflineTheCacheIsTheHub) {
  settings_.is_offline = true;
  EXPECT_THAT(error_of_get(ErrorKind::kUser),
              AllOf(HasSubstr("HF_HUB_OFFLINE"), HasSubstr("`atoll get org/name`")));
  settings_.is_offline = false;
  get();
  server_.forget_seen();
  settings_.is_offline = true;
  EXPECT_EQ(get().files.size(), 3u);
  fs::remove(file("config.json"));
  EXPECT_THAT(error_of_get(ErrorKind::kUser), HasSubstr("lacks config.json"));
  fs::remove_all(repo() / "trees");
  EXPECT_EQ(get().files.size(), 2u) << "as an older program leaves it";
  EXPECT_TRUE(server_.seen().empty());
}

TEST_F(HubGet, WithoutLinksFilesLieInTheSnapshot) {
  settings_.has_symlinks = false;
  get();
  EXPECT_FALSE(fs::is_symlink(file("model.safetensors")));
  EXPECT_EQ(read_file(file("model.safetensors")), large_);
  EXPECT_EQ(get().fetched_bytes, 0u);
}

TEST_F(HubGet, AFileThatWasDamagedIsGotAgain) {
  get();
  fs::resize_file(repo() / "blobs" / sha256(large_), 10);
  EXPECT_EQ(get().fetched_bytes, large_.size());
  EXPECT_EQ(read_file(file("model.safetensors")), large_);
}

TEST_F(HubGet, SeveralAtATimeGetEachFileOnce) {
  server_.set_faults([](const SeenRequest&, int) { return Fault{.piece_bytes = 4096}; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([this] { get(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(read_file(file("model.safetensors")), large_);
  EXPECT_EQ(server_.file_bytes(), large_.size() + 18);
}

TEST_F(HubGet, ADiskWithTooLittleRoomIsToldBefore) {
  server_.set_faults([&](const SeenRequest& request, int) {
    if (request.target.find("/tree/") == std::string::npos) return Fault{};
    return Fault{.body = fmt::format(R"([{{"type":"file","path":"x","size":{},"oid":"{}"}}])",
                                     std::int64_t{1} << 49, std::string(40, 'a'))};
  });
  EXPECT_THAT(error_of_get(ErrorKind::kUser), HasSubstr("HF_HUB_CACHE"));
}

TEST_F(HubGet, NobodyThereIsToldAtOnce) {
  settings_.endpoint = "http://127.0.0.1:1";
  EXPECT_THAT(error_of_get(ErrorKind::kIo),
              AllOf(HasSubstr("does not answer"), HasSubstr("HF_HUB_OFFLINE=1")));
}

}  // namespace
}  // namespace atl::hub
