#include "atoll/cli/models/eval_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "atoll/base/files/append_file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/models/open_generator.h"
#include "atoll/cli/models/shared_engine.h"
#include "atoll/cli/models/shared_model.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/batch/task_batch.h"
#include "atoll/serve/task_results.h"
#include "atoll/serve/task_runner.h"
#include "atoll/train/progress/interrupt.h"
#include "atoll/train/progress/progress.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDefaultMaxTokens = 256;
constexpr std::chrono::seconds kProgressInterval{10};
// Requests that run together: products of so many rows and more are as fast as they get.
constexpr std::int64_t kRequestsAtOnce = 16;

// The items, which can be answered as the arguments say.
std::vector<serve::TaskItem> read_items(const TaskArguments& arguments,
                                        const std::optional<serve::AnswerPattern>& pattern) {
  std::vector<serve::TaskItem> items =
      serve::read_task(read_text_file(arguments.file, kMaxLogBytes), arguments.file,
                       arguments.limit, arguments.fields);
  if (pattern) serve::check_answers(items, *pattern, arguments.file);
  const bool generates = std::any_of(items.begin(), items.end(), [](const serve::TaskItem& item) {
    return !item.is_multiple_choice();
  });
  const char* const unused = pattern                     ? "--extract"
                             : !arguments.stops.empty()  ? "--stop"
                             : arguments.max_tokens != 0 ? "--max-tokens"
                                                         : nullptr;
  if (!generates && unused != nullptr) {
    throw user_error("{} is for answers to be generated, and {} has choices only", unused,
                     arguments.file);
  }
  return items;
}

std::vector<serve::EncodedItem> encode(const TaskArguments& arguments,
                                       const model_dir::ModelPath& model,
                                       const Tokenizer& tokenizer,
                                       const std::vector<serve::TaskItem>& items) {
  const bool chats =
      arguments.chat || std::any_of(items.begin(), items.end(), [](const serve::TaskItem& item) {
        return !item.messages.empty();
      });
  std::optional<ChatTemplate> chat;
  if (chats) chat = model_dir::find_chat_template(arguments.chat_template, model, tokenizer);
  if (!chats && !arguments.chat_template.empty()) {
    throw user_error("--chat-template is for messages, and {} has none; add --chat, perhaps",
                     arguments.file);
  }
  serve::TaskEncoder encoder(tokenizer, std::move(chat), arguments.chat, arguments.file);
  std::vector<serve::EncodedItem> encoded;
  for (const serve::TaskItem& item : items) encoded.push_back(encoder.encode(item));
  return encoded;
}

// Makes every item fit into `positions`, or throws; returns what the longest takes. With
// --skip-long those that do not fit are in `skipped`, by place.
std::int64_t fit(const TaskArguments& arguments, std::int64_t max_new_tokens,
                 std::int64_t positions, const std::vector<serve::TaskItem>& items,
                 std::vector<serve::EncodedItem>& encoded, std::set<std::size_t>& skipped) {
  std::int64_t longest = 1;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::int64_t needed = serve::positions_needed(encoded[i], max_new_tokens);
    if (needed > positions && arguments.skip_long) {
      skipped.insert(i);
      continue;
    }
    longest = std::max(longest, std::min(needed, positions));
    if (needed <= positions) continue;
    const bool choices = items[i].is_multiple_choice();
    const std::string length =
        choices ? "prompt and longest choice take"
                : fmt::format("prompt and {} new tokens (--max-tokens) take", max_new_tokens);
    if (!arguments.truncate_left) {
      throw user_error(
          "{} line {}: {} {} positions, and there are {}; shorten it{}, or give --truncate-left, "
          "or "
          "--skip-long to leave such questions out",
          arguments.file, items[i].line, length, needed, positions,
          choices ? "" : ", allow fewer new ones");
    }
    if (!serve::drop_left(encoded[i], needed - positions)) {
      throw user_error("{} line {}: {} {} positions, and without any prompt still more than {}",
                       arguments.file, items[i].line, length, needed, positions);
    }
  }
  return longest;
}

// Shares of right answers.
struct Totals {
  serve::Accuracy acc, acc_norm, exact_match;
  std::int64_t cut = 0;        // answers that --max-tokens ended
  std::int64_t truncated = 0;  // prompts that --truncate-left made shorter
  std::int64_t skipped = 0;    // items that --skip-long left out

  std::int64_t items() const { return acc.count + exact_match.count; }
  std::int64_t seen() const { return items() + skipped; }
};

