#include "atoll/hub/name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>

namespace atl::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kScheme = "hf://";
constexpr std::array<std::string_view, 3> kSites = {"https://huggingface.co/", "https://hf.co/",
                                                    "http://huggingface.co/"};

bool is_word_character(unsigned char c) {
  return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
}

bool is_word(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), is_word_character);
}

bool is_control(unsigned char c) {
  return c < 0x20 || c == 0x7f;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Replaces %XX; nothing where an escape is not one.
std::optional<std::string> unescaped(std::string_view text) {
  std::string all;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      all += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    all += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return all;
}

// A revision becomes the name of a file below refs/.
bool is_revision(const std::string& revision) {
  return is_safe_path(revision) && !revision.starts_with('-');
}

// Takes what stands before the first `end` off the front of `rest`.
std::string_view take_until(std::string_view& rest, std::string_view ends) {
  const std::size_t at = std::min(rest.find_first_of(ends), rest.size());
  const std::string_view word = rest.substr(0, at);
  rest.remove_prefix(at);
  return word;
}

// "refs/pr/3" at the front of what stands behind an '@'.
std::string_view take_pull_request(std::string_view& rest) {
  constexpr std::string_view kPullRequest = "refs/pr/";
  if (!rest.starts_with(kPullRequest)) return {};
  std::size_t end = kPullRequest.size();
  while (end < rest.size() && std::isdigit(static_cast<unsigned char>(rest[end])) != 0) ++end;
  const std::string_view revision = rest.substr(0, end);
  rest.remove_prefix(end);
  return revision;
}

// What stands behind the name: @REVISION, /PATH, :VARIANT.
bool parse_rest(std::string_view rest, RepoName& name) {
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    std::string_view word = take_pull_request(rest);
    if (word.empty()) word = take_until(rest, "/:");
    const auto revision = unescaped(word);
    if (!revision || !is_revision(*revision)) return false;
    name.revision = *revision;
  }
  if (rest.starts_with('/')) {
    rest.remove_prefix(1);
    if (rest.ends_with('/')) rest.remove_suffix(1);
    name.path = rest;
    return rest.empty() || is_safe_path(name.path);
  }
  if (rest.starts_with(':')) {
    name.variant = rest.substr(1);
    return name.kind == RepoKind::kModel && is_word(name.variant);
  }
  return rest.empty();
}

// Of an address: /tree/REVISION[/PATH], /blob/... or /resolve/...
bool parse_site_rest(std::string_view rest, RepoName& name) {
  if (rest.empty() || rest == "/") return true;
  rest = rest.substr(0, rest.find_first_of("?#"));
  for (const std::string_view view : {"/tree/", "/blob/", "/resolve/"}) {
    if (!rest.starts_with(view)) continue;
    rest.remove_prefix(view.size());
    const auto revision = unescaped(take_until(rest, "/"));
    if (rest.starts_with('/')) rest.remove_prefix(1);
    const auto path = unescaped(rest);
    if (!revision || !is_revision(*revision) || !path) return false;
    name.revision = *revision;
    name.path = *path;
    return path->empty() || is_safe_path(*path);
  }
  return false;
}

// Takes "datasets/" or "models/" off the front; nothing of a kind that is not read.
bool take_kind(std::string_view& rest, RepoKind& kind) {
  for (const std::string_view other : {"spaces/", "kernels/", "buckets/"}) {
    if (rest.starts_with(other)) return false;
  }
  if (rest.starts_with("datasets/")) {
    kind = RepoKind::kDataset;
    rest.remove_prefix(std::string_view("datasets/").size());
  } else if (rest.starts_with("models/")) {
    kind = RepoKind::kModel;
    rest.remove_prefix(std::string_view("models/").size());
  }
  return true;
}

// The oldest models have no owner; such a word alone is a directory everywhere else.
bool is_old_model(std::string_view text) {
  return text == "gpt2" || text == "distilgpt2" || text == "gpt2-medium" || text == "gpt2-large" ||
         text == "gpt2-xl";
}

