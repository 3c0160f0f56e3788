#include "tidy/code.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace atl::tidy {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

// Copies text to spaces from one place to another, keeping line ends.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text), out_(text) {}

  std::string run() {
    while (at_ < text_.size()) step();
    return std::move(out_);
  }

 private:
  void step() {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("//")) {
      blank_to(text_.find('\n', at_));
    } else if (rest.starts_with("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      blank_to(end == std::string_view::npos ? end : end + 2);
    } else if (rest.starts_with("R\"") && (at_ == 0 || !is_word(text_[at_ - 1]))) {
      blank_raw_string();
    } else if (rest[0] == '"') {
      blank_literal('"');
    } else if (rest[0] == '\'' && (at_ == 0 || !is_word(text_[at_ - 1]))) {
      blank_literal('\'');  // not the separator in 1'000
    } else {
      ++at_;
    }
  }

  void blank_raw_string() {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return blank_to(open);
    const std::string close = ")" + std::string(text_.substr(at_ + 2, open - at_ - 2)) + "\"";
    const std::size_t end = text_.find(close, open);
    blank_to(end == std::string_view::npos ? end : end + close.size());
  }

  void blank_literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') {
      end += text_[end] == '\\' ? 2 : 1;
    }
    ++at_;  // the quotes stay
    blank_to(std::min(end, text_.size()));
    if (at_ < text_.size()) ++at_;
  }

  void blank_to(std::size_t end) {
    end = std::min(end, text_.size());
    for (; at_ < end; ++at_) {
      if (out_[at_] != '\n') out_[at_] = ' ';
    }
  }

  std::string_view text_;
  std::string out_;
  std::size_t at_ = 0;
};

std::string without_preprocessor(std::string_view code) {
  std::string out(code);
  bool in_directive = false;
  for (std::size_t begin = 0; begin < out.size();) {
    const std::size_t end = std::min(out.find('\n', begin), out.size());
    const std::size_t first = out.find_first_not_of(" \t", begin);
    if (first != std::string::npos && first < end && out[first] == '#') in_directive = true;
    const bool goes_on = end > begin && out[end - 1] == '\\';
    if (in_directive) std::fill(out.begin() + begin, out.begin() + end, ' ');
    in_directive = in_directive && goes_on;
    begin = end + 1;
  }
  return out;
}

enum class Scope { kNamespace, kInternalNamespace, kType, kBody };

std::string without_template(std::string head) {
  while (head.starts_with("template")) {
    const std::size_t open = head.find('<');
    if (open == std::string::npos) return head;
    std::size_t at = open;
    for (int depth = 0; at < head.size(); ++at) {
      if (head[at] == '<') ++depth;
      if (head[at] == '>' && --depth == 0) break;
    }
    head.erase(0, std::min(at + 1, head.size()));
    head.erase(0, head.find_first_not_of(' '));
  }
  return head;
}

bool has_call_parenthesis(const std::string& head) {
  const std::size_t open = head.find('(');
  if (open == std::string::npos) return false;
  const std::size_t equals = head.find('=');  // x = f(): a variable; operator==() is a function
  return equals == std::string::npos || open < equals || head.find("operator") < equals;
}

Declaration::Kind kind_of(const std::string& head) {
  static const std::regex type("^(\\[\\[.*?\\]\\] *)?(class|struct|union|enum)\\b.*");
  const std::string plain = without_template(head);
  if (std::regex_match(plain, type)) {
    const bool returns_type = has_call_parenthesis(plain) && plain.find(" final") == plain.npos &&
                              plain.find("alignas") == plain.npos;
    return returns_type ? Declaration::Kind::kFunction : Declaration::Kind::kType;
  }
  if (plain.starts_with("using ") || plain.starts_with("typedef "))
    return Declaration::Kind::kOther;
  return has_call_parenthesis(plain) ? Declaration::Kind::kFunction : Declaration::Kind::kOther;
}

