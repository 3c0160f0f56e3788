#include <fmt/format.h>

#include <utility>

#include "atoll/serve/grammar/schema_compiler.h"

namespace atl::serve::grammar {

// Each allows fewer texts than its standard where that makes it simple: no leap days, no leap
// seconds, no quoted parts of an address.
std::optional<std::string> format_pattern(std::string_view format) {
  const std::string date =
      "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
      "|02-(0[1-9]|1[0-9]|2[0-8]))";
  const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
      "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,60}[A-Za-z0-9])?";
  const std::string host = label + "(\\." + label + "){0,3}";
  const std::string group = "[0-9A-Fa-f]{1,4}";
  if (format == "date") return date;
  if (format == "time") return time;
  if (format == "date-time") return date + "T" + time;
  if (format == "uuid") {
    return "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
  }
  if (format == "ipv4") return byte + "(\\." + byte + "){3}";
  if (format == "ipv6") return group + "(:" + group + "){7}";
  if (format == "hostname") return host;
  if (format == "email") {
    return "[A-Za-z0-9_+-]{1,60}(\\.[A-Za-z0-9_+-]+)?@" + label + "(\\." + label + "){1,3}";
  }
  if (format == "uri") {
    return "[a-z][a-z0-9+-]{0,14}://" + host +
           "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]*)*(\\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?";
  }
  return std::nullopt;
}

Node SchemaCompiler::pattern_node(RegexPart part) {
  const Node quote = builder_.literal("\"");
  return builder_.sequence(
      {quote,
       regex_node(part, builder_,
                  [&](const CharacterSet& set) { return values_.character_of(set); }),
       quote});
}

Node SchemaCompiler::string_node(const Json& schema, const std::string& pointer) {
  const auto least = count_keyword(schema, "minLength", pointer).value_or(0);
  const auto most = count_keyword(schema, "maxLength", pointer).value_or(kUnbounded);
  if (most != kUnbounded && most < least) return builder_.nothing();
  const bool has_pattern = schema.contains("pattern");
  if (!has_pattern && !schema.contains("format")) return values_.string(least, most);
  const char* keyword = has_pattern ? "pattern" : "format";
  const std::string here = child_pointer(pointer, keyword);
  if (!schema[keyword].is_string()) refuse_schema(here, "not a text");
  std::string pattern = schema[keyword].get<std::string>();
  if (has_pattern && schema.contains("format")) {
    refuse_schema(child_pointer(pointer, "format"), "not supported beside pattern");
  }
  if (!has_pattern) {
    const auto known = format_pattern(pattern);
    if (!known) {
      refuse_schema(here, "'" + pattern.substr(0, 100) +
                              "' is not supported; date, time, date-time, uuid, ipv4, ipv6, "
                              "hostname, email and uri are");
    }
    pattern = *known;
  }
  const std::string origin = "JSON schema, " + here;
  RegexPart part = resolve_anchors(parse_regex(pattern, origin), has_pattern, origin);
  if (!limit_regex(part, least, most)) {
    refuse_schema(child_pointer(pointer, most == kUnbounded ? "minLength" : "maxLength"),
                  fmt::format("not supported beside this {}", keyword));
  }
  return pattern_node(std::move(part));
}

}  // namespace atl::serve::grammar
