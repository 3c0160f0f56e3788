#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/files/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/models/eval_task.h"
#include "atoll/cli/models/shared_model.h"
#include "atoll/cli/models/weights.h"
#include "atoll/data/corpus.h"
#include "atoll/data/tokenize.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/model_room.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/rounded_store.h"
#include "atoll/train/checkpoint/text_cut.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/model/connect_ranks.h"
#include "atoll/train/model/options.h"
#include "atoll/train/progress/progress.h"
#include "atoll/train/ranks/sharing.h"
#include "atoll/train/step/evaluate.h"
#include "atoll/train/step/pair_evaluation.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string model;
  std::string base;
  std::vector<std::string> text;
  std::string shards;
  std::vector<std::string> preferences;
  std::string reference;  // empty: log-probabilities are compared as they are
  std::string packing;    // empty: the run's
  std::string chat_template;
  std::vector<std::string> fields;
  WeightsArguments weights;
  std::optional<std::int64_t> context;  // nothing: the run's; 0: all the model's positions
  std::int64_t micro_batch = 8;
  std::int64_t max_tokens = 0;
  TaskArguments task;
};

int report(const train::Evaluation& result, const std::string& name) {
  if (!std::isfinite(result.loss)) {
    throw make_error(
        ErrorKind::kNumeric,
        "{}: the loss is {}; the model's weights are not finite or not of its config.json", name,
        result.loss);
  }
  fmt::print("{}\n", name);
  fmt::print("  {:<14} {:.4f} nats a token\n", "loss", result.loss);
  fmt::print("  {:<14} {:.3f}\n", "perplexity", result.perplexity());
  fmt::print("  {:<14} {}\n", "bits per byte",
             result.bytes > 0 ? fmt::format("{:.4f}", result.bits_per_byte) : "n/a");
  fmt::print("  {:<14} {} in {:.1f} s\n", "tokens", train::format_count(result.tokens),
             result.seconds);
  return 0;
}

// Where the model's own held-out text is: the corpus its run made, or the one that is named.
fs::path corpus_directory(const Options& options) {
  if (!options.shards.empty()) return options.shards;
  fs::path cached = fs::path(options.model) / "data";
  if (data::holds_corpus(cached)) return cached;
  throw user_error(
      "{} has no held-out text of its own; name one with --text FILE, or --shards DIR made by "
      "`atoll "
      "tokenize`",
      options.model);
}

data::Fields fields_of(const Options& options) {
  data::Fields fields;
  for (const std::string& field : options.fields) data::set_field(fields, field, "--field");
  return fields;
}

TaskArguments task_arguments(const Options& options) {
  TaskArguments task = options.task;
  task.model = options.model;
  task.base = options.base;
  task.chat_template = options.chat_template;
  task.context = options.context.value_or(0);
  task.max_tokens = options.max_tokens;
  task.weights = options.weights;
  task.fields = fields_of(options);
  return task;
}

// How to cut the text: as options say, else as the model's run did, else as the model can.
train::TextCut text_cut(const Options& options, const fs::path& model, std::int64_t positions) {
  train::TextCut cut = train::text_cut_of(model).value_or(train::TextCut{.context = positions});
  if (options.context) cut.context = *options.context > 0 ? *options.context : positions;
  if (!options.packing.empty()) cut.packing = data::parse_packing(options.packing, "--packing");
  if (cut.context > positions) {
    throw user_error("--context is {} and the model has {} positions", cut.context, positions);
  }
  return cut;
}

// The settings with which ranks evaluate: those of a run with that model and such windows.
train::TrainConfig as_run(const train::TrainConfig& given, const Options& options,
                          const model_dir::ModelPath& model, const train::TextCut& cut,
                          int num_ranks) {
  train::TrainConfig config = given;
  config.model.from = model.string();
  config.model.base = model.base().string();
  config.model.held_as = "wide";  // what stays stored, --weights says
  config.train.context = cut.context;
  config.train.micro_batch = options.micro_batch;
  config.train.batch_size =
      options.micro_batch * config.parallel.pp * train::data_parallel_ranks(config, num_ranks);
  const std::int64_t step = config.parallel.tp * config.parallel.cp;
  if (cut.context % step == 0) return config;
  throw user_error(
      "windows of {} cannot be shared by parallel.tp = {} and parallel.cp = {}; the nearest length "
      "that can is --context={}",
      counted(cut.context, "token"), config.parallel.tp, config.parallel.cp,
      std::max(step, cut.context / step * step));
}

