#include <algorithm>
#include <memory>
#include <utility>

#include "atoll/serve/grammar/automaton.h"
#include "atoll/serve/grammar/lowering.h"
#include "atoll/serve/grammar/schema_compiler.h"

namespace atl::serve::grammar {

namespace {

RegexPart pattern_part(const std::string& pattern, const std::string& pointer) {
  const std::string origin = "JSON schema, " + pointer;
  return resolve_anchors(parse_regex(pattern, origin), true, origin);
}

bool name_matches(const std::string& name, const std::string& pattern, const std::string& pointer) {
  GrammarBuilder builder("JSON schema, " + pointer);
  const Node node = regex_node(pattern_part(pattern, pointer), builder,
                               [&](const CharacterSet& set) { return builder.character(set); });
  Automaton automaton(std::make_shared<const Grammar>(build_grammar(builder, node)));
  StateId state = automaton.start();
  for (const char byte : name) state = automaton.step(state, static_cast<std::uint8_t>(byte));
  return automaton.may_end(state);
}

Json keyword_object(const Json& schema, const char* keyword, const std::string& pointer) {
  if (!schema.contains(keyword)) return Json::object();
  if (!schema[keyword].is_object()) refuse_schema(child_pointer(pointer, keyword), "not an object");
  return schema[keyword];
}

std::vector<std::string> required_names(const Json& schema, const std::string& pointer) {
  std::vector<std::string> names;
  if (!schema.contains("required") || schema["required"].is_boolean()) return names;  // draft 3
  const std::string here = child_pointer(pointer, "required");
  if (!schema["required"].is_array()) refuse_schema(here, "not a list of names");
  constexpr std::size_t kMost = 4000;
  if (schema["required"].size() > kMost) refuse_schema(here, "more than 4000 names");
  for (const Json& name : schema["required"]) {
    if (!name.is_string()) refuse_schema(here, "not a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

// What holds for a property beside what is said of it by name.
Json with_patterns(const std::string& name, const Json& schema, const Json& patterns,
                   const std::string& pointer) {
  Json all = Json::array({schema});
  for (const auto& [pattern, inner] : patterns.items()) {
    const std::string here = child_pointer(child_pointer(pointer, "patternProperties"), pattern);
    if (name_matches(name, pattern, here)) all.push_back(inner);
  }
  return all.size() == 1 ? schema : Json{{"allOf", all}};
}

// Each name is tried with each pattern.
void check_patterns(const Json& patterns, std::size_t num_names, const std::string& pointer) {
  constexpr std::size_t kMost = 200000, kPatternCost = 100;
  std::size_t cost = 0;
  for (const auto& [pattern, inner] : patterns.items()) cost += kPatternCost + pattern.size();
  if (cost * num_names > kMost) {
    refuse_schema(child_pointer(pointer, "patternProperties"), "too many patterns and names");
  }
}

// What is said of properties without a name of their own. No keyword says anything: none are
// generated beside named ones.
Json more_properties(const Json& schema) {
  if (schema.contains("additionalProperties")) return schema["additionalProperties"];
  const bool is_closed =
      schema.contains("properties") ||
      (schema.contains("unevaluatedProperties") && schema["unevaluatedProperties"] == false);
  return !is_closed;
}

}  // namespace

Node SchemaCompiler::object_node(const Json& schema, const std::string& pointer, int depth) {
  Json properties = keyword_object(schema, "properties", pointer);
  const Json patterns = keyword_object(schema, "patternProperties", pointer);
  const std::vector<std::string> required = required_names(schema, pointer);
  check_patterns(patterns, properties.size() + required.size(), pointer);
  for (const std::string& name : required) {
    if (properties.contains(name)) continue;
    const Json unnamed = with_patterns(name, true, patterns, pointer);
    const bool has_pattern = unnamed != true;
    const Json more =
        schema.contains("additionalProperties") ? schema["additionalProperties"] : Json(true);
    properties[name] = has_pattern ? unnamed : more;
  }
  if (properties.empty()) return map_node(schema, more_properties(schema), pointer, depth);

  std::vector<std::pair<Node, bool>> members;
  std::vector<std::string> names;
  for (const auto& [name, inner] : properties.items()) {
    names.push_back(name);
    const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
    const Json whole = with_patterns(name, inner, patterns, pointer);
    if (whole == false && is_required) return builder_.nothing();
    if (whole == false) continue;
    const std::string there = child_pointer(child_pointer(pointer, "properties"), name);
    members.emplace_back(builder_.sequence({values_.exact_string(name), values_.colon(),
                                            node_of(whole, there, depth + 1)}),
                         is_required);
  }
  const auto least = count_keyword(schema, "minProperties", pointer).value_or(0);
  const auto most = count_keyword(schema, "maxProperties", pointer);
  const auto num_members = static_cast<std::int64_t>(members.size());
  if (least > static_cast<std::int64_t>(required.size())) {
    refuse_schema(child_pointer(pointer, "minProperties"), "more than the required ones");
  }
  if (most && *most < num_members) {
    refuse_schema(child_pointer(pointer, "maxProperties"), "fewer than the named ones");
  }
  const Json more = more_properties(schema);
  const std::int64_t num_more = most ? *most - num_members : std::int64_t{kUnbounded};
  // Names of patterns that are not properties' own come only in objects of them alone.
  if (more == false || !patterns.empty() || num_more == 0) {
    return members_node(members, builder_.empty(), builder_.empty());
  }
  const Node member =
      builder_.sequence({values_.string_but(names), values_.colon(),
                         node_of(more, child_pointer(pointer, "additionalProperties"), depth + 1)});
  const Node later = builder_.sequence({values_.comma(), member});
  return members_node(
      members,
      builder_.optional(builder_.sequence(
          {member, builder_.repeat(later, 0, num_more == kUnbounded ? num_more : num_more - 1)})),
      builder_.repeat(later, 0, num_more));
}

// From the last member to the first: what may follow when no member has come yet, and when one has.
Node SchemaCompiler::members_node(const std::vector<std::pair<Node, bool>>& members,
                                  Node more_first, Node more_later) {
  Node first = more_first, later = more_later;
  for (auto at = members.rbegin(); at != members.rend(); ++at) {
    const auto& [member, is_required] = *at;
    Node with_first = builder_.sequence({member, later});
    Node with_later = builder_.sequence({values_.comma(), member, later});
    if (!is_required) {
      with_first = builder_.choice({with_first, first});
      with_later = builder_.choice({with_later, later});
    }
    // Rules of their own: both are used twice.
    first = builder_.declare("members");
    builder_.define(first, with_first);
    later = builder_.declare("members");
    builder_.define(later, with_later);
  }
  return builder_.sequence({builder_.literal("{"), first, builder_.literal("}")});
}

// No property has a name.
Node SchemaCompiler::map_node(const Json& schema, const Json& more, const std::string& pointer,
                              int depth) {
  const Json patterns = keyword_object(schema, "patternProperties", pointer);
  const auto least = count_keyword(schema, "minProperties", pointer).value_or(0);
  const auto most = count_keyword(schema, "maxProperties", pointer).value_or(kUnbounded);
  // A name may come twice, which a reader counts once.
  if (least > 1) refuse_schema(child_pointer(pointer, "minProperties"), "more than 1 of any name");
  if (most != kUnbounded && most < least) return builder_.nothing();
  Node key = values_.string();
  Json value = more;
  std::string there = child_pointer(pointer, "additionalProperties");
  if (!patterns.empty()) {
    there = child_pointer(pointer, "patternProperties");
    if (patterns.size() > 1) refuse_schema(there, "more than one pattern for names of any kind");
    there = child_pointer(there, patterns.items().begin().key());
    key = pattern_node(pattern_part(patterns.items().begin().key(), there));
    value = patterns.front();
  }
  const Node member = builder_.sequence({key, values_.colon(), node_of(value, there, depth + 1)});
  return values_.list("{}", member, least, most);
}

Node SchemaCompiler::array_node(const Json& schema, const std::string& pointer, int depth) {
  const bool is_old = schema.contains("items") && schema["items"].is_array();
  const char* prefix_keyword = is_old ? "items" : "prefixItems";
  const char* rest_keyword = is_old ? "additionalItems" : "items";
  Json prefix = schema.contains(prefix_keyword) ? schema[prefix_keyword] : Json::array();
  if (!prefix.is_array()) refuse_schema(child_pointer(pointer, prefix_keyword), "not a list");
  const bool is_closed = schema.contains("unevaluatedItems") && schema["unevaluatedItems"] == false;
  const Json rest = schema.contains(rest_keyword) ? schema[rest_keyword] : Json(!is_closed);
  const auto least = count_keyword(schema, "minItems", pointer).value_or(0);
  const auto most = count_keyword(schema, "maxItems", pointer).value_or(kUnbounded);
  if (most != kUnbounded && most < least) return builder_.nothing();
  const Node item = node_of(rest, child_pointer(pointer, rest_keyword), depth + 1);
  auto num_prefix = static_cast<std::int64_t>(prefix.size());
  if (most != kUnbounded) num_prefix = std::min(num_prefix, most);
  if (num_prefix == 0) return values_.list("[]", item, least, most);

  Node later = builder_.repeat(builder_.sequence({values_.comma(), item}),
                               std::max<std::int64_t>(least - num_prefix, 0),
                               most == kUnbounded ? most : most - num_prefix);
  for (std::int64_t i = num_prefix - 1; i >= 0; --i) {
    const auto index = static_cast<std::size_t>(i);
    const std::string there =
        child_pointer(child_pointer(pointer, prefix_keyword), std::to_string(i));
    const Node element = node_of(prefix[index], there, depth + 1);
    later = i == 0 ? builder_.sequence({element, later})
                   : builder_.sequence({values_.comma(), element, later});
    if (i >= least) later = builder_.optional(later);
    // A rule of its own: a long list does not nest.
    const Node rule = builder_.declare("items");
    builder_.define(rule, later);
    later = rule;
  }
  return builder_.sequence({builder_.literal("["), later, builder_.literal("]")});
}

}  // namespace atl::serve::grammar
