#include "atoll/model_dir/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/testing.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kNamed = R"({"bos_token": "<b>", "chat_template": [
    {"name": "default", "template": "base"}, {"name": "rag", "template": "{{ bos_token }}rag"}]})";

class ChatOfAModel : public ::testing::Test {
 protected:
  ChatOfAModel() {
    fs::create_directories(base_);
    fs::create_directories(adapter_);
    write_file(base_ / "config.json", "{}");
    write_file(base_ / "tokenizer_config.json", kNamed);
    write_file(adapter_ / "adapter_config.json",
               R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8,
                   "target_modules": ["q_proj"], "base_model_name_or_path": ")" +
                   base_.string() + "\"}");
    write_file(adapter_ / "adapter_model.safetensors", "");
  }
  std::string text_of(const fs::path& given, const ModelPath& model) const {
    return find_chat_template(given, model, make_byte_tokenizer()).render({});
  }
  std::string error_of(const fs::path& given, const ModelPath& model) const {
    try {
      return text_of(given, model);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
  }

  const ckpt::testing::TemporaryDirectory directory_{"chat-of-a-model"};
  const fs::path base_ = directory_.path() / "base";
  const fs::path adapter_ = directory_.path() / "adapter";
};

TEST_F(ChatOfAModel, IsNamedOrNumbered) {
  EXPECT_EQ(text_of({}, base_), "base");
  EXPECT_EQ(text_of("rag", base_), "<b>rag");
  EXPECT_EQ(text_of("1", base_), "<b>rag");
  EXPECT_EQ(text_of("0", base_), "base");
  EXPECT_THAT(error_of("2", base_), HasSubstr("there is no chat template 2: no such file, and"));
  EXPECT_THAT(error_of("tool", base_), HasSubstr("has default, rag"));
  EXPECT_EQ(named_chat_template("rag", base_)->source, "{{ bos_token }}rag");
  EXPECT_FALSE(named_chat_template(base_, base_));
}

TEST_F(ChatOfAModel, IsTheBaseModelsWhereAnAdapterHasNone) {
  EXPECT_EQ(text_of({}, adapter_), "base");
  EXPECT_EQ(text_of("rag", adapter_), "<b>rag");
  write_file(adapter_ / "chat_template.jinja", "its own");
  EXPECT_EQ(text_of({}, adapter_), "its own");
  EXPECT_THAT(error_of("rag", adapter_), HasSubstr("has default"));
}

TEST_F(ChatOfAModel, IsTheBaseModelsThatAPersonNamed) {
  const fs::path other = directory_.path() / "other";
  fs::create_directories(other);
  write_file(other / "config.json", "{}");
  write_file(other / "chat_template.jinja", "another base");
  EXPECT_EQ(text_of({}, ModelPath(adapter_, other)), "another base");
}

}  // namespace
}  // namespace atl::model_dir
