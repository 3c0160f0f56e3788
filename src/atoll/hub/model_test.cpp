#include "atoll/hub/model.h"

#include <gmock/gmock.h>

#include "atoll/base/error.h"
#include "atoll/hub/dataset.h"

namespace atl::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<RepoFile> files_of(const std::vector<std::string>& paths) {
  std::vector<RepoFile> files;
  for (const std::string& path : paths) files.push_back({.path = path});
  return files;
}

std::vector<std::string> paths_of(const std::vector<RepoFile>& files) {
  std::vector<std::string> paths;
  for (const RepoFile& file : files) paths.push_back(file.path);
  return paths;
}

std::vector<std::string> chosen(const char* name, const std::vector<std::string>& paths,
                                const std::string& index = "{}") {
  return paths_of(choose_model_files(*parse_name(name, RepoKind::kModel), files_of(paths),
                                     [&](const RepoFile&) { return index; }));
}

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HubModel, OnlyWhatIsReadIsGot) {
  EXPECT_THAT(
      chosen("org/name", {".gitattributes", "README.md", "config.json", "generation_config.json",
                          "model.safetensors", "onnx/model.onnx", "original/consolidated.00.pth",
                          "pytorch_model.bin", "tokenizer.json", "tokenizer_config.json"}),
      UnorderedElementsAre("config.json", "generation_config.json", "model.safetensors",
                           "tokenizer.json", "tokenizer_config.json"));
}

TEST(HubModel, PartsAreThoseOfTheIndex) {
  const char* const index = R"({"weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors",
                                              "c": "x-1.safetensors"}})";
  const std::vector<std::string> paths = {"config.json", "consolidated.safetensors",
                                          "model.safetensors.index.json", "x-1.safetensors",
                                          "x-2.safetensors"};
  EXPECT_THAT(chosen("org/name", paths, index),
              UnorderedElementsAre("config.json", "model.safetensors.index.json", "x-1.safetensors",
                                   "x-2.safetensors"));
  EXPECT_THAT(error_of([&] { chosen("org/name", paths, R"({"weight_map": {"a": "../x"}})"); }),
              HasSubstr("names ../x, and there is no such file"));
  EXPECT_THAT(error_of([&] { chosen("org/name", paths, "{}"); }), HasSubstr("weight_map"));
}

TEST(HubModel, AnAdapterIsItsOwnFiles) {
  EXPECT_THAT(
      chosen("org/name", {"adapter_config.json", "adapter_model.safetensors", "optimizer.pt",
                          "tokenizer.json"}),
      UnorderedElementsAre("adapter_config.json", "adapter_model.safetensors", "tokenizer.json"));
}

TEST(HubModel, OneVariantOfGgufIsGot) {
  const std::vector<std::string> paths = {
      "mmproj-model-F16.gguf", "model-IQ3_XXS.gguf",         "model-Q4_K_M.gguf",
      "model.Q8_0.gguf",       "BF16/m-00001-of-00002.gguf", "BF16/m-00002-of-00002.gguf"};
  EXPECT_THAT(chosen("org/name:Q4_K_M", paths), ElementsAre("model-Q4_K_M.gguf"));
  EXPECT_THAT(chosen("org/name:q8_0", paths), ElementsAre("model.Q8_0.gguf"));
  EXPECT_THAT(chosen("org/name:BF16", paths),
              ElementsAre("BF16/m-00001-of-00002.gguf", "BF16/m-00002-of-00002.gguf"));
  EXPECT_THAT(error_of([&] { chosen("org/name:Q4_K", paths); }),
              HasSubstr("it has BF16, F16, IQ3_XXS, Q4_K_M, Q8_0"));
  EXPECT_THAT(error_of([&] { chosen("org/name", paths); }),
              HasSubstr("atoll import org/name:BF16 --out name"));
  EXPECT_THAT(error_of([&] {
                chosen("org/name:Q4_0", {"a-Q4_0.gguf", "b-Q4_0.gguf"});
              }),
              HasSubstr("hf://org/name/a-Q4_0.gguf"));
}

TEST(HubModel, APartOfARepositoryIsMeantByItsPath) {
  const std::vector<std::string> paths = {"a/config.json", "a/model.safetensors", "b/config.json",
                                          "x.gguf"};
  EXPECT_THAT(chosen("hf://org/name/a", paths),
              UnorderedElementsAre("a/config.json", "a/model.safetensors"));
  EXPECT_THAT(chosen("hf://org/name/x.gguf", paths), ElementsAre("x.gguf"));
  EXPECT_THAT(error_of([&] { chosen("hf://org/name/c", paths); }), HasSubstr("has nothing at c"));
}

TEST(HubModel, WhatIsNoModelIsTold) {
  EXPECT_THAT(error_of([] {
                chosen("org/name", {"config.json", "pytorch_model.bin"});
              }),
              HasSubstr("PyTorch's files alone"));
  EXPECT_THAT(error_of([] { chosen("org/name", {"config.json"}); }), HasSubstr("has no weights"));
  EXPECT_THAT(error_of([] { chosen("org/name", {"data.txt"}); }),
              HasSubstr("neither config.json nor adapter_config.json"));
}

TEST(HubDataset, FilesThatAreReadAreChosen) {
  const auto files = files_of({"README.md", "data/a.jsonl", "data/b.parquet", "test/c.jsonl"});
  const auto is_jsonl = [](const std::filesystem::path& path) {
    return path.extension() == ".jsonl";
  };
  const auto of = [&](const char* name) {
    return paths_of(choose_data_files(*parse_name(name, RepoKind::kModel), files, is_jsonl));
  };
  EXPECT_THAT(of("hf://datasets/o/n"), ElementsAre("data/a.jsonl", "test/c.jsonl"));
  EXPECT_THAT(of("hf://datasets/o/n/data"), ElementsAre("data/a.jsonl"));
  EXPECT_THAT(of("hf://datasets/o/n/data/b.parquet"), ElementsAre("data/b.parquet"));
  EXPECT_THAT(error_of([&] { of("hf://datasets/o/n/dat"); }), HasSubstr("has no files"));
  EXPECT_THAT(error_of([&] {
                choose_data_files({.kind = RepoKind::kDataset, .id = "o/n"}, files,
                                  [](const auto&) { return false; });
              }),
              HasSubstr("there are .jsonl, .md, .parquet"));
  EXPECT_TRUE(names_data_set("hf://datasets/o/n@v1/x"));
  EXPECT_FALSE(names_data_set("hf://o/n"));
  EXPECT_FALSE(names_data_set("books"));
  EXPECT_THAT(local_texts({"a.txt", "b"}, is_jsonl), ElementsAre("a.txt", "b"));
  EXPECT_THAT(error_of([&] { local_texts({"hf://o/n"}, is_jsonl); }),
              HasSubstr("hf://datasets/ORG/NAME"));
}

}  // namespace
}  // namespace atl::hub
