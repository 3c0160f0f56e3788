#include "atoll/train/model/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/comm/world.h"
#include "atoll/train/model/options.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A run whose model has a config.json with one absurd size.
class Room : public ::testing::Test {
 protected:
  Room() {
    const std::string text = R"({"model_type": "llama", "vocab_size": 100000000000,
      "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "intermediate_size": 128, "max_position_embeddings": 32})";
    write_file(file_, text);
    config_.model.config = file_;
    config_.data.new_tokenizer = "char";
    config_.train.context = 8;
  }
  static std::string refusal(const std::function<void()>& check) {
    try {
      check();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kResource) << error.what();
      return error.what();
    }
    return "no error";
  }

  const std::string file_ = ::testing::TempDir() + "room-config.json";
  const std::unique_ptr<comm::World> world_ = comm::open_self();
  const std::unique_ptr<Device> device_ = open_device({.threads = 1});
  TrainConfig config_;
};

TEST_F(Room, ARefusalNamesTheFileAndTheSizesOfTheModel) {
  const auto named = AllOf(HasSubstr("the run is planned to take"),
                           HasSubstr("; the model is that of " + file_ +
                                     ": vocab_size is 100000000000, hidden_size 64, "));
  EXPECT_THAT(refusal([&] { check_before_tokens(config_, *device_, *world_); }), named);
  const StateOptions options = state_options(config_, 1, -1, 1, 0);
  EXPECT_THAT(refusal([&] { check_parameters(config_, options, *device_, *world_); }), named);
}

TEST_F(Room, ManyRanksAreRefusedBeforeTheyAreStarted) {
  TrainConfig config;
  config.model.hidden_size = 4096;
  config.train.batch_size = 4000;
  config.train.micro_batch = 1;
  config.data.new_tokenizer = "char";
  EXPECT_THAT(refusal([&] { check_before_ranks(config, 4000); }),
              HasSubstr("4000 ranks on this machine are planned to take"));
  config.model.hidden_size = 64;
  config.train.batch_size = 2;
  EXPECT_EQ(refusal([&] { check_before_ranks(config, 2); }), "no error");
}

}  // namespace
}  // namespace atl::train
