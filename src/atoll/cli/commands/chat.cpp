#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/base/terminal.h"
#include "atoll/cli/chat/chat_session.h"
#include "atoll/cli/chat/line_editor.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/models/open_generator.h"
#include "atoll/cli/models/weights.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/model_source.h"

namespace atl::cli {

namespace {

struct Options {
  std::string model;
  std::string base;
  std::string system;
  std::string chat_template;
  std::string load;
  std::int64_t max_context = 0;
  int threads = 0;
  bool stats = false;
  WeightsArguments weights;
  ChatSession::Settings settings;
};

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends an answer, not the program, while this lives.
class AnswerInterrupt {
 public:
  AnswerInterrupt() {
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = SA_RESTART;  // what is being read goes on
    ::sigaction(SIGINT, &action, &before_);
  }
  ~AnswerInterrupt() { ::sigaction(SIGINT, &before_, nullptr); }
  AnswerInterrupt(const AnswerInterrupt&) = delete;
  AnswerInterrupt& operator=(const AnswerInterrupt&) = delete;

  static void forget() { interrupted = 0; }
  static bool came() { return interrupted != 0; }

 private:
  struct sigaction before_ = {};
};

constexpr const char* kHelp =
    "Say something, and the model answers. A line that ends with \\ goes on in the next one.\n"
    "  /system [TEXT]       set the system message, or remove it\n"
    "  /regenerate          another answer to the last message\n"
    "  /undo                take the last message and its answer back\n"
    "  /clear               begin a new conversation\n"
    "  /set [NAME=VALUE]    temperature, top_p, top_k, min_p, repetition_penalty, seed, "
    "max_tokens\n"
    "  /save FILE, /load FILE   the conversation as JSON, which training reads too\n"
    "  /stats               show tokens and times behind each answer, or no more\n"
    "  /exit                or Ctrl-D; Ctrl-C ends an answer\n";

// Reads commands and messages, and shows what comes.
class Terminal {
 public:
  Terminal(ChatSession& session, bool stats)
      : session_(session), stats_(stats), colors_(wants_color(STDOUT_FILENO)) {}

  void run() {
    // Between two lines, too, where the editor does not see the key.
    std::optional<AnswerInterrupt> interrupt;
    if (LineEditor::is_terminal()) {
      interrupt.emplace();
      fmt::print("/help lists what you can do here.\n");
    }
    for (;;) {
      const LineEditor::Line line = read();
      if (line.end == LineEditor::Line::End::kClosed) return;
      if (line.end == LineEditor::Line::End::kInterrupted || line.text.empty()) continue;
      try {
        if (line.text.starts_with('/') && !line.text.starts_with("//")) {
          if (!obey(line.text)) return;
        } else {
          say(line.text.starts_with("//") ? line.text.substr(1) : line.text);
        }
      } catch (const Error& error) {
        if (!LineEditor::is_terminal()) throw;
        log::error("{}", error.what());
      }
    }
  }

 private:
  LineEditor::Line read() {
    LineEditor::Line whole = editor_.read("> ", colors_);
    while (whole.end == LineEditor::Line::End::kEntered && whole.text.ends_with('\\')) {
      const LineEditor::Line next = editor_.read(". ");
      whole.text.back() = '\n';
      whole.text += next.text;
      if (next.end != LineEditor::Line::End::kClosed) whole.end = next.end;
      if (next.end != LineEditor::Line::End::kEntered) break;
    }
    return whole;
  }

  void answer() {
    AnswerInterrupt::forget();
    const ChatSession::Answer answer = session_.answer(
        [](std::string_view text) {
          fmt::print("{}", text);
          std::fflush(stdout);
        },
        AnswerInterrupt::came);
    fmt::print("\n");
    tell(answer);
  }

  void say(const std::string& text) {
    session_.say(text);
    try {
      answer();
    } catch (const Error&) {
      session_.undo();  // it can be said again, shorter
      throw;
    }
  }

  // Another answer; the one that there is stays where that fails.
  void regenerate() {
    const std::vector<ChatMessage> before = session_.messages();
    if (!session_.take_back_answer()) throw user_error("there is no answer yet");
    try {
      answer();
    } catch (const Error&) {
      session_.restore(before);
      throw;
    }
  }

  void tell(const ChatSession::Answer& answer) const {
    const serve::GenerationResult& result = answer.result;
    if (result.finish == serve::Finish::kLength) log::info("the answer is cut off: no more tokens");
    if (!stats_) return;
    const auto rest = static_cast<double>(result.new_tokens - 1);
    log::info("{}, {:.1f} tok/s; first after {:.2f} s; prompt of {}, {} of them known",
              counted(result.new_tokens, "token"), answer.seconds > 0 ? rest / answer.seconds : 0,
              answer.seconds_to_first, counted(result.prompt_tokens, "token"),
              result.cached_tokens);
  }

