#include "atoll/train/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "atoll/base/error.h"

namespace atl::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Fixture {
  TrainConfig config;
  Settings settings = make_settings(config);

  explicit Fixture(std::initializer_list<const char*> overrides = {}) {
    settings.load_toml_text("run.dir = 'runs/x'\ndata.text = ['a.txt']\n", "r.toml");
    for (const char* argument : overrides) settings.override(argument);
  }
};

std::string error_of(std::initializer_list<const char*> overrides) {
  Fixture f(overrides);
  try {
    validate(f.config, f.settings);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

TEST(TrainConfig, ScopesSayWhoMustHaveTheSameValue) {
  const Fixture f;
  const Settings& settings = f.settings;
  std::vector<std::string> of_host, of_run, fixed;
  for (const Setting& setting : settings.all()) {
    if (setting.scope == Scope::kHost) of_host.push_back(setting.key);
    if (setting.scope == Scope::kRun)
      of_run.push_back(setting.key.substr(0, setting.key.find('.')));
    if (setting.is_fixed) fixed.push_back(setting.key);
  }
  of_run.erase(std::unique(of_run.begin(), of_run.end()), of_run.end());
  EXPECT_THAT(
      of_host,
      ElementsAre("device.kind", "device.index", "device.threads", "device.bf16",
                  "device.attention", "device.attention_mib", "device.graphs", "device.fake_order",
                  "device.fake_memory_mib", "device.fake_lost_after", "data.cache_dir",
                  "offload.dir", "rl.slots", "sync.worker", "sync.addresses", "sync.transport",
                  "sync.identity", "sync.secret", "sync.disk_s", "alerts.off", "alerts.webhook",
                  "metrics.listen", "metrics.token_file", "metrics.certificate", "metrics.key"));
  EXPECT_THAT(of_run, ElementsAre("run", "model", "train", "preference", "moe", "optim", "lora",
                                  "rl", "sync", "outer"));
  EXPECT_EQ(settings.find("run.dir").scope, Scope::kIsland);
  EXPECT_EQ(settings.find("model.from").scope, Scope::kIsland);
  EXPECT_THAT(
      fixed,
      ElementsAre("run.seed", "model.parametrisation", "model.mup_base_width",
                  "model.mup_base_head_dim", "data.weights", "data.packing", "train.objective",
                  "train.batch_size", "train.micro_batch", "train.context", "train.dtype",
                  "train.dropout", "preference.beta", "preference.loss",
                  "preference.label_smoothing", "preference.reference_free",
                  "preference.desirable_weight", "preference.undesirable_weight",
                  "moe.capacity_factor", "optim.kind", "optim.masters", "lora.rank", "lora.alpha",
                  "lora.targets", "lora.rank_stabilized", "lora.dropout", "lora.modules_to_save",
                  "lora.target_parameters", "lora.trainable_token_indices", "lora.exclude",
                  "lora.rank_pattern", "lora.alpha_pattern", "lora.bias", "lora.dora", "rl.group",
                  "rl.max_tokens", "rl.advantage", "rl.kl", "rl.async"));
}

TEST(TrainConfig, DefaultsWithDataAndADirectoryAreARun) {
  EXPECT_EQ(error_of({}), "no error");
}

TEST(TrainConfig, EveryDefaultReadsBackThroughItsOwnRange) {
  TrainConfig config;
  const Settings settings = make_settings(config);
  TrainConfig again;
  Settings other = make_settings(again);
  other.load_toml_text(settings.to_toml(), "settings.toml");
  EXPECT_EQ(other.key_values(), settings.key_values());
}

TEST(TrainConfig, ARunHasADirectory) {
  EXPECT_EQ(error_of({"--run.dir="}),
            "run.dir is not set: give a recipe that sets it (a TOML file, as an argument), or say "
            "where the run may write, e.g. --run.dir=runs/first");
}

TEST(TrainConfig, DataComesFromOneSource) {
  EXPECT_EQ(
      error_of({"--data.shards=corpus"}),
      "data.text ([\"a.txt\"], r.toml:2) and data.shards ([\"corpus\"], --data.shards) are both "
      "given; a run has one source: empty the other with --data.text=");
  EXPECT_EQ(error_of({"--data.shards=corpus", "--data.text="}), "no error");
  EXPECT_THAT(error_of({"--data.text="}), HasSubstr("no data: give data.text"));
  EXPECT_THAT(error_of({"--data.shards=corpus", "--data.text=", "--data.held_out=0.1"}),
              HasSubstr("data.held_out (0.1, --data.held_out) are both given"));
  EXPECT_THAT(error_of({"--data.tokenizer=t", "--data.vocab_size=300"}),
              HasSubstr("data.vocab_size (300, --data.vocab_size) are both given"));
  EXPECT_THAT(error_of({"--model.from=m", "--data.vocab_size=300"}), HasSubstr("model.from"));
}

TEST(TrainConfig, StateInAFileIsRefusedByNameBesideWhatItDoesNotGoWith) {
  const char* file = "--offload.optimizer=file";
  EXPECT_EQ(error_of({file}), "no error");
  EXPECT_EQ(error_of({file, "--offload.params=file", "--offload.piece_mib=1"}), "no error");
  EXPECT_EQ(error_of({file, "--dp.zero=3", "--train.exact=true"}), "no error");
  EXPECT_EQ(
      error_of({"--offload.optimizer=host"}),
      "offload.optimizer (\"host\", --offload.optimizer) needs device.kind cuda or fake_cuda, "
      "and has device.kind (\"cpu\", default): the state of a run on a CPU lies in the host's "
      "memory as it is; set device.kind=cuda, or set offload.optimizer=none");
  EXPECT_THAT(error_of({file, "--offload.params=host"}), HasSubstr("offload.params (\"host\""));
  EXPECT_EQ(error_of({"--offload.params=file"}),
            "offload.params (\"file\", --offload.params) needs offload.optimizer file, and has "
            "offload.optimizer (\"none\", default); set offload.optimizer=file, or set "
            "offload.params=none");
  for (const char* alone : {"--offload.dir=/tmp", "--offload.piece_mib=1"}) {
    EXPECT_THAT(error_of({alone}), HasSubstr("is for offload.optimizer file"));
  }
  for (const char* other :
       {"--parallel.layout=auto", "--parallel.tp=2", "--parallel.pp=2", "--parallel.cp=2",
        "--launch.replicate=true", "--checkpoint.async=true"}) {
    const std::string key = std::string(other).substr(2, std::string(other).find('=') - 2);
    EXPECT_THAT(error_of({file, other}),
                HasSubstr("offload.optimizer (\"file\", --offload.optimizer) does not go together "
                          "with " +
                          key));
  }
  EXPECT_THAT(error_of({file, "--model.from=m", "--lora.rank=8"}), HasSubstr("lora.rank"));
  EXPECT_THAT(error_of({file, "--island.coordinator=127.0.0.1:1", "--island.name=a"}),
              HasSubstr("island.coordinator"));
  EXPECT_THAT(error_of({file, "--offload.params=file", "--train.exact=true"}),
              HasSubstr("set train.exact=false"));
}

TEST(TrainConfig, WhatIslandsDoIsCheckedBeforeOneBegins) {
  for (const char* codec : {"int7", "topk:9999/16", "topk:", "f32:1", "sign_prune:101", ""}) {
    const std::string word = fmt::format("--outer.codec={}", codec);
    EXPECT_THAT(error_of({word.c_str()}),
                HasSubstr(fmt::format("outer.codec (\"{}\", --outer.codec): ", codec)));
  }
  for (const char* codec : {"f32", "int8", "topk", "topk:64/4096", "sign_prune:75"}) {
    const std::string word = fmt::format("--outer.codec={}", codec);
    EXPECT_EQ(error_of({word.c_str()}), "no error");
  }
  EXPECT_THAT(error_of({"--outer.algorithm=eager", "--outer.optimizer=adam"}),
              HasSubstr("outer.algorithm (\"eager\", --outer.algorithm)"));
  EXPECT_THAT(error_of({"--outer.algorithm=streaming", "--outer.merge=1"}),
              HasSubstr("outer.merge (1, --outer.merge)"));
  for (const char* key : {"island.coordinator", "island.listen", "island.advertise"}) {
    const std::string bad = fmt::format("--{}=nowhere", key);
    const char* coordinator = "--island.coordinator=127.0.0.1:4711";
    const auto error = std::string_view(key) == "island.coordinator"
                           ? error_of({bad.c_str(), "--island.name=a"})
                           : error_of({bad.c_str(), coordinator, "--island.name=a"});
    EXPECT_THAT(error, HasSubstr(fmt::format("{} is \"nowhere\"; it must be HOST:PORT", key)));
  }
}

TEST(TrainConfig, AnOptionBelongsToTheOptimizersThatReadIt) {
  EXPECT_EQ(error_of({"--optim.momentum=0.5"}),
            "optim.momentum (0.5, --optim.momentum) is for optim.kind muon or sgd, not for "
            "optim.kind (\"adamw\", default); remove optim.momentum, or set optim.kind=muon");
  EXPECT_THAT(
      error_of({"--optim.kind=lion", "--optim.eps=1e-6"}),
      HasSubstr("is for optim.kind adamw or muon, not for optim.kind (\"lion\", --optim.kind)"));
  EXPECT_THAT(error_of({"--optim.kind=sgd", "--optim.beta2=0.9"}),
              HasSubstr("is for optim.kind adamw, muon or lion"));
  EXPECT_EQ(error_of({"--optim.kind=sgd", "--optim.momentum=0"}),
            "optim.momentum (0, --optim.momentum) has no Nesterov momentum; set "
            "optim.nesterov=false");
  EXPECT_EQ(error_of({"--optim.kind=muon", "--optim.muon_adamw_lr=1e-3"}), "no error");
}

TEST(TrainConfig, EvaluationsNeedTextThatIsHeldOut) {
  EXPECT_EQ(error_of({"--eval.every=5", "--data.held_out=0"}),
            "eval.every (5, --eval.every) and data.held_out (0, --data.held_out): no text is held "
            "out to evaluate on; hold some out, or set eval.every=0");
  EXPECT_EQ(error_of({"--data.held_out=0"}), "no error");
}

TEST(TrainConfig, TheModelComesFromOneSource) {
  EXPECT_EQ(
      error_of({"--model.from=dir", "--model.hidden_size=64"}),
      "model.from (\"dir\", --model.from) and model.hidden_size (64, --model.hidden_size) are "
      "both given, and its config.json says what the model is; remove model.hidden_size, or remove "
      "model.from");
  EXPECT_THAT(error_of({"--model.config=c.json", "--model.tie_word_embeddings=true"}),
              HasSubstr("model.tie_word_embeddings (true, --model.tie_word_embeddings)"));
  EXPECT_THAT(error_of({"--model.config=c.json", "--model.from=dir"}),
              HasSubstr("each says what the model is; remove model.from, or remove model.config"));
  EXPECT_EQ(error_of({"--model.from=dir"}), "no error");
}

TEST(TrainConfig, MicroBatchesFillABatch) {
  EXPECT_EQ(error_of({"--train.batch_size=12"}),
            "train.batch_size (12, --train.batch_size) must be a multiple of train.micro_batch (8, "
            "default); e.g. --train.micro_batch=6");
  EXPECT_THAT(error_of({"--train.batch_size=4"}), HasSubstr("--train.micro_batch=4"));
}

TEST(TrainConfig, TheScheduleFitsIntoTheRun) {
  EXPECT_EQ(error_of({"--train.steps=40", "--optim.warmup_steps=40"}),
            "optim.warmup_steps (40, --optim.warmup_steps) must be less than train.steps (40, "
            "--train.steps); e.g. --optim.warmup_steps=4");
  EXPECT_THAT(error_of({"--optim.schedule=wsd", "--optim.warmup_steps=900"}),
              HasSubstr("the 200 steps that optim.decay_fraction (0.2, default) decays"));
  EXPECT_EQ(error_of({"--optim.schedule=wsd", "--optim.warmup_steps=800"}), "no error");
}

TEST(TrainConfig, HeadsDivide) {
  EXPECT_EQ(error_of({"--model.hidden_size=250"}),
            "model.hidden_size (250, --model.hidden_size) must be a multiple of "
            "model.num_attention_heads (8, default); use 256, or set model.head_dim");
  EXPECT_EQ(error_of({"--model.hidden_size=250", "--model.head_dim=32"}), "no error");
  EXPECT_THAT(error_of({"--model.num_key_value_heads=3"}), HasSubstr("must be a multiple of"));
  EXPECT_THAT(error_of({"--model.hidden_size=24"}), HasSubstr("cannot be rotated"));
  EXPECT_THAT(error_of({"--model.max_position_embeddings=128"}), HasSubstr("is more than"));
}

// The number that a message advises.
std::string advised(const std::string& message) {
  const std::size_t use = message.find("; use ");
  if (use == message.npos) return "";
  std::size_t at = message.find_first_of("0123456789", use);
  std::string digits;
  for (; at < message.size() && std::isdigit(message[at]) != 0; ++at) digits += message[at];
  return digits;
}

TEST(TrainConfig, AnAdvisedWidthPassesEveryCheck) {
  for (const char* family : {"llama", "gpt2", "qwen3"}) {
    for (const int heads : {1, 2, 3, 4, 7, 8}) {
      for (const int width : {1, 2, 24, 97, 98, 100, 250}) {
        const std::string of_family = std::string("--model.family=") + family;
        const std::string with_heads = fmt::format("--model.num_attention_heads={}", heads);
        const auto error = [&](const std::string& size) {
          const std::string with_size = "--model.hidden_size=" + size;
          return error_of({of_family.c_str(), with_heads.c_str(), with_size.c_str()});
        };
        const std::string message = error(std::to_string(width));
        if (message == "no error") continue;
        ASSERT_NE(advised(message), "") << message;
        EXPECT_EQ(error(advised(message)), "no error") << message;
      }
    }
  }
  EXPECT_THAT(error_of({"--model.num_attention_heads=4", "--model.hidden_size=97"}),
              HasSubstr("use 96, or set model.head_dim"));
  EXPECT_EQ(
      error_of({"--model.head_dim=7"}),
      "model.head_dim (7, --model.head_dim) cannot be rotated in pairs; make it even, e.g. 8");
}

TEST(TrainConfig, Gpt2RefusesWhatItDoesNotHave) {
  const char* gpt2 = "--model.family=gpt2";
  EXPECT_EQ(error_of({gpt2}), "no error");
  EXPECT_THAT(error_of({gpt2, "--model.num_key_value_heads=4"}), HasSubstr("as many key-value"));
  EXPECT_THAT(error_of({gpt2, "--model.head_dim=64"}), HasSubstr("evenly"));
  EXPECT_THAT(error_of({gpt2, "--model.rope_theta=5000"}), HasSubstr("no rotary positions"));
}

TEST(TrainConfig, PythiaRefusesWhatItDoesNotHave) {
  const char* pythia = "--model.family=gpt_neox";
  EXPECT_EQ(error_of({pythia, "--model.rope_theta=5000"}), "no error");
  EXPECT_THAT(error_of({pythia, "--model.num_key_value_heads=4"}), HasSubstr("as many key-value"));
  EXPECT_THAT(error_of({pythia, "--model.head_dim=64"}), HasSubstr("evenly"));
  EXPECT_THAT(error_of({pythia, "--model.num_attention_heads=4", "--model.hidden_size=36"}),
              HasSubstr("cannot be rotated in pairs"));
}

TEST(TrainConfig, ZerosOfAnInlineModelAreResolved) {
  Fixture f({"--model.hidden_size=256"});
  const nn::ModelConfig llama = inline_model(f.config, 2048, 0);
  EXPECT_EQ(llama.family, "llama");
  EXPECT_EQ(llama.vocab_size, 2048);
  EXPECT_EQ(llama.heads.num_kv_heads, 8);
  EXPECT_EQ(llama.heads.head_dim, 32);
  EXPECT_EQ(llama.intermediate_size, 704);  // 682.7 rounded up
  EXPECT_EQ(llama.max_positions, 256);
  EXPECT_EQ(llama.eos_token, 0);
  EXPECT_TRUE(llama.tie_embeddings);

  Fixture g({"--model.family=gpt2"});
  const nn::ModelConfig gpt2 = inline_model(g.config, 300);
  EXPECT_EQ(gpt2.intermediate_size, 1024);
  EXPECT_EQ(gpt2.activation, "gelu_new");
  EXPECT_EQ(gpt2.eos_token, -1);

  Fixture h({"--model.family=gpt_neox", "--model.hidden_size=256"});
  const nn::ModelConfig pythia = inline_model(h.config, 300);
  EXPECT_EQ(pythia.family, "gpt_neox");
  EXPECT_EQ(pythia.rotary_dim, 8) << "a quarter of a head of 32";
  EXPECT_TRUE(pythia.attention_bias);
  EXPECT_EQ(pythia.intermediate_size, 1024);
}

TEST(TrainConfig, AnInlineMistralHasTheWindowItIsGiven) {
  Fixture f({"--model.family=mistral", "--model.sliding_window=8"});
  EXPECT_EQ(inline_model(f.config, 300).sliding_window, 8);
  Fixture g({"--model.family=mistral"});
  EXPECT_EQ(inline_model(g.config, 300).sliding_window, 0);
}

TEST(TrainConfig, AnUnknownKeyIsAnsweredWithTheNearest) {
  Fixture f;
  try {
    f.settings.override("--train.lr=3e-4");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown key --train.lr; did you mean --optim.lr?");
  }
}

TEST(TrainConfig, NamesOfOtherProgramsMeanKeysAndNoneOfThemIsOne) {
  const Fixture f;
  const std::pair<const char*, const char*> names[] = {{"learning-rate", "optim.lr"},
                                                       {"max_steps", "train.steps"},
                                                       {"n_layer", "model.num_hidden_layers"},
                                                       {"grad_clip", "optim.clip"},
                                                       {"wandb_project", "log.tensorboard"}};
  for (const auto& [name, key] : names) EXPECT_EQ(f.settings.nearest(name), key) << name;
}

TEST(TrainConfig, KeysOfOtherProgramsAreAnsweredWithWhatTheyMean) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"--train.num_train_epochs=3", "; did you mean --train.epochs"},
      {"--train.bf16=true", "; did you mean --train.dtype=bf16?"},
      {"--train.bf16", "; did you mean --train.dtype=bf16?"},
      {"--lora.r=8", "; did you mean --lora.rank?"},
      {"--device.kind=gpu", "; did you mean cuda?"},
      {"--device.kind=mps", "; did you mean cpu?"},
      {"--train.dtype=bfloat16", "; did you mean bf16?"},
      {"--train.compile=true", "; atoll compiles nothing"},
      {"--model.load_in_4bit=true", "; training keeps all weights as f32 or bf16"},
      {"--optim.kind=adamw_torch", "; did you mean adamw?"},
      {"--optim.schedule=constant_with_warmup", "; did you mean constant?"},
      {"--train.recompute=true", "; did you mean full?"},
  };
  for (const auto& [argument, advice] : mistakes) {
    Fixture f;
    try {
      f.settings.override(argument);
      ADD_FAILURE() << argument;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(advice)) << argument;
    }
  }
}

}  // namespace
}  // namespace atl::train
