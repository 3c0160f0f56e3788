#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hub_fixture.h"

namespace atl::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

bool is_of_file(const SeenRequest& request) {
  return !request.target.starts_with("/api/") &&
         (request.is_of_storage || request.target.ends_with(".json"));
}

// One small file, in large file storage or with Git.
class HubFaults : public HubFixture {
 protected:
  void serve(bool is_large) { server_.add(kRepo, path(is_large), content_, is_large); }
  static std::string path(bool is_large) { return is_large ? "w.safetensors" : "c.json"; }
  std::string hash(bool is_large) const { return is_large ? sha256(content_) : git_sha1(content_); }
  // Requests for the file itself, which the hub leads to the storage.
  std::vector<SeenRequest> of_file() const {
    std::vector<SeenRequest> found;
    for (const SeenRequest& request : server_.seen()) {
      if (is_of_file(request)) found.push_back(request);
    }
    return found;
  }
  const std::string content_ = "each of these bytes may be the last to come\n";
};

TEST_F(HubFaults, ADownloadThatIsCutGoesOnAtThatByte) {
  for (const bool is_large : {false, true}) {
    server_.repo(kRepo).files.clear();
    serve(is_large);
    empty_cache();
    for (std::size_t cut = 0; cut < content_.size(); ++cut) {
      forget_files();
      server_.forget_seen();
      server_.set_faults([cut](const SeenRequest& request, int count) {
        return is_of_file(request) && count == 0 ? Fault{.cut_after = cut} : Fault{};
      });
      get();
      EXPECT_EQ(read_file(file(path(is_large))), content_);
      ASSERT_EQ(of_file().size(), 2u);
      EXPECT_EQ(of_file()[1].range, cut == 0 ? "" : fmt::format("bytes={}-", cut));
      EXPECT_EQ(server_.file_bytes(), content_.size()) << "no byte comes twice";
    }
  }
}

TEST_F(HubFaults, WhatAnEarlierProcessLeftIsGoneOnWith) {
  for (const bool is_large : {false, true}) {
    server_.repo(kRepo).files.clear();
    serve(is_large);
    empty_cache();
    for (std::size_t there = 0; there <= content_.size(); ++there) {
      forget_files();
      server_.forget_seen();
      fs::create_directories(repo() / "blobs");
      write_file(repo() / "blobs" / (hash(is_large) + ".incomplete"), content_.substr(0, there));
      get();
      EXPECT_EQ(read_file(file(path(is_large))), content_);
      EXPECT_EQ(server_.file_bytes(), content_.size() - there);
    }
  }
}

TEST_F(HubFaults, WhatIsLeftOfAnotherContentIsThrownAway) {
  serve(true);
  for (const std::string& there : {std::string("other"), content_ + "more", std::string(44, 'x')}) {
    empty_cache();
    fs::create_directories(repo() / "blobs");
    write_file(repo() / "blobs" / (hash(true) + ".incomplete"), there);
    get();
    EXPECT_EQ(read_file(file(path(true))), content_);
  }
}

TEST_F(HubFaults, AServerThatKnowsNoRangesSendsTheWhole) {
  serve(true);
  fs::create_directories(repo() / "blobs");
  write_file(repo() / "blobs" / (hash(true) + ".incomplete"), content_.substr(0, 9));
  server_.set_faults([](const SeenRequest&, int) { return Fault{.ignores_range = true}; });
  get();
  EXPECT_EQ(read_file(file(path(true))), content_);
}

TEST_F(HubFaults, AnotherContentIsNeverTaken) {
  serve(true);
  std::string other = content_;
  other[7] ^= 1;
  server_.set_faults([&](const SeenRequest& request, int) {
    return request.is_of_storage ? Fault{.body = other} : Fault{};
  });
  EXPECT_THAT(error_of_get(ErrorKind::kDamaged), HasSubstr("has another hash than"));
  EXPECT_EQ(of_file().size(), 2u) << "it may have been an accident once";
  EXPECT_FALSE(fs::exists(file(path(true))));
  EXPECT_FALSE(fs::exists(repo() / "blobs" / hash(true)));
  EXPECT_FALSE(fs::exists(repo() / "refs" / "main"));
  server_.set_faults(nullptr);
  get();
  EXPECT_EQ(read_file(file(path(true))), content_);
}

TEST_F(HubFaults, AnEtagThatChangesEndsItBeforeBytesCome) {
  for (const bool is_large : {false, true}) {
    server_.repo(kRepo).files.clear();
    serve(is_large);
    empty_cache();
    server_.forget_seen();
    server_.set_faults([](const SeenRequest& request, int) {
      return request.target.starts_with("/api/") ? Fault{} : Fault{.etag = std::string(64, '1')};
    });
    EXPECT_THAT(error_of_get(ErrorKind::kIo), HasSubstr("the server has another content, 111"));
  }
}

TEST_F(HubFaults, MoreBytesThanTheFileHasAreRefused) {
  serve(true);
  server_.set_faults([&](const SeenRequest& request, int) {
    return request.is_of_storage ? Fault{.body = content_ + "more"} : Fault{};
  });
  EXPECT_THAT(error_of_get(ErrorKind::kIo), HasSubstr("more bytes came than it has"));
}