  // False: this was the end.
  bool obey(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string verb = line.substr(1, space - 1);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (verb == "exit" || verb == "quit" || verb == "bye") return false;
    if (verb == "help" || verb == "?") {
      fmt::print("{}", kHelp);
    } else if (verb == "system") {
      session_.set_system(rest);
    } else if (verb == "regenerate") {
      regenerate();
    } else if (verb == "undo") {
      if (!session_.undo()) throw user_error("nothing was said yet");
    } else if (verb == "clear") {
      session_.clear();
    } else if (verb == "set") {
      set(rest);
    } else if (verb == "save" || verb == "load") {
      if (rest.empty()) throw user_error("/{} needs the name of a file", verb);
      verb == "save" ? session_.save(rest) : session_.load(rest);
    } else if (verb == "stats") {
      stats_ = !stats_;
    } else {
      throw user_error("/{} is no command; /help lists them. // says a line that begins with /",
                       verb);
    }
    return true;
  }

  void set(const std::string& assignment) {
    ChatSession::Settings settings = session_.settings();
    serve::SamplingOptions& sampling = settings.sampling;
    if (assignment.empty()) {
      fmt::print(
          "temperature={} top_p={} top_k={} min_p={} repetition_penalty={} seed={} max_tokens={}\n",
          sampling.temperature, sampling.top_p, sampling.top_k, settings.min_p,
          settings.repetition_penalty, sampling.seed, settings.max_tokens);
      return;
    }
    const std::size_t equals = assignment.find('=');
    const std::string name = assignment.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : assignment.substr(equals + 1);
    const auto real = [&] { return number<double>(name, value); };
    const auto whole = [&] { return number<std::int64_t>(name, value); };
    if (name == "temperature") {
      sampling.temperature = real();
    } else if (name == "top_p") {
      sampling.top_p = real();
    } else if (name == "top_k") {
      sampling.top_k = whole();
    } else if (name == "min_p") {
      settings.min_p = real();
    } else if (name == "repetition_penalty") {
      settings.repetition_penalty = real();
    } else if (name == "seed") {
      const std::int64_t seed = whole();
      if (seed < 0) throw user_error("seed must be 0 or more, not {}", seed);
      sampling.seed = static_cast<std::uint64_t>(seed);
    } else if (name == "max_tokens") {
      settings.max_tokens = whole();
    } else {
      throw user_error("there is no setting {}; /set alone shows them", name);
    }
    settings.validate();
    session_.settings() = settings;
  }

  template <typename T>
  static T number(const std::string& name, const std::string& value) {
    T result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size()) {
      throw user_error("{} has to be a number, not \"{}\"", name, value);
    }
    return result;
  }

  ChatSession& session_;
  LineEditor editor_;
  bool stats_;
  bool colors_;
};

int run(const Options& options) {
  options.settings.validate();
  const model_dir::HeldModel model = model_dir::hold_model(options.model, options.base);
  Tokenizer tokenizer = model_dir::load_tokenizer(model.path);
  ChatTemplate chat = model_dir::find_chat_template(options.chat_template, model.path, tokenizer);
  const std::vector<std::int32_t> stops =
      model_dir::chat_stop_tokens(model_dir::stop_tokens(model.path, tokenizer), chat, tokenizer);
  const std::unique_ptr<serve::Generator> generator =
      open_generator({.path = model.path,
                      .max_context = options.max_context,
                      .slots = 1,
                      .weights = take_weights(options.weights),
                      .threads = options.threads});
  ChatSession session(*generator, std::move(tokenizer), std::move(chat), stops, options.settings);
  if (!options.load.empty()) session.load(options.load);
  if (!options.system.empty()) session.set_system(options.system);
  Terminal(session, options.stats).run();
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  ChatSession::Settings& settings = options->settings;
  parser.add_option("model", options->model, "run directory, checkpoint, or Hugging Face directory")
      .required();
  parser.add_option("--base", options->base, model_dir::kBaseHelp);
  parser.add_option("--system", options->system, "the system message");
  parser.add_option("--load", options->load,
                    "a conversation that /save has written, to go on with");
  parser.add_option("--chat-template", options->chat_template,
                    "a Jinja file, or the name of one of the model's templates");
  parser.add_option("--max-tokens", settings.max_tokens, "of an answer; 0: as there is room for")
      .range(0, 1 << 30)
      .show_default();
  parser
      .add_option(
          "--context", options->max_context,
          "tokens of the whole conversation; 0: the model's positions, or what memory allows")
      .range(0, 1 << 30)
      .show_default();
  parser.add_option("--temperature", settings.sampling.temperature, "divides the logits; 0: greedy")
      .show_default();
  parser.add_option("--top-k", settings.sampling.top_k, "only the k most likely tokens; 0: all")
      .show_default();
  parser
      .add_option("--top-p", settings.sampling.top_p,
                  "only the most likely tokens of this much probability")
      .show_default();
  parser
      .add_option("--seed", settings.sampling.seed, "same seed, same answers to the same messages")
      .range(std::int64_t{0}, std::int64_t{1} << 53)
      .show_default();
  parser.add_flag("--stats", options->stats, "show tokens and times behind each answer");
  parser.add_option("--threads", options->threads, "CPU threads; 0: all").range(0, 1024);
  add_weights(parser, options->weights);
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command chat_command() {
  return {.name = "chat",
          .summary = "Talk with a model in the terminal.",
          .example =
              "  atoll chat runs/my-chat\n"
              "  atoll chat models/Qwen3-0.6B --system \"Answer in one sentence.\"",
          .stray = "what you have to say is typed, or comes from standard input",
          .add = add,
          .memory_advice = "use --weights=bf16 or int8, or a smaller --context"};
}

}  // namespace atl::cli