// The text to predict, and what cuts it.
struct Text {
  model_dir::HeldModel model;
  model_dir::ModelPath path;
  std::optional<Tokenizer> tokenizer;
  train::TextCut cut;
  std::optional<data::Corpus> corpus;  // one of the two
  std::optional<data::TokenVector> tokens;
  const data::TokenSource& source() const {
    if (corpus) return corpus->held_out();
    return *tokens;
  }
};

void open_text(const Options& options, Text& text) {
  const Tokenizer& tokenizer = *text.tokenizer;
  const bool has_pairs = !options.preferences.empty();
  if (!options.text.empty() || has_pairs) {
    const std::vector<std::string>& files = has_pairs ? options.preferences : options.text;
    const data::TokenizeOptions how = {
        .inputs = {files.begin(), files.end()},
        .render_chat = train::chat_renderer(options.chat_template, text.path, tokenizer),
        .fields = fields_of(options),
        .pairs = has_pairs ? data::PairKind::kPreferences : data::PairKind::kNone};
    text.tokens.emplace(data::tokenize_in_memory(how, tokenizer));
    return;
  }
  text.corpus.emplace(corpus_directory(options));
  const std::string& content = tokenizer.file_content();
  if (to_hex(hash_bytes(content.data(), content.size())) !=
      text.corpus->manifest().tokenizer_hash) {
    throw user_error(
        "the shards were made with another tokenizer than the model's; make them again "
        "with `atoll tokenize --tokenizer {}`",
        text.path.string());
  }
}

// A text is computed in f32, with weights that are rounded before.
serve::Weights weights_of_text(const WeightsArguments& weights, const std::string& device) {
  if (weights.weights != "w8a8") return take_weights(weights, device);
  throw user_error(
      "--weights=w8a8 rounds activations, and a text is computed without that; take "
      "--weights=int8, or measure a file of questions with --task");
}

// A model that compares answers: a mean over pairs that a head for pairs makes.
void use_pairs(const Options& options, train::StateOptions& state,
               const std::shared_ptr<nn::PreferenceSource>& facts) {
  if (state.micro_batch % 2 != 0) {
    throw user_error("--micro-batch={} holds half a pair; e.g. --micro-batch={}",
                     options.micro_batch, options.micro_batch + 1);
  }
  state.preference = {.beta = 1};  // rewards in nats
  state.preference_source = facts;
}

int report_pairs(const train::PairEvaluation& found, const std::string& name) {
  const nn::PreferenceSums& sums = found.sums;
  if (!std::isfinite(sums.loss)) {
    throw make_error(ErrorKind::kNumeric, "{}: the log-probabilities are not finite", name);
  }
  const double chosen = sums.chosen_reward / sums.num_chosen;
  const double rejected = sums.rejected_reward / sums.num_rejected;
  fmt::print("{}\n", name);
  fmt::print("  {:<14} {:.1f}% of {}\n", "accuracy", 100 * sums.num_right / sums.num_pairs,
             counted(std::llround(sums.num_pairs), "pair"));
  fmt::print("  {:<14} {:.4f} nats (chosen {:.4f}, rejected {:.4f})\n", "margin", chosen - rejected,
             chosen, rejected);
  fmt::print("  {:<14} {} in {:.1f} s\n", "tokens", train::format_count(found.tokens),
             found.seconds);
  return 0;
}

