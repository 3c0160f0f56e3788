#include "atoll/cli/setting_lists.h"

#include <algorithm>
#include <cctype>

#include "atoll/base/error.h"
#include "atoll/train/config/config.h"
#include "atoll/tune/trial/study.h"

namespace atl::cli {

namespace {

struct Usual {
  const char* key;
  const char* meaning;  // shorter than the schema's
};

constexpr Usual kUsual[] = {
    {"run.dir", "where checkpoints and metrics go; the same again goes on"},
    {"model.from", "Hugging Face directory to start from; empty: a new model"},
    {"model.family", "of a new model: llama, gpt2, qwen3, ..."},
    {"model.hidden_size", "its width"},
    {"model.num_hidden_layers", "its blocks"},
    {"data.text", "files or directories to learn from"},
    {"data.tokenizer", "empty: that of model.from, or a new one"},
    {"data.vocab_size", "of a new tokenizer"},
    {"train.steps", "how long: optimizer steps"},
    {"train.batch_size", "sequences a step"},
    {"train.micro_batch", "of these at once: less takes less memory"},
    {"train.context", "tokens in a sequence"},
    {"train.dtype", "f32 or bf16"},
    {"optim.lr", "highest learning rate"},
    {"optim.schedule", "cosine, linear, constant or wsd"},
    {"optim.warmup_steps", "steps of rise to it"},
    {"lora.rank", "adapters alone; 0: all weights"},
    {"eval.every", "steps between evaluations"},
    {"checkpoint.every", "steps between checkpoints"},
    {"device.kind", "cpu, cuda or auto"},
};

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// A paragraph with lines of at most `columns`, each behind four spaces.
std::string wrapped(const std::string& text, std::size_t columns) {
  const std::string indent = "    ";
  std::string out, line = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (line != indent && line.size() + 1 + word.size() > columns) {
      out += line + "\n";
      line = indent;
    }
    if (line != indent) line += ' ';
    line += word;
    begin = end + 1;
  }
  return out + line + "\n";
}

std::string entry(const Setting& setting, std::size_t columns) {
  return fmt::format("{} = {}\n{}", setting.key, to_toml(setting.default_value),
                     wrapped(fmt::format("{}. {}", setting.type_text(), setting.doc), columns));
}

// Settings with all words, in two parts: whose name has them, and the rest.
struct Found {
  std::vector<const Setting*> by_name, by_meaning;
};

void search(const Settings& settings, const std::vector<std::string>& words, Found& found) {
  for (const Setting& setting : settings.all()) {
    const std::string name = lower(setting.key);
    const std::string all =
        lower(setting.key + " " + setting.doc + " " + setting.type_text() + " " + setting.toml());
    const auto has = [&](const std::string& text) {
      return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
        return text.find(word) != std::string::npos;
      });
    };
    const bool is_meant = words.size() == 1 && settings.meant_by(words[0], "").key == setting.key;
    if (has(name) || is_meant) {
      found.by_name.push_back(&setting);
    } else if (has(all)) {
      found.by_meaning.push_back(&setting);
    }
  }
}

std::string list_of_all(const Settings& settings, std::size_t width) {
  std::string text;
  for (const Setting& setting : settings.all()) {
    text += fmt::format("{:<{}}  {}\n", setting.key, width, to_toml(setting.default_value));
  }
  return text;
}

std::size_t key_width(const Settings& settings) {
  std::size_t width = 0;
  for (const Setting& setting : settings.all()) width = std::max(width, setting.key.size());
  return width;
}

}  // namespace

std::vector<std::string> usual_setting_keys() {
  std::vector<std::string> keys;
  for (const Usual& usual : kUsual) keys.emplace_back(usual.key);
  return keys;
}

std::string usual_settings() {
  train::TrainConfig config;
  const Settings settings = train::make_settings(config);
  std::vector<std::string> written;
  std::size_t width = 0;
  for (const Usual& usual : kUsual) {
    written.push_back(
        fmt::format("--{}={}", usual.key, to_toml(settings.find(usual.key).default_value)));
    width = std::max(width, written.back().size());
  }
  std::string text = "Settings, in a recipe or here, with their defaults:\n";
  for (std::size_t i = 0; i < written.size(); ++i) {
    text += fmt::format("  {:<{}}  {}\n", written[i], width, kUsual[i].meaning);
  }
  return text +
         fmt::format("`atoll config WORD` finds the others, of {}.\n", settings.all().size());
}

std::string usual_settings_table() {
  train::TrainConfig config;
  const Settings settings = train::make_settings(config);
  std::string text = "| key | default | meaning |\n|---|---|---|\n";
  for (const Usual& usual : kUsual) {
    text += fmt::format("| `{}` | `{}` | {} |\n", usual.key,
                        to_toml(settings.find(usual.key).default_value), usual.meaning);
  }
  return text;
}

std::string find_settings(const std::vector<std::string>& words, std::size_t columns) {
  train::TrainConfig config;
  tune::StudySettings study;
  const Settings of_recipe = train::make_settings(config);
  const Settings of_study = tune::make_study_settings(study);
  if (words.empty()) {
    const std::size_t width = std::max(key_width(of_recipe), key_width(of_study));
    return list_of_all(of_recipe, width) + "\nOf studies:\n" + list_of_all(of_study, width) +
           "\n`atoll config WORD` says what those with that word mean.\n";
  }
  std::vector<std::string> wanted;
  for (const std::string& word : words) wanted.push_back(lower(word));
  Found found;
  search(of_recipe, wanted, found);
  search(of_study, wanted, found);
  std::string text;
  for (const Setting* setting : found.by_name) text += entry(*setting, columns);
  for (const Setting* setting : found.by_meaning) text += entry(*setting, columns);
  if (!text.empty()) return text;
  const std::string what = fmt::format("{}", fmt::join(words, " "));
  std::string advice = of_recipe.advice_elsewhere(what, "", "");
  const std::string nearest = of_recipe.nearest(what);
  if (advice.empty()) {
    advice =
        nearest.empty() ? "`atoll config` lists all" : fmt::format("did you mean {}?", nearest);
  }
  throw user_error("no setting has {} in its name or meaning; {}", what, advice);
}

}  // namespace atl::cli
