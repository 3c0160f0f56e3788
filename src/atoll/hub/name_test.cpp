#include "atoll/hub/name.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace atl::hub {
namespace {

namespace fs = std::filesystem;

std::string shown(const char* text, RepoKind kind = RepoKind::kModel) {
  const auto name = parse_name(text, kind);
  if (!name) return "";
  return std::string(kind_name(name->kind)) + " " + name->id + " " + name->revision + " " +
         name->path + " " + name->variant;
}

TEST(HubName, IsParsed) {
  EXPECT_EQ(shown("org/name"), "model org/name main  ");
  EXPECT_EQ(shown("gpt2"), "model gpt2 main  ");
  EXPECT_EQ(shown("org/name@v1.0"), "model org/name v1.0  ");
  EXPECT_EQ(shown("org/name:Q4_K_M"), "model org/name main  Q4_K_M");
  EXPECT_EQ(shown("org/name@v1:Q4_K_M"), "model org/name v1  Q4_K_M");
  EXPECT_EQ(shown("hf://org/name/sub/x.gguf"), "model org/name main sub/x.gguf ");
  EXPECT_EQ(shown("hf://models/org/name"), "model org/name main  ");
  EXPECT_EQ(shown("hf://datasets/org/name@a%2Fb/c/d"), "data set org/name a/b c/d ");
  EXPECT_EQ(shown("hf://datasets/org/name@refs/pr/12/c"), "data set org/name refs/pr/12 c ");
  EXPECT_EQ(shown("hf://datasets/org/name/"), "data set org/name main  ");
  EXPECT_EQ(shown("https://huggingface.co/org/name"), "model org/name main  ");
  EXPECT_EQ(shown("https://huggingface.co/datasets/org/name/tree/v2/data"),
            "data set org/name v2 data ");
  EXPECT_EQ(shown("https://huggingface.co/org/name/blob/main/x.gguf?download=true"),
            "model org/name main x.gguf ");
  EXPECT_EQ(shown("datasets/x", RepoKind::kDataset), "data set datasets/x main  ");
}

TEST(HubName, WhatTheHubDoesNotAllowIsNone) {
  for (const char* text : {"",
                           "/",
                           "org/",
                           "/name",
                           "org//name",

                           "hf://",
                           "hf://spaces/org/name",
                           "../x",
                           "org/..",
                           "org/.name",
                           "org/name.",
                           "org/-name",
                           "org/na--me",
                           "org/na..me",
                           "org/name.git",
                           "org/na me",
                           "org/name@",
                           "org/name@../x",
                           "org/name@a%2F..%2Fb",
                           "org/name@%zz",
                           "org/name:",
                           "org/name:a/b",
                           "hf://org/name/../x",
                           "hf://org/name/a//b",
                           "hf://datasets/org/name:Q4",
                           "hf://org/name/a\nb",
                           "org/name@a\x7f",
                           "~/model",
                           "C:\\x"}) {
    EXPECT_EQ(shown(text), "") << text;
  }
  EXPECT_FALSE(is_repo_id(std::string(97, 'a')));
  EXPECT_TRUE(is_repo_id(std::string(96, 'a')));
}

TEST(HubName, IsWrittenAsItIsRead) {
  for (const char* text : {"org/name", "org/name@v1", "org/name:Q8_0", "hf://datasets/org/name",
                           "hf://datasets/org/name@v1/c/d.jsonl"}) {
    EXPECT_EQ(parse_name(text, RepoKind::kModel)->text(), text);
  }
}

TEST(HubName, APathThatIsThereIsNone) {
  std::string pattern = (fs::temp_directory_path() / "atoll-hub-name-XXXXXX").string();
  const fs::path root = ::mkdtemp(pattern.data());
  const fs::path before = fs::current_path();
  fs::current_path(root);
  fs::create_directories("org/name");
  EXPECT_FALSE(name_unless_path("org/name", RepoKind::kModel)) << "it wins";
  EXPECT_FALSE(name_unless_path("org/nmae", RepoKind::kModel)) << "a slip of the pen";
  EXPECT_TRUE(name_unless_path("hf://org/nmae", RepoKind::kModel));
  EXPECT_TRUE(name_unless_path("other/name", RepoKind::kModel));
  EXPECT_TRUE(name_unless_path("other/name:Q4_0", RepoKind::kModel));
  EXPECT_TRUE(name_unless_path("gpt2", RepoKind::kModel));
  EXPECT_FALSE(name_unless_path("model", RepoKind::kModel));
  EXPECT_FALSE(name_unless_path("runs/kjv", RepoKind::kModel)) << "a run that is missing";
  EXPECT_TRUE(name_unless_path("hf://runs/kjv", RepoKind::kModel));
  EXPECT_FALSE(name_unless_path("a/b/c", RepoKind::kModel));
  EXPECT_FALSE(name_unless_path("models/x.gguf", RepoKind::kModel)) << "a file that is missing";
  EXPECT_FALSE(name_unless_path("/a/b", RepoKind::kModel));
  EXPECT_FALSE(name_unless_path("", RepoKind::kModel));
  fs::current_path(before);
  fs::remove_all(root);
}

}  // namespace
}  // namespace atl::hub
