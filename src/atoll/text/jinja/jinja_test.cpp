// Templates against what jinja2 makes of them (tools/golden/chat_oracle.py), and what the engine
// refuses.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/text/jinja/eval.h"
#include "atoll/text/jinja/parser.h"

namespace atl::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kFixture =
    test_source_dir() / "src/atoll/text/testdata" / "chat_templates.json";

struct Case {
  std::string source;
  Value variables;
  Json expected;
};

struct Fixture {
  std::time_t now = 0;
  std::vector<Case> cases;
};

const Fixture& fixture() {
  static const Fixture kLoaded = [] {
    const Json json = Json::parse(read_file(kFixture));
    Fixture made{.now = json["now"].get<std::time_t>(), .cases = {}};
    for (const Json& each : json["cases"]) {
      const Json& source = each["template"];
      const Json& variables = each["variables"];
      made.cases.push_back(
          {.source = source.is_string() ? source : json["templates"][source["name"]],
           .variables = parse_json((variables == "X" ? json["X"] : variables).dump(), "variables"),
           .expected = each});
    }
    return made;
  }();
  return kLoaded;
}

Output render_text(std::string_view source, const Value& variables, const Limits& limits = {}) {
  return render(parse(source, "T"), "T", variables, fixture().now, limits);
}

Value empty() {
  return parse_json("{}", "variables");
}

std::string text_of(std::string_view source) {
  return render_text(source, empty()).text;
}

std::string error_of(std::string_view source, const Limits& limits = {}) {
  try {
    return "no error but: " + render_text(source, empty(), limits).text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
}

TEST(Jinja, MakesOfEveryTemplateWhatJinja2Makes) {
  ASSERT_GE(fixture().cases.size(), 150U);
  for (const Case& each : fixture().cases) {
    SCOPED_TRACE(each.source);
    try {
      const Output output = render_text(each.source, each.variables);
      if (each.expected.contains("error")) {
        ADD_FAILURE() << "no " << each.expected["error"] << " but: " << output.text;
        continue;
      }
      EXPECT_EQ(output.text, each.expected["output"].get<std::string>());
      Json spans = Json::array();
      for (const Piece& piece : output.generated) spans.push_back({piece.begin, piece.end});
      EXPECT_EQ(spans, each.expected.value("spans", Json::array()));
    } catch (const Error& error) {
      if (!each.expected.contains("error")) {
        ADD_FAILURE() << error.what();
        continue;
      }
      const std::string where = each.expected.contains("line")
                                    ? fmt::format("T: line {}: ", each.expected["line"].get<int>())
                                    : "T: line ";
      EXPECT_TRUE(std::string(error.what()).starts_with(where))
          << error.what() << " instead of " << each.expected["error"] << " in " << where;
    }
  }
}

TEST(Jinja, RefusesByNameWhatItDoesNotSupport) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"a\n{% include 'x' %}", "T: line 2: {% include %} is not supported"},
      {"{% do f() %}", "T: line 1: {% do %} is not supported"},
      {"{{ x | wordwrap(9) }}", "the filter \"wordwrap\" is not supported"},
      {"{% if false %}{{ x | nope }}{% endif %}", "the filter \"nope\" does not exist"},
      {"{{ cycler(',') }}", "\"cycler\" is not supported"},
      {"{{ x[1, 2] }}", "a subscript with a comma is not supported"},
      {"{{ 'a'.encode() }}", "\"encode\" of a str is not supported"},
      {"{{ '{:>5}'.format(1) }}", "the field \":>5\" of format is not supported"},
      {"{{ 0x10 }}", "numbers with a base (\"0x1\") are not supported"},
      {"{{ 99999999999999999999 }}", "the number 99999999999999999999 is too large"},
      {"{{ '\\N{DASH}' }}", "escapes by name"},
      {"{{ '\\ud800' }}", "is no character"},
      {"{{ 9223372036854775807 + 1 }}", "is too large (64 bits)"},
      {"{{ range }}", "printing a value of type function is not supported"},
      {"a\xFF", "T: byte 1 is not UTF-8"},
  };
  for (const auto& [source, expected] : refused) {
    EXPECT_NE(error_of(source).find(expected), std::string::npos) << error_of(source);
  }
}

TEST(Jinja, NamesTheConstructAndTheLineOfAMistake) {
  EXPECT_EQ(error_of("a\n{% if x %}\nb"),
            "T: line 3: the template ends where {% endif %} was expected");
  EXPECT_EQ(error_of("\n{{ user.name }}"), "T: line 2: \"user\" is undefined");
  EXPECT_EQ(error_of("{{ raise_exception('roles!') }}"),
            "T: line 1: the template refuses these messages: roles!");
  EXPECT_EQ(error_of("{{ {'a': 1}.b.c }}"), "T: line 1: a dict object has no attribute \"b\"");
}

