// Models and data of the hub by name, as commands take them.

#include "../e2e/train_fixture.h"

#include <cstdlib>
#include <set>

#include "hub_server.h"

namespace atl::hub {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using ::testing::AllOf;
using ::testing::HasSubstr;

class HubProgram : public e2e::Train {
 protected:
  void SetUp() override {
    Train::SetUp();
    ::setenv("HF_ENDPOINT", server_.endpoint().c_str(), 1);
    ::setenv("HF_HUB_CACHE", path("hub").c_str(), 1);
    trained("run", {"--train.steps=2"});
    done({"export", path("run"), "--out", path("model")});
    serve("models/org/tiny", path("model"));
    server_.add("models/org/tiny", "README.md", "not for a machine");
    server_.add("models/org/tiny", "pytorch_model.bin", "nor this", true);
    std::string rows;
    for (int i = 0; i < 400; ++i)
      rows += R"({"text": "the sea is wide and a ring lies there"})"
              "\n";
    server_.add("datasets/org/texts", "data/train.jsonl", rows, true);
    server_.add("datasets/org/texts", "README.md", "of the texts");
    // What a file is called decides, as it is not here yet.
    server_.add("datasets/org/texts", "data/dataset_infos.json", "[{\"text\": \"no\"}]");
  }
  void TearDown() override {
    for (const char* name : {"HF_ENDPOINT", "HF_HUB_CACHE", "HF_HUB_OFFLINE"}) ::unsetenv(name);
  }
  void serve(const std::string& key, const fs::path& directory) {
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      const std::string name = entry.path().lexically_relative(directory).string();
      const bool is_large = name.ends_with(".safetensors") || name.ends_with(".gguf");
      if (entry.is_regular_file()) server_.add(key, name, read_file(entry.path()), is_large);
    }
  }
  static Finished done(const std::vector<std::string>& arguments) {
    Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished;
  }
  static std::string text_of(const std::string& model) {
    return done({"generate", model, "--greedy", "--prompt=the sea", "--max-tokens=8"}).out;
  }
  // Names of files that were asked for.
  std::set<std::string> files_asked() const {
    std::set<std::string> names;
    for (const SeenRequest& request : server_.seen()) {
      const std::size_t at = request.target.find("/resolve/");
      if (at != std::string::npos) names.insert(request.target.substr(at + 9 + 41));
    }
    return names;
  }

  HubServer server_;
};

TEST_F(HubProgram, AModelIsTakenByItsName) {
  EXPECT_EQ(text_of("org/tiny"), text_of(path("model")));
  EXPECT_TRUE(files_asked().contains("model.safetensors"));
  EXPECT_FALSE(files_asked().contains("README.md"));
  EXPECT_FALSE(files_asked().contains("pytorch_model.bin"));
  server_.forget_seen();
  EXPECT_EQ(text_of("org/tiny@" + std::string(40, 'c')), text_of(path("model")));
  EXPECT_TRUE(server_.seen().empty());
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_EQ(text_of("hf://org/tiny"), text_of(path("model")));
  EXPECT_THAT(error_line(atoll({"generate", "org/other", "--prompt=x"})),
              AllOf(HasSubstr("HF_HUB_OFFLINE is set"), HasSubstr("`atoll get org/other`")));
}

TEST_F(HubProgram, ARunTakesModelAndDataByName) {
  const std::vector<std::string> first = {"train",
                                          "--model.from=org/tiny",
                                          "--data.text=hf://datasets/org/texts/data",
                                          "--run.dir=" + path("tuned"),
                                          "--train.context=16",
                                          "--train.batch_size=2",
                                          "--train.micro_batch=2",
                                          "--train.steps=2"};
  done(first);
  EXPECT_FALSE(files_asked().contains("README.md"));
  std::vector<std::string> more = first;
  more.back() = "--train.steps=3";
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_THAT(done(more).err, HasSubstr("(step 2)"));
  done({"tokenize", "hf://datasets/org/texts", "--tokenizer=org/tiny", "--out", path("corpus")});
}

TEST_F(HubProgram, AnAdapterFindsItsBaseByName) {
  done({"train", "--model.from=org/tiny", "--data.text=hf://datasets/org/texts", "--lora.rank=2",
        "--run.dir=" + path("lora"), "--train.context=16", "--train.batch_size=2",
        "--train.micro_batch=2", "--train.steps=2"});
  done({"export", path("lora"), "--out", path("adapter")});
  const fs::path config = path("adapter") + "/adapter_config.json";
  const std::string there = read_file(config);
  const std::size_t key = there.find("\"base_model_name_or_path\"");
  const std::size_t begin = there.find('"', there.find(':', key)) + 1;
  const std::size_t end = there.find('"', begin);
  write_file(config, there.substr(0, begin) + "org/tiny" + there.substr(end));
  EXPECT_EQ(text_of(path("adapter")), text_of(path("lora")));
}

TEST_F(HubProgram, OneTypeOfGgufIsImported) {
  fs::create_directory(path("gguf"));
  done({"export", path("model"), "--out", path("gguf/tiny-F32.gguf"), "--gguf=F32"});
  done({"export", path("model"), "--out", path("gguf/tiny-F16.gguf"), "--gguf=F16"});
  serve("models/org/tiny-GGUF", path("gguf"));
  done({"import", "org/tiny-GGUF:f32", "--out", path("imported")});
  EXPECT_EQ(files_asked(), std::set<std::string>{"tiny-F32.gguf"});
  EXPECT_EQ(text_of(path("imported")), text_of(path("model")));
  EXPECT_THAT(error_line(atoll({"import", "org/tiny-GGUF:Q4_K_M", "--out", path("x")})),
              HasSubstr("it has F16, F32"));
  EXPECT_THAT(error_line(atoll({"generate", "org/tiny-GGUF", "--prompt=x"})),
              HasSubstr("atoll import org/tiny-GGUF:F16"));
}

TEST_F(HubProgram, GetSaysWhereFilesAre) {
  const Finished finished = done({"get", "org/tiny", "--include=*.md", "--print-path"});
  const fs::path directory = finished.out.substr(0, finished.out.size() - 1);
  EXPECT_EQ(read_file(directory / "README.md"), "not for a machine");
  EXPECT_EQ(files_asked(), std::set<std::string>{"README.md"});
  EXPECT_THAT(done({"get", "hf://datasets/org/texts"}).out,
              AllOf(HasSubstr("1 file, "), HasSubstr("datasets--org--texts")));
  EXPECT_THAT(error_line(atoll({"get", "org/tiny", "--include=*.h5"})),
              HasSubstr("no file is wanted"));
  EXPECT_EQ(atoll({"get", "no name"}).exit_code, 2);
}

}  // namespace
}  // namespace atl::hub