// Counts an answer; returns its line of the results.
std::string count(const serve::TaskItem& item, const serve::EncodedItem& encoded,
                  const serve::TaskAnswer& answer, Totals& totals) {
  totals.truncated += encoded.dropped > 0 ? 1 : 0;
  if (answer.scores) {
    totals.acc.add(answer.scores->best == item.answer);
    totals.acc_norm.add(answer.scores->best_per_character == item.answer);
    return serve::to_json(item, encoded, *answer.scores);
  }
  totals.exact_match.add(answer.generated->correct);
  totals.cut += answer.generated->end == serve::AnswerEnd::kMaxNewTokens ? 1 : 0;
  return serve::to_json(item, encoded, *answer.generated);
}

void print_share(const char* name, const serve::Accuracy& share) {
  if (share.count == 0) return;
  fmt::print("  {:<14} {:.4f}", name, share.value());
  if (share.count > 1) fmt::print(" ± {:.4f}", share.standard_error());
  fmt::print("  ({} of {})\n", train::format_count(share.correct),
             train::format_count(share.count));
}

void report(const std::string& name, const Totals& totals, std::size_t num_items, double seconds) {
  fmt::print("{}\n", name);
  print_share("acc", totals.acc);
  print_share("acc_norm", totals.acc_norm);
  print_share("exact_match", totals.exact_match);
  if (totals.cut > 0) {
    fmt::print("  {:<14} {} of the answers, by --max-tokens\n", "cut short",
               train::format_count(totals.cut));
  }
  if (totals.truncated > 0) {
    fmt::print("  {:<14} {} of the prompts, by --truncate-left\n", "truncated",
               train::format_count(totals.truncated));
  }
  if (totals.skipped > 0) {
    fmt::print("  {:<14} {} of the items, too long, by --skip-long; no share counts them\n",
               "skipped", train::format_count(totals.skipped));
  }
  fmt::print("  {:<14} {}{} in {:.1f} s\n", "items", train::format_count(totals.items()),
             totals.seen() == static_cast<std::int64_t>(num_items)
                 ? ""
                 : fmt::format(" (interrupted; there are {})", num_items),
             seconds);
}

serve::AnswerOptions answer_options(const TaskArguments& arguments,
                                    const std::optional<serve::AnswerPattern>& pattern) {
  serve::AnswerOptions options;
  options.max_new_tokens = arguments.max_tokens > 0 ? arguments.max_tokens : kDefaultMaxTokens;
  if (!arguments.stops.empty()) options.stops = arguments.stops;
  if (pattern) options.extract = &*pattern;
  options.validate();
  return options;
}

std::int64_t positions_to_use(const TaskArguments& arguments, const nn::ModelConfig& config) {
  if (arguments.context > config.max_positions) {
    throw user_error("--context is {} and the model has {} positions", arguments.context,
                     config.max_positions);
  }
  return arguments.context > 0 ? arguments.context : config.max_positions;
}

// A task that is ready to be answered.
struct Ready {
  std::optional<serve::AnswerPattern> pattern;
  serve::AnswerOptions options;
  std::vector<serve::TaskItem> items;
  model_dir::HeldModel model;
  model_dir::ModelPath path;
  std::optional<Tokenizer> tokenizer;
  nn::ModelConfig config;
  std::vector<serve::EncodedItem> encoded;
  std::set<std::size_t> skipped;
  std::int64_t longest = 0;  // positions that an item takes
};

void prepare(const TaskArguments& arguments, Ready& ready) {
  if (!arguments.out.empty() && path_exists(arguments.out)) {
    throw user_error("--out {} is there already; remove it or name another file", arguments.out);
  }
  if (!arguments.extract.empty()) ready.pattern.emplace(arguments.extract, "--extract");
  ready.options = answer_options(arguments, ready.pattern);
  ready.items = read_items(arguments, ready.pattern);
  ready.model = model_dir::hold_model(arguments.model, arguments.base);
  ready.path = ready.model.path;
  ready.tokenizer.emplace(model_dir::load_tokenizer(ready.path));
  ready.config = model_dir::read_model_config(ready.path);
  ready.encoded = encode(arguments, ready.path, *ready.tokenizer, ready.items);
  const std::int64_t positions = positions_to_use(arguments, ready.config);
  ready.longest = fit(arguments, ready.options.max_new_tokens, positions, ready.items,
                      ready.encoded, ready.skipped);
  if (ready.skipped.size() == ready.items.size()) {
    throw user_error("{}: every question takes more than {} positions; nothing is left to answer",
                     arguments.file, positions);
  }
}

// Answers to a task as they come, in the order of the items.
class Results {
 public:
  Results(const TaskArguments& arguments, const Ready& ready) : ready_(ready) {
    // Made this late, so that no mistake leaves an empty one.
    if (!arguments.out.empty()) file_.emplace(arguments.out);
  }

