#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "atoll/base/files/file.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/models/open_generator.h"
#include "atoll/cli/models/served_model.h"
#include "atoll/cli/models/shared_engine.h"
#include "atoll/cli/models/weights.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/api/jobs.h"
#include "atoll/serve/inference_engine.h"
#include "atoll/text/stream_decoder.h"
#include "atoll/train/progress/interrupt.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string model;
  std::string base;
  std::string prompt;
  std::string prompt_file;
  std::int64_t max_tokens = 128;
  std::int64_t num_samples = 1;
  serve::SamplingOptions sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 1};
  bool chat = false;
  std::string system;
  std::string chat_template;
  bool greedy = false;
  bool no_prompt = false;
  bool stats = false;
  std::string jobs;
  std::string out;
  std::int64_t slots = 0;
  WeightsArguments weights;
};

std::string read_input() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  refuse_utf16("standard input", text);
  return std::string(without_byte_order_mark(text));
}

// There is no answer to nothing: without a prompt the message comes from a pipe or a file.
std::string read_message() {
  if (::isatty(STDIN_FILENO) == 1) {
    throw user_error(
        "--chat answers a message: give it with --prompt or --prompt-file, or write it to standard "
        "input");
  }
  std::string text = read_input();
  if (text.ends_with('\n')) text.pop_back();  // as echo writes one behind a message
  if (!text.empty()) return text;
  throw user_error(
      "--chat answers a message, and standard input is empty; give the message with --prompt or "
      "--prompt-file");
}

std::string read_prompt(const Options& options) {
  // As in other programs "-" is standard input; a file of that name is "./-".
  if (options.prompt_file == "-") return read_input();
  if (!options.prompt_file.empty()) return read_text_file(options.prompt_file);
  return options.chat && options.prompt.empty() ? read_message() : options.prompt;
}

std::vector<std::int32_t> prompt_tokens(const std::string& text, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens = tokenizer.encode(text, {.add_special = true});
  if (!tokens.empty()) return tokens;
  // An empty prompt: what follows the end of a document is the beginning of another.
  if (const auto start = tokenizer.end_of_text()) return {*start};
  throw user_error(
      "the prompt is empty and the tokenizer has no token that begins a text; give "
      "--prompt some text");
}

// The prompt as what a user says in a conversation, ready for the answer.
std::vector<std::int32_t> chat_tokens(const Options& options, const std::string& text,
                                      const ChatTemplate& chat, const Tokenizer& tokenizer) {
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system, ""});
  messages.push_back({"user", text, ""});
  return tokenizer.encode(chat.render(messages, {.add_generation_prompt = true}));
}

// Text as it comes. Throws std::system_error when it cannot be written: nobody wants the rest.
void show(const std::string& text) {
  fmt::print("{}", text);
  if (std::fflush(stdout) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
  }
}

// Told once, when `length` tokens were more than the model can see at once.
void tell_of_slide(std::int64_t length, std::int64_t positions) {
  if (length <= positions) return;
  log::info(
      "the text is longer than the model's {}: past them each token is made of the {} tokens "
      "before it",
      counted(positions, "position"), format_count(positions));
}

// A prompt may be longer than that too, but not a conversation, whose beginning is the question.
void check_prompt(const Options& options, std::int64_t length, std::int64_t positions) {
  if (length <= positions) return;
  if (options.chat) {
    throw user_error("the conversation has {} and the model {}; shorten it",
                     counted(length, "token"), counted(positions, "position"));
  }
  log::warning("the prompt has {} and the model {}: it sees the last {} of them",
               counted(length, "token"), counted(positions, "position"), format_count(positions));
}

// Prints one continuation as it comes; returns the number of tokens.
std::int64_t stream(serve::InferenceEngine& engine, const std::vector<std::int32_t>& prompt,
                    const Options& options, serve::TokenSampler& sampler,
                    const Tokenizer& tokenizer, const std::vector<std::int32_t>& stops,
                    const train::InterruptGuard& interrupt) {
  StreamDecoder decoder(tokenizer, {.skip_special = options.chat});
  if (!options.chat) {
    // What follows a prompt does not begin a text: SentencePiece's first space is one there.
    std::string shown;
    for (const std::int32_t token : prompt) {
      if (!tokenizer.is_special(token)) shown += decoder.push(token);
    }
    shown += decoder.settle();
    if (!options.no_prompt) show(shown);
  }
  std::int64_t count = 0;
  engine.reset();
  engine.generate(prompt, options.max_tokens, sampler, -1, [&](std::int32_t token) {
    if (std::binary_search(stops.begin(), stops.end(), token)) return false;
    ++count;
    show(decoder.push(token));
    return interrupt.signal() == 0;
  });
  show(decoder.finish() + "\n");
  return count;
}

// What is to be continued, and with which model.
struct Task {
  model_dir::HeldModel model;
  model_dir::ModelPath path;
  Tokenizer tokenizer;
  nn::ModelConfig config;
  std::vector<std::int32_t> prompt;  // of the leader
  std::vector<std::int32_t> stops;   // tokens that end a text
  std::int64_t max_tokens = 0;       // prompt and new ones, as far as the model sees
};