TEST_F(HubFaults, ATruncatedFileIsAskedForAgain) {
  serve(true);
  // Whole as HTTP sees it: the length that it says is the shorter one's.
  server_.set_faults([&](const SeenRequest& request, int count) {
    return request.is_of_storage && count == 0 ? Fault{.body = content_.substr(0, 20)} : Fault{};
  });
  get();
  EXPECT_EQ(of_file()[1].range, "bytes=20-");
  EXPECT_EQ(read_file(file(path(true))), content_);
}

TEST_F(HubFaults, WhatPassesIsWaitedForAndOnlySoOften) {
  serve(true);
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    empty_cache();
    server_.set_faults([status](const SeenRequest&, int count) {
      return count < 2 ? Fault{.status = status, .fields = {{"Retry-After", "0"}}} : Fault{};
    });
    get();
    EXPECT_EQ(read_file(file(path(true))), content_) << status;
  }
  empty_cache();
  server_.forget_seen();
  server_.set_faults([](const SeenRequest&, int) { return Fault{.status = 503}; });
  EXPECT_THAT(error_of_get(ErrorKind::kIo), HasSubstr("the hub answers 503"));
  EXPECT_EQ(server_.seen().size(), static_cast<std::size_t>(settings_.retry.attempts));
}

// Its etag is that of the page that says so.
TEST_F(HubFaults, ARefusalIsNoOtherContent) {
  serve(true);
  server_.set_faults([](const SeenRequest& request, int) {
    if (!is_of_file(request)) return Fault{};
    return Fault{.status = 403,
                 .fields = {{"X-Repo-Commit", std::string(40, 'c')}, {"ETag", "\"of-a-page\""}},
                 .etag = "of-a-page"};
  });
  EXPECT_THAT(error_of_get(ErrorKind::kUser), Not(HasSubstr("another content")));
  EXPECT_EQ(of_file().size(), 1u);
}

TEST_F(HubFaults, AWaitThatIsTooLongIsNotWaitedFor) {
  serve(true);
  server_.set_faults([](const SeenRequest&, int) {
    return Fault{.status = 429, .fields = {{"RateLimit", "\"api\";r=0;t=4000"}}};
  });
  EXPECT_THAT(error_of_get(ErrorKind::kIo), HasSubstr("asks to wait 4000 s"));
  EXPECT_EQ(server_.seen().size(), 1u);
}

TEST_F(HubFaults, AnAnswerThatLeadsInCirclesEnds) {
  serve(false);
  server_.set_faults([&](const SeenRequest& request, int) {
    return request.target.starts_with("/api/")
               ? Fault{}
               : Fault{.status = 302, .fields = {{"Location", request.target}}};
  });
  EXPECT_THAT(error_of_get(ErrorKind::kIo), HasSubstr("without an end"));
}

TEST_F(HubFaults, ARenamedRepositoryIsFollowed) {
  serve(false);
  server_.set_faults([&](const SeenRequest& request, int) {
    if (request.target.find("/old/name/") == std::string::npos) return Fault{};
    std::string target = request.target;
    target.replace(target.find("/old/name/"), 10, "/org/name/");
    return Fault{.status = 307, .fields = {{"Location", target}}};
  });
  const Snapshot snapshot = get_snapshot(settings_, {.id = "old/name"}, all);
  EXPECT_EQ(read_file(snapshot.directory / path(false)), content_);
}

TEST_F(HubFaults, ListsThatLeadOutOfTheCacheAreRefused) {
  serve(false);
  const std::string sha(40, 'a');
  for (const std::string& entry :
       {R"({"type":"file","path":"../x","size":1,"oid":")" + sha + "\"}",
        R"({"type":"file","path":"/etc/x","size":1,"oid":")" + sha + "\"}",
        R"({"type":"file","path":"a/../../x","size":1,"oid":")" + sha + "\"}",
        std::string(R"({"type":"file","path":"x","size":1,"oid":"../../x"})"),
        R"({"type":"file","path":"x","size":-1,"oid":")" + sha + "\"}",
        R"({"type":"file","path":"x","size":1e99,"oid":")" + sha + "\"}",
        R"({"type":"file","path":"x","size":1,"oid":")" + sha + R"(","lfs":{"oid":"/x","size":1}})",
        std::string("{"), std::string("7")}) {
    server_.set_faults([&](const SeenRequest& request, int) {
      return request.target.find("/tree/") == std::string::npos ? Fault{}
                                                                : Fault{.body = "[" + entry + "]"};
    });
    error_of_get(ErrorKind::kDamaged);
  }
  server_.set_faults([&](const SeenRequest& request, int) {
    return request.target.find("/revision/") == std::string::npos
               ? Fault{}
               : Fault{.body = R"({"sha": "../../../../../../../../../../../etc/x"})"};
  });
  EXPECT_THAT(error_of_get(ErrorKind::kDamaged), HasSubstr("is no commit"));
}

}  // namespace
}  // namespace atl::hub
