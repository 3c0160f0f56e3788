#include "atoll/serve/grammar/tool_call.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/serve/grammar/lowering.h"
#include "atoll/serve/grammar/schema_compiler.h"

namespace atl::serve::grammar {

namespace {

// One call as JSON, as chat templates show it to the model.
Node call_node(GrammarBuilder& builder, const Json& tool, const std::string& arguments) {
  const std::string name = tool.at("name").dump();
  Json schema = Json::object({{"type", "object"}, {"additionalProperties", false}});
  if (tool.contains("parameters")) schema = tool["parameters"];
  try {
    const Node value = SchemaCompiler(builder, SchemaDocument(std::move(schema))).compile();
    return builder.sequence(
        {builder.literal(fmt::format(R"({{"name": {}, "{}": )", name, arguments)), value,
         builder.literal("}")});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUser) throw;
    throw user_error("the parameters of the tool {}: {}", name, error.what());
  }
}

Node tagged(GrammarBuilder& builder, Node call) {
  return builder.sequence(
      {builder.literal("<tool_call>\n"), call, builder.literal("\n</tool_call>")});
}

}  // namespace

Grammar tool_call_grammar(std::string_view request) {
  constexpr int kMaxTextDepth = 128;
  const Json json = parse_ordered_json(request, "tools",
                                       {.max_depth = kMaxTextDepth, .refusal = ErrorKind::kUser});
  const bool is_tagged = json.at("tagged").get<bool>();
  const auto max_calls = json.at("max_calls").get<std::int64_t>();
  ATOLL_CHECK(max_calls == 1 || (max_calls > 1 && is_tagged), "{} calls", max_calls);
  GrammarBuilder builder("tools");
  std::vector<Node> calls;
  for (const Json& tool : json.at("tools")) {
    calls.push_back(call_node(builder, tool, json.at("arguments").get<std::string>()));
  }
  Node one = builder.choice(std::move(calls));
  if (!is_tagged) return build_grammar(builder, one);
  one = tagged(builder, one);
  const Node more = builder.sequence({builder.literal("\n"), one});
  return build_grammar(builder, builder.sequence({one, builder.repeat(more, 0, max_calls - 1)}));
}

}  // namespace atl::serve::grammar