  void take(std::size_t index, const serve::TaskAnswer& answer) {
    skip_to(index);
    write(count(ready_.items[index], ready_.encoded[index], answer, totals_));
    seen_ = index + 1;
    if (Clock::now() - last_line_ < kProgressInterval) return;
    last_line_ = Clock::now();
    log::info("{} of {}", seen_, counted(std::ssize(ready_.items), "item"));
  }
  // After the last answer. `all`: every item that is not skipped has one.
  void finish(const std::string& name, bool all) {
    if (all) skip_to(ready_.items.size());
    if (file_) file_->sync();
    const std::chrono::duration<double> seconds = Clock::now() - start_;
    report(name, totals_, ready_.items.size(), seconds.count());
  }

 private:
  void write(const std::string& line) {
    if (file_) file_->append(line + "\n");
  }
  // The items from seen_ to `index` are skipped ones.
  void skip_to(std::size_t index) {
    for (; seen_ < index; ++seen_) {
      ++totals_.skipped;
      write(serve::skipped_json(ready_.items[seen_], ready_.encoded[seen_]));
    }
  }

  const Ready& ready_;
  std::optional<AppendFile> file_;
  Totals totals_;
  std::size_t seen_ = 0;
  Clock::time_point start_ = Clock::now(), last_line_ = start_;
};

// Answers the items that are not skipped; false: interrupted.
using AnswerItems = std::function<bool(Results& results)>;

// Has the items answered and prints the shares; returns the exit code.
int report_answers(const TaskArguments& arguments, Ready& ready, const AnswerItems& answer) {
  ready.options.stop_tokens = model_dir::stop_tokens(ready.path, *ready.tokenizer);
  const train::InterruptGuard interrupt("it ends with the questions that are answered");
  ready.options.interrupted = [&] { return interrupt.signal() != 0; };
  Results results(arguments, ready);
  const bool all = answer(results);
  results.finish(fmt::format("{} on {}", ready.path.string(), arguments.file), all);
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

// One after the other: by ranks that share the model, or on a GPU.
int answer_in_turn(const TaskArguments& arguments, Ready& ready, serve::InferenceEngine& engine) {
  engine.limit_vocabulary(ready.tokenizer->vocab_size());
  return report_answers(arguments, ready, [&](Results& results) {
    serve::TaskRunner runner(engine, *ready.tokenizer, ready.options);
    for (std::size_t i = 0; i < ready.items.size(); ++i) {
      if (ready.options.interrupted()) return false;
      if (ready.skipped.contains(i)) continue;
      const auto made = runner.answer(ready.items[i], ready.encoded[i]);
      if (!made) return false;
      results.take(i, *made);
    }
    return true;
  });
}

// Many at once, on the CPUs of this process.
int answer_together(const TaskArguments& arguments, Ready& ready, serve::Weights weights,
                    int threads) {
  const auto generator =
      open_task_generator(ready.path, weights, threads, ready.longest, kRequestsAtOnce);
  return report_answers(arguments, ready, [&](Results& results) {
    std::vector<serve::TaskQuestion> questions;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < ready.items.size(); ++i) {
      if (ready.skipped.contains(i)) continue;
      questions.push_back({&ready.items[i], &ready.encoded[i]});
      places.push_back(i);
    }
    serve::TaskBatch batch(*generator, *ready.tokenizer, ready.options, kRequestsAtOnce);
    return batch.answer(questions, [&](std::size_t index, const serve::TaskAnswer& answer) {
      results.take(places[index], answer);
    });
  });
}

bool takes_cpu(const train::TrainConfig& config, comm::World& world) {
  if (config.device.kind != "auto") return config.device.kind == "cpu";
  return open_model_device(config, world)->kind() == DeviceKind::kCpu;
}

}  // namespace

int evaluate_task(const TaskArguments& arguments, comm::World& world,
                  const train::TrainConfig& config) {
  const bool leads = world.rank() == 0;
  Ready ready;
  serve::Weights weights = serve::Weights::kF32;
  world.agree([&] {
    weights = take_weights(arguments.weights, config.device.kind);
    model_layout(config.parallel, world.size());
    if (leads) return prepare(arguments, ready);
    ready.model = model_dir::hold_model(arguments.model, arguments.base);
    ready.path = ready.model.path;
    ready.config = model_dir::read_model_config(ready.path);
  });
  if (world.size() == 1 && takes_cpu(config, world)) {
    return answer_together(arguments, ready, weights, config.device.threads);
  }
  SharedEngine shared(world, config, ready.path, ready.config,
                      {.max_tokens = number_of_first(world, ready.longest), .weights = weights});
  if (!leads) return shared.follow();
  const int code = answer_in_turn(arguments, ready, shared.engine());
  shared.engine().dismiss();
  return code;
}

}  // namespace atl::cli