// Ends as files do: the file is missing with its directory.
bool is_like_file(std::string_view text) {
  for (const std::string_view ending :
       {".gguf", ".json", ".jinja", ".jsonl", ".model", ".safetensors", ".toml", ".txt"}) {
    if (text.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace

const char* kind_name(RepoKind kind) {
  return kind == RepoKind::kModel ? "model" : "data set";
}

std::string RepoName::text() const {
  std::string all = kind == RepoKind::kDataset ? "hf://datasets/" + id : id;
  if (revision != "main") all += "@" + revision;
  if (!path.empty()) all += "/" + path;
  if (!variant.empty()) all += ":" + variant;
  return all;
}

bool is_repo_id(std::string_view id) {
  constexpr std::size_t kLongest = 96;  // what huggingface_hub allows
  if (id.size() > kLongest || std::count(id.begin(), id.end(), '/') > 1) return false;
  if (id.find("--") != id.npos || id.find("..") != id.npos || id.ends_with(".git")) return false;
  std::string_view rest = id;
  const std::string_view first = take_until(rest, "/");
  const std::string_view second = rest.empty() ? first : rest.substr(1);
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  for (const std::string_view word : {first, second}) {
    if (!is_word(word) || is_edge(word.front()) || is_edge(word.back())) return false;
  }
  return true;
}

bool is_commit(std::string_view revision) {
  constexpr std::size_t kSha1Digits = 40;
  return revision.size() == kSha1Digits &&
         std::all_of(revision.begin(), revision.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_safe_path(std::string_view path) {
  constexpr std::size_t kLongest = 1024;
  if (path.empty() || path.size() > kLongest || path.find('\\') != path.npos) return false;
  if (std::any_of(path.begin(), path.end(), is_control)) return false;
  std::string_view rest = path;
  for (;;) {
    const std::string_view part = take_until(rest, "/");
    if (part.empty() || part == "." || part == "..") return false;
    if (rest.empty()) return true;
    rest.remove_prefix(1);
  }
}

std::optional<RepoName> parse_name(std::string_view text, RepoKind kind) {
  RepoName name{.kind = kind};
  std::string_view rest = text;
  bool is_address = false;
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
    if (!take_kind(rest, name.kind)) return std::nullopt;
  }
  for (const std::string_view site : kSites) {
    if (is_address || !rest.starts_with(site)) continue;
    is_address = true;
    rest.remove_prefix(site.size());
    if (!rest.starts_with("datasets/")) name.kind = RepoKind::kModel;
    if (!take_kind(rest, name.kind)) return std::nullopt;
  }
  name.id = take_until(rest, "/@:?#");
  if (rest.starts_with('/') && !is_old_model(name.id)) {
    rest.remove_prefix(1);
    name.id += "/" + std::string(take_until(rest, "/@:?#"));
  }
  if (!is_repo_id(name.id)) return std::nullopt;
  if (!(is_address ? parse_site_rest(rest, name) : parse_rest(rest, name))) return std::nullopt;
  return name;
}

std::optional<RepoName> name_unless_path(const fs::path& path, RepoKind kind) {
  std::error_code ignored;
  const std::string text = path.string();
  if (text.empty() || fs::exists(path, ignored)) return std::nullopt;
  std::optional<RepoName> name = parse_name(text, kind);
  if (!name || text.find("://") != text.npos) return name;
  // A word alone is a directory that is missing, and so is what would be in one that is there.
  if (name->id.find('/') == name->id.npos) {
    return is_old_model(name->id) && kind == RepoKind::kModel ? name : std::nullopt;
  }
  if (!name->path.empty() || is_like_file(name->id)) return std::nullopt;
  // Where runs go in every recipe: one that is missing is no stranger's model.
  if (path.parent_path() == "runs" || fs::exists(path.parent_path(), ignored)) return std::nullopt;
  return name;
}

}  // namespace atl::hub