TEST(Jinja, EndsHostileTemplatesWithAnError) {
  const auto repeated = [](const std::string& piece, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += piece;
    return all;
  };
  const std::string doubling =
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}";
  const std::string nesting =
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}";
  const std::string sharing =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}{{ ns.l }}";
  const std::string chain =
      "{% set ns = namespace() %}{% for i in range(9999) %}{% set ns.x = namespace(p=ns.x) %}"
      "{% endfor %}{{ ns.x }}";
  const std::string loops =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  const Limits small{.steps = 300'000, .output_bytes = 1U << 20, .bytes = 8U << 20};
  const std::vector<std::pair<std::string, std::string>> hostile = {
      {doubling, "a text of more than 1 MB"},
      {nesting, "lists in each other"},
      {sharing, "more than"},
      {chain, "cannot be printed"},
      {loops, "more than"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "a macro that calls itself?"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "a macro that calls itself?"},
      {"{% macro f() %}{{ caller is none }}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
       "calls itself?"},
      {"{{ [1] | batch(99999999, 0) }}", "a batch of 99999999 elements"},
      {"{{ [] | slice(99999999) }}", "99999999 slices"},
      {"{{ 'ab' * 99999999 }}", "too large"},
      {"{{ [1] * 99999999 }}", "too large"},
      {"{{ 'a'.ljust(999999999) }}", "a width of 999999999 characters"},
      {"{{ '%999999999d' % 1 }}", "wider than"},
      {"{% for i in range(99999) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}",
       "an output of more than 1 MB"},
      {"{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}", "nested more than"},
      {"{{ " + repeated("-", 100'000) + "1 }}", "nested more than"},
      {"{{ 1" + repeated(" + 1", 100'000) + " }}", "nested more than"},
      {"{{ x" + repeated(".x", 100'000) + " }}", "nested more than"},
      {"{{ x" + repeated("|e", 100'000) + " }}", "nested more than"},
      {repeated("{% if 1 %}", 100'000), "nested more than"},
      {"{{ 2 ** 9999 }}", "too large"},
      {"{% set ns = namespace() %}{% set ns.s = ns %}{{ ns }}", "contains itself"},
  };
  for (const auto& [source, expected] : hostile) {
    const std::string error = error_of(source, small);
    EXPECT_NE(error.find(expected), std::string::npos)
        << source.substr(0, 200) << ": " << error.substr(0, 300);
  }
}

TEST(Jinja, KeepsNothingAliveThatPointsInACircle) {
  // Run with AddressSanitizer, which finds what is never freed.
  EXPECT_EQ(text_of("{% set ns = namespace() %}{% set ns.me = ns %}"
                    "{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{% set ns.f = f %}"
                    "{% set ns.l = loop %}{% set q = loop.changed(loop) %}{% endfor %}"
                    "{{ ns.f() }}{{ ns.l.index }}{{ ns.l.nextitem is defined }}"),
            "22False");
}

TEST(Jinja, EndsEveryMutationOfATemplateInAResultOrAnError) {
  std::mt19937 random(7);
  const auto pick = [&](std::size_t below) { return random() % below; };
  const std::vector<std::string> splices = {"{%",  "%}",    "{{",   "}}",     "{#", "-%}",  "(",
                                            "[",   "'",     "|",    ".",      "~",  " if ", " is ",
                                            "for", "loop.", "ns.x", "[::-1]", "\\", "\xC3", "\0"};
  const Limits small{.steps = 20'000, .output_bytes = 1U << 16, .bytes = 1U << 22};
  int rendered = 0;
  for (int i = 0; i < 6000; ++i) {
    const Case& from = fixture().cases[pick(fixture().cases.size())];
    std::string source = from.source;
    for (std::size_t edits = 1 + pick(4); edits > 0 && !source.empty(); --edits) {
      const std::size_t at = pick(source.size());
      switch (pick(4)) {
        case 0:
          source.erase(at, 1 + pick(4));
          break;
        case 1:
          source.insert(at, splices[pick(splices.size())]);
          break;
        case 2:
          source.insert(at, source.substr(pick(source.size()), 1 + pick(30)));
          break;
        default:
          source[at] = static_cast<char>(pick(256));
      }
    }
    try {
      render_text(source, from.variables, small);
      ++rendered;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUser) << source << "\n" << error.what();
    }
  }
  EXPECT_GT(rendered, 500);
}

}  // namespace
}  // namespace atl::text::jinja
