#include "atoll/hub/api.h"

#include <gmock/gmock.h>

#include "atoll/base/error.h"
#include "atoll/hub/content_hash.h"
#include "atoll/hub/retry.h"

namespace atl::hub {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const HttpResponse& response, const HubSettings& settings = {}) {
  try {
    refuse_answer(response, settings, {.id = "org/name"});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HubApi, ReadsAListOfFiles) {
  const auto files = parse_tree(
      R"([{"type":"directory","oid":"x","path":"d","size":0},
          {"type":"file","oid":"95d09f2b10159347eece71399a7e2e907ea3df4f","size":11,
           "path":"d/é.txt"},
          {"type":"file","oid":"ae8c63daedbd4206d7d40126955d4e6ab1c80f8f","size":134,"path":"w",
           "lfs":{"oid":"b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
                  "size":5000000000,"pointerSize":134},"xetHash":"abc"}])",
      "list");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "d/é.txt");
  EXPECT_EQ(files[0].etag(), "95d09f2b10159347eece71399a7e2e907ea3df4f");
  EXPECT_EQ(files[1].size, 5'000'000'000u);
  EXPECT_EQ(files[1].etag().size(), 64u);
  EXPECT_EQ(files[1].xet_hash, "abc");
}

TEST(HubApi, FindsTheNextPage) {
  EXPECT_EQ(next_link("<https://h/x?cursor=1>; rel=\"next\""), "https://h/x?cursor=1");
  EXPECT_EQ(next_link("</a>; rel=\"prev\", </b>; title=x; rel=next"), "/b");
  for (const char* none : {"", "<", "<a", "a>", "<a>; rel=\"prev\"", ">;<"}) {
    EXPECT_EQ(next_link(none), "") << none;
  }
}

TEST(HubApi, AddressesAreEscaped) {
  const HubSettings settings;
  EXPECT_EQ(file_url(settings, {.kind = RepoKind::kDataset, .id = "org/name"}, "c", "d/a b#é.txt"),
            "https://huggingface.co/datasets/org/name/resolve/c/d/a%20b%23%C3%A9.txt");
  EXPECT_EQ(escaped("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(HubApi, AddressesAreResolvedAndNeverBecomeOpen) {
  EXPECT_EQ(resolved_url("https://h/a/b?x", "/c?y=1"), "https://h/c?y=1");
  EXPECT_EQ(resolved_url("https://h/a", "//other/c"), "https://other/c");
  EXPECT_EQ(resolved_url("https://h/a", "http://h/a"), "") << "what was secret would be open";
  EXPECT_EQ(resolved_url("https://h/a", "file:///etc/passwd"), "");
  EXPECT_NE(origin_of("https://h/a"), origin_of("https://h:444/a"));
  EXPECT_EQ(origin_of("https://H/a"), origin_of("https://h:443/b"));
  EXPECT_NE(origin_of("https://h/a"), origin_of("http://h/a"));
  EXPECT_EQ(origin_of("https://user@h/a"), origin_of("https://h/"));
}

TEST(HubApi, RefusalsSayWhatToDo) {
  EXPECT_THAT(refusal_of({.status = 404, .fields = {{"x-error-code", "EntryNotFound"}}}),
              HasSubstr("no such file"));
  EXPECT_THAT(refusal_of({.status = 404}), HasSubstr("has none of that name"));
  EXPECT_THAT(refusal_of({.status = 403, .fields = {{"x-error-code", "GatedRepo"}}}),
              HasSubstr("set HF_TOKEN"));
  EXPECT_THAT(refusal_of({.status = 401}, {.token = "hf_x"}), HasSubstr("the token that was sent"));
  EXPECT_THAT(refusal_of({.status = 418}), HasSubstr("answers 418"));
}

TEST(HubApi, WaitsAsLongAsItIsAsked) {
  const auto wait = [](const char* name, const char* value) {
    const auto seconds = asked_wait({.fields = {{name, value}}}, 784111777);
    return seconds ? seconds->count() : -1;
  };
  EXPECT_EQ(wait("retry-after", "7"), 7);
  EXPECT_EQ(wait("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"), 60);
  EXPECT_EQ(wait("retry-after", "Sun, 06 Nov 1994 08:40:37 GMT"), 0) << "over already";
  EXPECT_EQ(wait("retry-after", "99999999999999"), 86400);
  EXPECT_EQ(wait("retry-after", "-1"), -1);
  EXPECT_EQ(wait("retry-after", "soon"), -1);
  EXPECT_EQ(wait("ratelimit", "\"api\";r=0;t=55"), 55);
  EXPECT_EQ(wait("ratelimit", "\"api\";r=10;t=55"), -1) << "there is some left";
}

TEST(HubApi, ContentsAreCalledAsGitAndLargeFileStorageDo) {
  // git hash-object and sha256sum of "hello world".
  ContentHash git({.size = 11});
  git.update("hello ");
  git.update("world");
  EXPECT_EQ(git.digest(), "95d09f2b10159347eece71399a7e2e907ea3df4f");
  ContentHash large({.size = 11, .sha256 = "x"});
  large.update("other");
  large.reset();
  large.update("hello world");
  EXPECT_EQ(large.digest(), "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
}

}  // namespace
}  // namespace atl::hub