// The answers of pairs by the model, whose weights are loaded last, and by the reference before.
int compare_answers(const Options& options, comm::World& world, const Text& text, Device& device,
                    train::TrainState& state, Stream& stream, serve::Weights weights,
                    nn::PreferenceSource& facts) {
  std::optional<data::PairSamples> pairs;
  const auto load = [&](const model_dir::ModelPath& model) {
    model_dir::load_parameters(model, state.model(), state.store(), device.threads());
    serve::round_in_place(device, state.store(), weights);
  };
  world.agree([&] {
    pairs.emplace(text.source(), 0, text.cut.context, data::PairSamples::Order::kAsInSource);
    if (!options.reference.empty()) load(model_dir::find_model(options.reference));
  });
  std::vector<double> references;
  if (!options.reference.empty()) {
    references = train::score_answers(state, stream, *pairs);
    world.agree([&] { load(text.path); });
  }
  facts.of = train::facts_of(*pairs, references);
  const train::PairEvaluation found =
      train::evaluate_pairs(state, stream, *pairs, options.max_tokens, {});
  if (world.rank() != 0) return 0;
  return report_pairs(found, fmt::format("{} on {}", text.path.string(), text.source().name()));
}

int evaluate_text(const Options& options, comm::World& world, const train::TrainConfig& given) {
  Text text;
  train::TrainConfig config;
  std::unique_ptr<Device> device;  // outlives what is in its memory
  std::optional<train::TrainState> state;
  train::StateOptions state_options;
  serve::Weights weights = serve::Weights::kF32;
  const auto facts = std::make_shared<nn::PreferenceSource>();
  world.agree([&] {
    weights = weights_of_text(options.weights, given.device.kind);
    text.model = model_dir::hold_model(options.model, options.base);
    text.path = text.model.path;
    text.tokenizer.emplace(model_dir::load_tokenizer(text.path));
    const nn::ModelConfig model = model_dir::read_model_config(text.path);
    text.cut = text_cut(options, text.path, model.max_positions);
    if (text.tokenizer->vocab_size() > model.vocab_size) {
      throw user_error("the tokenizer has {} tokens and the model {}; they do not belong together",
                       text.tokenizer->vocab_size(), model.vocab_size);
    }
    config = as_run(given, options, text.path, text.cut, world.size());
    state_options =
        train::state_options(config, text.tokenizer->vocab_size(), -1, world.size(), world.rank());
    state_options.training = false;
    if (!options.preferences.empty()) use_pairs(options, state_options, facts);
    state_options.keep_stored = keep_of(text.path, weights);
  });
  device = open_model_device(config, world);
  const auto stream = device->open_stream();
  train::Ranks ranks(world, config);
  world.agree([&] {
    const nn::ModelConfig& model = state_options.model;
    model_dir::check_weights(text.path, model, *device,
                             weights == serve::Weights::kStored ? 0.25 : sizeof(float),
                             world.size());
    state.emplace(state_options);
    model_dir::take_memory(text.path, model, [&] { state->allocate(*device); });
    model_dir::load_parameters(text.path, state->model(), state->store(), device->threads());
    serve::round_in_place(*device, state->store(), weights);
    open_text(options, text);
  });
  const train::ModelGroups groups = train::connect_ranks(*state, ranks);
  if (!options.preferences.empty()) {
    return compare_answers(options, world, text, *device, *state, *stream, weights, *facts);
  }
  const train::Evaluation result =
      train::evaluate(*state, *stream, text.source(), *text.tokenizer,
                      {.max_tokens = options.max_tokens, .packing = text.cut.packing});
  if (!ranks.is_lead()) return 0;
  return report(result, fmt::format("{} on {}", text.path.string(), text.source().name()));
}

int run(const Options& options, const RankArguments& ranks, const Invocation& invocation) {
  return run_on_ranks("eval", ranks, invocation,
                      [&](comm::World& world, const train::TrainConfig& config) {
                        if (options.task.file.empty()) return evaluate_text(options, world, config);
                        return evaluate_task(task_arguments(options), world, config);
                      });
}

