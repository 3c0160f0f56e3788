#pragma once

// How a JSON schema becomes nodes of a grammar; schema.h is the door.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/serve/grammar/builder.h"
#include "atoll/serve/grammar/json_values.h"
#include "atoll/serve/grammar/regex_tree.h"

namespace atl::serve::grammar {

using Json = nlohmann::ordered_json;

/// Ends with Error(kUser): what is wrong with a schema, and where in it.
[[noreturn]] void refuse_schema(std::string_view pointer, std::string_view reason);

/// `pointer` with one more name or index, escaped as RFC 6901 says.
std::string child_pointer(std::string_view pointer, std::string_view name);

/// A whole number of a keyword that is 0 or more, or nothing where the keyword is absent.
std::optional<std::int64_t> count_keyword(const Json& schema, const char* keyword,
                                          std::string_view pointer);

/// True for keywords that say nothing about which instances are valid.
bool is_annotation(std::string_view keyword);

/// The schemas of a document that refer to each other.
class SchemaDocument {
 public:
  explicit SchemaDocument(Json root) : root_(std::move(root)) {}

  const Json& root() const { return root_; }
  /// What a `$ref` refers to. Throws Error(kUser) for one that leads out of the document or
  /// nowhere.
  const Json& target(const Json& reference, std::string_view pointer) const;
  /// A schema without `$ref` and `allOf` that accepts what `schema` does.
  Json flattened(const Json& schema, const std::string& pointer, int depth = 0) const;
  /// A flattened schema that accepts what both do. Throws Error(kUser) where no such schema is
  /// known.
  Json merged(const Json& a, const Json& b, const std::string& pointer, int depth = 0) const;
  /// Whether it is certain that no instance is valid for both.
  bool are_disjoint(const Json& a, const Json& b, const std::string& pointer, int depth = 0) const;

 private:
  bool are_disjoint_one_way(const Json& a, const Json& b, const std::string& pointer,
                            int depth) const;
  /// Counts what merging costs, so that a small schema cannot ask for a lot.
  void charge(std::int64_t work, const std::string& pointer) const;

  Json root_;
  mutable std::int64_t work_ = 0;
};

/// The types that a flattened schema without combinations allows: what `type` says, else those that
/// its keywords are about, else all.
std::vector<std::string> types_of(const Json& schema, std::string_view pointer);

/// Whether a keyword, not an annotation or a combination, restricts the instances of some type.
bool restricts(std::string_view keyword);

/// Whether a value is of one of the types.
bool has_type(const Json& value, const std::vector<std::string>& types);

/// Makes nodes of schemas.
class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, SchemaDocument document)
      : builder_(builder), values_(builder), document_(std::move(document)) {}

  /// The node of the whole document.
  Node compile() { return node_of(document_.root(), "#", 0); }

 private:
  Node node_of(const Json& schema, const std::string& pointer, int depth);
  Node reference_node(const Json& schema, const std::string& pointer, int depth);
  Node flat_node(const Json& schema, const std::string& pointer, int depth);
  Node combined_node(const Json& schema, const char* keyword, const std::string& pointer,
                     int depth);
  Node type_node(const std::string& type, const Json& schema, const std::string& pointer,
                 int depth);
  Node enum_node(const Json& schema, const std::string& pointer);
  Node constant_node(const Json& value);

  Node object_node(const Json& schema, const std::string& pointer, int depth);
  Node members_node(const std::vector<std::pair<Node, bool>>& members, Node more_first,
                    Node more_later);
  Node map_node(const Json& schema, const Json& more, const std::string& pointer, int depth);
  Node array_node(const Json& schema, const std::string& pointer, int depth);
  Node string_node(const Json& schema, const std::string& pointer);
  Node pattern_node(RegexPart part);

  GrammarBuilder& builder_;
  JsonValues values_;
  SchemaDocument document_;
  std::map<std::string, Node> references_;  // the rules of what a $ref without neighbours refers to
};

/// The node of numbers, or of whole ones, within the bounds of a schema.
Node number_node(const Json& schema, const std::string& pointer, bool is_integer,
                 GrammarBuilder& builder, JsonValues& values);

/// The regular expression of a `format`, or nothing for one that is not supported.
std::optional<std::string> format_pattern(std::string_view format);

}  // namespace atl::serve::grammar
