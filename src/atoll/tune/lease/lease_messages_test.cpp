#include "atoll/tune/lease/lease_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/tune/lease/inputs.h"

namespace atl::tune {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::string& frame) {
  try {
    decode(frame);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    return error.what();
  }
  return "taken";
}

const std::string kHash(32, 'a');

TEST(LeaseMessages, AreWhatTheyWereAfterTheJourney) {
  const FileEntry file = {.path = "run/checkpoints/00000020/model.safetensors",
                          .bytes = std::uint64_t{1} << 33,
                          .hash = kHash};
  const LeaseMessage messages[] = {
      Hello{.version = "1", .name = "lyon", .instance = "17", .slots = 3},
      Ready{{{7, 2}, {8, 1}}},
      Ended{{7, 2}, 143, "error: it was stopped", {file}},
      Delivered{{7, 2}},
      Leaving{},
      Welcome{
          "format 1\n", "[study]\n", "[run]\n", {{"data.text", "a.txt", false, {file}}}, {file}},
      Lease{{7, 2}, 40, 20, {{"optim.lr", "0.003"}, {"optim.kind", "\"lion\""}}, {file}},
      Want{{7, 2}, {0}},
      Settled{{7, 2}, "because"},
      Refused{"no"},
      Over{}};
  for (const LeaseMessage& message : messages) {
    const std::string frame = encode(message);
    const LeaseMessage again = decode(frame);
    EXPECT_EQ(again.index(), message.index());
    EXPECT_EQ(encode(again), frame);
  }
  const LeaseMessage decoded = decode(encode(messages[6]));
  const auto& lease = std::get<Lease>(decoded);
  EXPECT_EQ(lease.id, (LeaseId{7, 2}));
  EXPECT_EQ(lease.step, 40);
  EXPECT_EQ(lease.reached, 20);
  EXPECT_EQ(lease.settings[1].second, "\"lion\"");
  EXPECT_THAT(lease.files, ElementsAre(file));
}

TEST(LeaseMessages, ThatCannotBeAreRefused) {
  const auto ended = [](const std::string& files) {
    return R"({"kind":"ended","lease":[1,1],"code":0,"line":"","files":)" + files + "}";
  };
  EXPECT_THAT(refusal(""), HasSubstr("a message"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("a message"));
  EXPECT_THAT(refusal(R"({"kind":"dance"})"), HasSubstr("\"dance\" is no kind of message"));
  EXPECT_THAT(refusal(R"({"kind":"delivered"})"), HasSubstr("lease"));
  EXPECT_THAT(refusal(R"({"kind":"delivered","lease":[-1,1]})"), HasSubstr("is not from 0"));
  EXPECT_THAT(refusal(R"({"kind":"delivered","lease":[1,0]})"), HasSubstr("is not from 1"));
  EXPECT_THAT(refusal(R"({"kind":"delivered","lease":[1,1.5]})"), HasSubstr("no whole number"));
  EXPECT_THAT(refusal(R"({"kind":"delivered","lease":[1,18446744073709551615]})"),
              HasSubstr("is not from"));
  for (const char* path : {"", "/etc/passwd", "../a", "a/../../b", "a//b", "./a", "a/", "a/.."}) {
    EXPECT_THAT(refusal(ended(fmt::format(R"([["{}",1,"{}"]])", path, kHash))),
                HasSubstr("is no path below a directory"))
        << path;
  }
  EXPECT_THAT(refusal(ended(R"([["a",1,"xyz"]])")), HasSubstr("is no hash"));
  for (const char* bytes : {"99999999999999999", "-1", "1.5", "1e+122"}) {
    EXPECT_THAT(refusal(ended(fmt::format(R"([["a",{},"{}"]])", bytes, kHash))), HasSubstr(bytes));
  }
  EXPECT_THAT(refusal(ended(fmt::format(R"([["b",1,"{0}"],["a",1,"{0}"]])", kHash))),
              HasSubstr("order"));
  EXPECT_EQ(refusal(ended(fmt::format(R"([["a",1,"{0}"],["b",1,"{0}"]])", kHash))), "taken");
}

TEST(FileList, HasWhatTravels) {
  std::string name = "/tmp/atoll-files-XXXXXX";
  const fs::path root = ::mkdtemp(name.data());
  const auto make = [&](const std::string& path, const std::string& content) {
    fs::create_directories((root / path).parent_path());
    write_file(root / path, content);
  };
  make("run/metrics.jsonl", "{}\n");
  make("run/lock", "pid 1\n");
  make("run/data/corpus.json", "{}\n");
  make("run-00000010/checkpoints/00000010/model", "weights");
  make("run/checkpoints/.link-00000010/model", "half");
  make("empty", "");
  make(".incoming-2/run/metrics.jsonl", "{}\n");
  const std::vector<FileEntry> files = list_files(root, travels);
  std::vector<std::string> paths;
  for (const FileEntry& file : files) {
    paths.push_back(file.path);
    EXPECT_TRUE(has_file(root, file)) << file.path;
  }
  EXPECT_THAT(paths,
              ElementsAre("empty", "run-00000010/checkpoints/00000010/model", "run/metrics.jsonl"));
  make("run/metrics.jsonl", "[]\n");
  EXPECT_FALSE(has_file(root, files[2]));
  EXPECT_TRUE(list_files(root / "nowhere", travels).empty());
  fs::remove_all(root);
}

}  // namespace
}  // namespace atl::tune