void add_task(ArgumentParser& parser, TaskArguments& task) {
  Argument file = parser.add_option(
      "--task", task.file, "JSONL file of questions with answers, to choose or to generate");
  for (const char* text_only :
       {"--text", "--preferences", "--shards", "--packing", "--micro-batch"}) {
    file.excludes(text_only);
  }
  parser
      .add_flag("--chat", task.chat,
                "task: each prompt is a message of a user, in the model's "
                "chat template")
      .needs(file);
  parser
      .add_option(
          "--stop", task.stops,
          "task: text that ends an answer, any of several; default: a newline, in chats none")
      .needs(file)
      .one_value_each();
  parser
      .add_option("--extract", task.extract,
                  "task: regular expression whose first group is compared, in output and answer")
      .needs(file);
  parser.add_option("--limit", task.limit, "task: only the first items; 0: all")
      .needs(file)
      .range(std::int64_t{0}, std::int64_t{1} << 53);
  const Argument truncate = parser
                                .add_flag("--truncate-left", task.truncate_left,
                                          "task: drop the start of prompts that are too long")
                                .needs(file);
  parser
      .add_flag("--skip-long", task.skip_long,
                "task: leave out questions that are too long, and count them")
      .needs(file)
      .excludes(truncate);
  parser.add_option("--out", task.out, "task: a new JSONL file, one line an item").needs(file);
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("model", options->model, "run directory, checkpoint, or Hugging Face directory")
      .required();
  parser.add_option("--base", options->base, model_dir::kBaseHelp);
  parser.add_option("--shards", options->shards,
                    "corpus whose held-out split to predict; default: the run's own");
  parser
      .add_option(
          "--text", options->text,
          "text, rows (*.jsonl, *.parquet and others) or token *.bin files, or directories of "
          "them, to predict")
      .excludes("--shards");
  const Argument preferences =
      parser
          .add_option("--preferences", options->preferences,
                      "JSONL files of prompt, chosen and rejected: which answer is likelier")
          .excludes("--shards")
          .excludes("--text");
  parser
      .add_option("--reference", options->reference,
                  "preferences: a model whose log-probabilities are taken off, such as the one "
                  "that training began with")
      .needs(preferences);
  parser
      .add_option("--packing", options->packing,
                  "stream, masked or documents, as data.packing; default: the run's, else stream")
      .one_of({"stream", "masked", "documents"});
  parser.add_option("--chat-template", options->chat_template,
                    "for messages: a Jinja file, or the name of one of the model's templates");
  parser
      .add_option(
          "--field", options->fields,
          "FIELD=KEY, such as prompt=question: what a key of JSONL is called; several times")
      .one_value_each();
  add_weights(parser, options->weights);
  parser
      .add_option("--context", options->context,
                  "positions to use (of a text: tokens in a window); 0: all the model's, as by "
                  "default where no run says")
      .range(0, 1 << 20);
  parser.add_option("--micro-batch", options->micro_batch, "windows in one forward pass")
      .range(1, 1 << 20);
  parser
      .add_option("--max-tokens", options->max_tokens,
                  "text: predict so many, rounded up to whole windows, 0: all; task: tokens of an "
                  "answer, 0: 256")
      .range(std::int64_t{0}, std::int64_t{1} << 53);
  add_task(parser, options->task);
  const auto ranks = std::make_shared<RankArguments>();
  add_rank_arguments(parser, *ranks);
  return
      [options, ranks](const Invocation& invocation) { return run(*options, *ranks, invocation); };
}

}  // namespace

Command eval_command() {
  return {.name = "eval",
          .summary =
              "Measure a model: how well it predicts a text, or answers the questions of a task.",
          .example =
              "  atoll eval runs/kjv-demo\n"
              "  atoll eval runs/kjv-demo --text another.txt\n"
              "  atoll eval model --task questions.jsonl --out results.jsonl",
          .stray = "a text is given with --text, a file of questions with --task",
          .settings = shared_model_settings(),
          .add = add,
          .memory_advice =
              "use a smaller --micro-batch or --context, or several ranks of CPUs (-n 2 "
              "--parallel.tp=2)"};
}

}  // namespace atl::cli