Task read_task(const Options& options, bool leads) {
  const model_dir::HeldModel model = model_dir::hold_model(options.model, options.base);
  const model_dir::ModelPath& path = model.path;
  Task task = {.model = model,
               .path = path,
               .tokenizer = model_dir::load_tokenizer(path),
               .config = model_dir::read_model_config(path)};
  if (!leads) return task;
  const std::string text = read_prompt(options);
  task.stops = model_dir::stop_tokens(path, task.tokenizer);
  if (options.chat) {
    const ChatTemplate chat =
        model_dir::find_chat_template(options.chat_template, path, task.tokenizer);
    task.prompt = chat_tokens(options, text, chat, task.tokenizer);
    task.stops = model_dir::chat_stop_tokens(task.stops, chat, task.tokenizer);
  } else {
    task.prompt = prompt_tokens(text, task.tokenizer);
  }
  const std::int64_t positions = task.config.max_positions;
  const std::int64_t length = std::ssize(task.prompt);
  check_prompt(options, length, positions);
  task.max_tokens = std::min(length + options.max_tokens, positions);
  return task;
}

// Writes the continuations; returns the exit code.
int write_samples(const Options& options, const Task& task, serve::InferenceEngine& engine) {
  const train::InterruptGuard interrupt;
  const auto start = std::chrono::steady_clock::now();
  const auto prompt_length = std::ssize(task.prompt);
  std::int64_t tokens = 0;
  std::int64_t longest = 0;
  serve::SamplingOptions sampling = options.sampling;
  for (std::int64_t i = 0; i < options.num_samples && interrupt.signal() == 0; ++i) {
    if (i > 0) fmt::print("---\n");
    sampling.seed = options.sampling.seed + static_cast<std::uint64_t>(i);
    serve::TokenSampler sampler(sampling);
    const std::int64_t made =
        stream(engine, task.prompt, options, sampler, task.tokenizer, task.stops, interrupt);
    tokens += made;
    longest = std::max(longest, prompt_length + made - 1);  // the last one is not looked at
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::int64_t positions = task.config.max_positions;
  if (prompt_length <= positions) tell_of_slide(longest, positions);
  if (options.stats) {
    log::info("{} in {:.2f} s, {:.1f} tok/s; each reads {:.2f} MB of weights",
              counted(tokens, "token"), seconds.count(),
              static_cast<double>(tokens) / seconds.count(),
              static_cast<double>(engine.bytes_per_token()) / 1e6);
  }
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

int run_rank(const Options& options, comm::World& world, const train::TrainConfig& config) {
  const bool leads = world.rank() == 0;
  std::optional<Task> task;
  serve::Weights weights = serve::Weights::kF32;
  world.agree([&] {
    weights = take_weights(options.weights, config.device.kind);
    model_layout(config.parallel, world.size());
    task.emplace(read_task(options, leads));
  });
  SharedEngine shared(world, config, task->path, task->config,
                      {.max_tokens = number_of_first(world, task->max_tokens), .weights = weights});
  serve::InferenceEngine& engine = shared.engine();
  if (!leads) return shared.follow();
  engine.limit_vocabulary(task->tokenizer.vocab_size());
  const int code = write_samples(options, *task, engine);
  engine.dismiss();
  return code;
}

// What answers depend on beside their requests.
std::string identity_of(const Options& options, const model_dir::ModelPath& path) {
  const std::string own = options.chat_template.empty() ? "" : read_file(options.chat_template);
  return fmt::format("{}\n{}\n{}", fs::weakly_canonical(path.directory()).string(),
                     path.base().string(), own);
}

// All requests of a file, by one generator.
int run_jobs(const Options& options, const RankArguments& ranks) {
  if (options.out.empty()) {
    throw user_error("--jobs={}: say with --out=FILE where the answers go", options.jobs);
  }
  if (!ranks.device.empty() && ranks.device != "cpu") {
    throw user_error("--jobs runs on a CPU so far; leave out --device={}", ranks.device);
  }
  const model_dir::HeldModel model = model_dir::hold_model(options.model, options.base);
  const std::int64_t slots = options.slots == 0 ? 8 : options.slots;
  const std::int64_t at_once = 2 * slots;
  const auto generator =
      open_generator({.path = model.path,
                      .slots = slots,
                      .weights = take_weights(options.weights),
                      .max_queue = at_once + 1,
                      .max_queue_tokens = std::numeric_limits<std::int64_t>::max() / 2,
                      .threads = ranks.threads});
  const serve::api::ServedModel served = served_model(
      {options.model, "", options.chat_template, options.weights.weights}, model.path, *generator);
  const train::InterruptGuard interrupt;
  const auto start = std::chrono::steady_clock::now();
  const serve::api::JobsDone done =
      serve::api::run_jobs({.requests = options.jobs,
                            .answers = options.out,
                            .identity = identity_of(options, model.path),
                            .seed = options.sampling.seed,
                            .at_once = at_once},
                           served, [&] { return interrupt.signal() != 0; });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const serve::GeneratorStats stats = generator->stats();
  log::info("{}{}{}, {} in {:.2f} s, {:.1f} tok/s", counted(done.answered, "answer"),
            done.failed > 0 ? fmt::format(" and {}", counted(done.failed, "error")) : "",
            done.there > 0 ? fmt::format(" behind {} that were there", done.there) : "",
            counted(stats.new_tokens, "token"), seconds.count(),
            static_cast<double>(stats.new_tokens) / seconds.count());
  if (interrupt.signal() != 0) {
    log::info("stopped; the same command goes on");
    return 128 + interrupt.signal();
  }
  return done.failed > 0 ? 1 : 0;
}

int run(Options options, const RankArguments& ranks, const Invocation& invocation) {
  if (!options.jobs.empty()) return run_jobs(options, ranks);
  if (!options.chat_template.empty() && !options.chat) {
    throw user_error("--chat-template requires --chat or --jobs");
  }
  if (options.greedy) options.sampling.temperature = 0;
  options.sampling.validate();
  return run_on_ranks("generate", ranks, invocation,
                      [&](comm::World& world, const train::TrainConfig& config) {
                        return run_rank(options, world, config);
                      });
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  serve::SamplingOptions& sampling = options->sampling;
  parser.add_option("model", options->model, "run directory, checkpoint, or Hugging Face directory")
      .required();
  parser.add_option("--base", options->base, model_dir::kBaseHelp);
  parser.add_option("--prompt", options->prompt,
                    "text to continue; empty: begin a new one, or with --chat read standard input");
  parser
      .add_option("--prompt-file", options->prompt_file,
                  "file with the text to continue; -: standard input")
      .excludes("--prompt");
  parser
      .add_option("--max-tokens", options->max_tokens,
                  "new tokens at most; past the model's last position each is made of the tokens "
                  "that it can see at once, computed anew")
      .range(1, 1 << 30)
      .show_default();
  parser.add_option("--num-samples", options->num_samples, "continuations to write")
      .range(1, 1 << 30)
      .show_default();
  parser.add_option("--temperature", sampling.temperature, "divides the logits; 0: greedy")
      .show_default();
  parser.add_option("--top-k", sampling.top_k, "only the k most likely tokens; 0: all")
      .show_default();
  parser
      .add_option("--top-p", sampling.top_p, "only the most likely tokens of this much probability")
      .show_default();
  parser.add_option("--seed", sampling.seed, "same seed, same text")
      .range(std::int64_t{0}, std::int64_t{1} << 53)
      .show_default();
  const Argument chat = parser.add_flag(
      "--chat", options->chat, "the prompt is a message; answer it, in the model's chat template");
  parser.add_option("--system", options->system, "chat: the system message").needs(chat);
  parser.add_option("--chat-template", options->chat_template,
                    "chat, jobs: a Jinja file, or the name of one of the model's templates");
  Argument jobs = parser.add_option(
      "--jobs", options->jobs,
      "file of requests, one JSON object a line: the body of a request to `atoll serve`; each says "
      "its own temperature, max_tokens and so on");
  parser
      .add_option("--out", options->out,
                  "jobs: file for the answers, a line for each; what is there already is kept")
      .needs(jobs);
  parser.add_option("--slots", options->slots, "jobs: answers at the same time; 0: 8")
      .range(0, 4096)
      .needs(jobs);
  parser.add_flag("--greedy", options->greedy, "always the most likely token");
  parser.add_flag("--no-prompt", options->no_prompt, "print only what is new");
  parser.add_flag("--stats", options->stats,
                  "say how fast it was, and how many bytes of weights a token reads");
  // Each line of a file says how it is answered.
  for (const char* name :
       {"--prompt", "--prompt-file", "--max-tokens", "--num-samples", "--temperature", "--top-k",
        "--top-p", "--chat", "--system", "--greedy", "--no-prompt", "--stats"}) {
    jobs.excludes(name);
  }
  add_weights(parser, options->weights);
  const auto ranks = std::make_shared<RankArguments>();
  add_rank_arguments(parser, *ranks);
  return
      [options, ranks](const Invocation& invocation) { return run(*options, *ranks, invocation); };
}

}  // namespace

Command generate_command() {
  return {.name = "generate",
          .summary = "Continue a text, streaming to the terminal.",
          .example =
              "  atoll generate runs/kjv-demo --prompt \"And God said\" --max-tokens 100\n"
              "  atoll generate runs/kjv-demo --prompt \"In the beginning\" --greedy",
          .stray = "the text to continue is given with --prompt",
          .settings = shared_model_settings(),
          .add = add,
          .memory_advice =
              "use fewer --max-tokens, a shorter prompt, or several ranks of CPUs (-n 2 "
              "--parallel.tp=2)"};
}

}  // namespace atl::cli