Scope scope_of(const std::string& head, Declaration::Kind kind, Scope outer) {
  static const std::regex name_space("^(inline )?namespace\\b *([A-Za-z0-9_:]*).*");
  std::smatch match;
  if (std::regex_match(head, match, name_space)) {
    const std::string name = match[2];
    const bool internal = outer == Scope::kInternalNamespace || name.empty() ||
                          name.ends_with("internal") || name.ends_with("detail");
    return internal ? Scope::kInternalNamespace : Scope::kNamespace;
  }
  if (head.starts_with("extern \"")) return outer;
  return kind == Declaration::Kind::kType ? Scope::kType : Scope::kBody;
}

// Walks braces and semicolons; `head` is what was read since the last of them.
class Walker {
 public:
  explicit Walker(std::string_view code) : code_(without_preprocessor(code)) {}

  std::vector<Declaration> run() {
    for (; at_ < code_.size(); ++at_) {
      const char c = code_[at_];
      if (c == '(') ++parentheses_;
      if (c == ')') --parentheses_;
      if (in_body()) {
        body(c);
      } else {
        declaration(c);
      }
      if (c == '\n') ++line_;
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.first_line < b.first_line; });
    return std::move(found_);
  }

 private:
  struct Open {
    Scope scope;
    Declaration declaration;
  };

  Scope scope() const { return open_.empty() ? Scope::kNamespace : open_.back().scope; }
  bool in_body() const { return scope() == Scope::kBody; }

  // Inside a body only the braces count.
  void body(char c) {
    if (c == '{') open_.push_back({Scope::kBody, {}});
    if (c == '}') close();
  }

  void declaration(char c) {
    const bool argument = parentheses_ > 0;  // a default argument such as `= {}` is no body
    if (c == '{' && !argument) {
      open();
    } else if (c == '}' && !argument) {
      close();
    } else if (c == ';' && !argument) {
      Declaration done = take();
      if (!done.head.empty()) found_.push_back(std::move(done));
    } else {
      add(c);
    }
  }

  void add(char c) {
    if (c == ':' && (head_ == "public" || head_ == "private" || head_ == "protected")) {
      head_.clear();
      return;
    }
    if (is_space(c)) {
      if (!head_.empty() && head_.back() != ' ') head_ += ' ';
      return;
    }
    if (head_.empty()) first_line_ = line_;
    head_ += c;
  }

  Declaration take() {
    while (!head_.empty() && head_.back() == ' ') head_.pop_back();
    Declaration declaration;
    declaration.head = head_;
    declaration.kind = kind_of(head_);
    declaration.first_line = first_line_;
    declaration.last_line = line_;
    declaration.member = scope() == Scope::kType;
    declaration.internal = std::any_of(open_.begin(), open_.end(), [](const Open& o) {
      return o.scope == Scope::kInternalNamespace;
    });
    head_.clear();
    parentheses_ = 0;
    return declaration;
  }

  void open() {
    Declaration declaration = take();
    declaration.has_body = true;
    const Scope inner = scope_of(declaration.head, declaration.kind, scope());
    open_.push_back({inner, std::move(declaration)});
  }

  void close() {
    head_.clear();              // the last enumerator
    if (open_.empty()) return;  // unbalanced: the compiler says so better
    Open closed = std::move(open_.back());
    open_.pop_back();
    if (closed.declaration.head.empty() || in_body()) return;
    const std::size_t next = code_.find_first_not_of(" \n\t", at_ + 1);
    const char follower = next == std::string::npos ? ' ' : code_[next];
    if (closed.scope == Scope::kBody && (follower == ',' || follower == '{')) {
      head_ = closed.declaration.head + "{}";  // a_{1} in an initialiser list: the body comes yet
      first_line_ = closed.declaration.first_line;
      return;
    }
    if (closed.scope == Scope::kNamespace || closed.scope == Scope::kInternalNamespace) return;
    closed.declaration.last_line = line_;
    found_.push_back(std::move(closed.declaration));
  }

  std::string code_;
  std::size_t at_ = 0;
  int line_ = 1;
  int first_line_ = 1;
  int parentheses_ = 0;
  std::string head_;
  std::vector<Open> open_;
  std::vector<Declaration> found_;
};

}  // namespace

std::string blank_comments_and_literals(std::string_view text) {
  return Blanker(text).run();
}

std::vector<Declaration> find_declarations(std::string_view code) {
  return Walker(code).run();
}

}  // namespace atl::tidy
