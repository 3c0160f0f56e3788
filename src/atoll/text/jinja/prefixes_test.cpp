// Beginnings of a conversation in one pass against each of them rendered alone.

#include "atoll/text/jinja/prefixes.h"
#include "atoll/base/files/test_paths.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/text/jinja/eval.h"
#include "atoll/text/jinja/parser.h"

namespace atl::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::time_t kNow = 1721995200;

Dict variables_of(std::size_t count, bool prompt, bool has_system) {
  Json messages = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t turn = has_system ? i - 1 : i;
    const char* role = has_system && i == 0 ? "system" : turn % 2 == 0 ? "user" : "assistant";
    messages.push_back({{"role", role}, {"content", fmt::format(" words {} ", i)}});
  }
  const Json all = {{"messages", messages},
                    {"add_generation_prompt", prompt},
                    {"bos_token", "<s>"},
                    {"eos_token", "</s>"}};
  return parse_json(all.dump(), "variables").dict();
}

// Whether all beginnings came of one pass; those that did are compared.
bool at_once(const std::string& source) {
  constexpr std::size_t kMessages = 9;
  const Tree tree = parse(source, "T");
  bool all = true;
  for (const bool has_system : {false, true}) {
    for (const bool prompt : {false, true}) {
      const std::size_t least = has_system ? 2 : 1;
      std::vector<std::size_t> counts(kMessages - least);
      std::iota(counts.begin(), counts.end(), least);
      const auto found =
          render_prefixes(tree, "T", variables_of(kMessages, prompt, has_system), kNow, counts);
      all &= found.has_value();
      if (!found) continue;
      EXPECT_EQ(found->texts.size(), counts.size());
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto variables =
            std::make_shared<const Dict>(variables_of(counts[i], prompt, has_system));
        const std::string alone = render(tree, "T", Value(variables), kNow).text;
        EXPECT_EQ(found->written.substr(0, found->texts[i].shared) + found->texts[i].rest, alone)
            << counts[i] << " messages of " << source;
      }
    }
  }
  return all;
}

std::string after_the_loop(const std::string& tail) {
  return "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}" + tail;
}

TEST(JinjaPrefixes, ALoopOverTheMessagesGivesAllAtOnce) {
  for (
      const char* source : {
          "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
          "{% if add_generation_prompt %}[assistant]{% endif %}",
          "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
          "{% set rest = messages[1:] %}{% else %}{% set system = 'Be.' %}{% set rest = messages %}"
          "{% endif %}<<{{ system }}>>{% for m in rest %}{% if loop.index0 % 2 != (m.role == "
          "'assistant') %}{{ raise_exception('order') }}{% endif %}{{ loop.first }}{{ m.content | "
          "trim }}{{ loop.previtem is defined }}{% endfor %}{{ add_generation_prompt }}",
          "{% set ns = namespace(seen='', turns=0) %}{% for m in messages %}{% set ns.turns = "
          "ns.turns + 1 %}{% set ns.seen = ns.seen + m.role[0] %}{{ m.content }}{% endfor %}"
          "{% set ns.turns = ns.turns * 100 %}{{ ns.turns }}{{ ns.seen }}",
          "{% macro say(m) %}<{{ m.role }}{{ add_generation_prompt }}>{{ m.content }}{% endmacro %}"
          "{{ bos_token }}{% for m in messages %}{{ say(m) }}{% endfor %}{% macro end() %}!"
          "{% endmacro %}{{ end() }}",
          "{% if messages %}{{ strftime_now('%Y') }}{% endif %}{% for m in messages %}"
          "{% if loop.index0 > 0 and messages[loop.index0 - 1].role == 'user' %}+{% endif %}"
          "{% endfor %}{{ messages[0].content }}{% set late = 1 %}{{ late }}",
      }) {
    EXPECT_TRUE(at_once(source)) << source;
  }
}

TEST(JinjaPrefixes, WhatAsksAboutMessagesToComeIsLeftToRenderingsOfTheirOwn) {
  for (const std::string& source : {
           after_the_loop("{{ messages | length }}"),
           after_the_loop("{{ messages[-1].role }}"),
           after_the_loop("{% for m in messages %}{{ m.role }}{% endfor %}"),
           after_the_loop("{{ messages | tojson }}"),
           after_the_loop("{{ messages[1:] | length }}"),
           after_the_loop("{{ messages[2] is defined }}"),
           std::string("{% for m in messages %}{{ m.content }}{% if loop.last %}.{% endif %}"
                       "{% endfor %}"),
           std::string("{% for m in messages %}{{ loop.length }}{% endfor %}"),
           std::string("{% for m in messages %}{{ loop.revindex }}{% endfor %}"),
           std::string("{% for m in messages %}{{ loop.nextitem.role }}{% endfor %}"),
           std::string("{% for m in messages %}{{ messages[loop.index].role }}{% endfor %}"),
           std::string("{% for m in messages[::-1] %}{{ m.role }}{% endfor %}"),
           std::string("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"),
           std::string("{% for m in messages %}{{ m.content }}{% else %}none{% endfor %}"),
           std::string("{% for m in messages %}{% if loop.index == 3 %}{% break %}{% endif %}"
                       "{{ m.content }}{% endfor %}"),
           std::string("{% set n = messages | length %}{% for m in messages %}{{ n }}{% endfor %}"),
           std::string("{% set ns = namespace(kept=none) %}{% for m in messages %}{% set ns.kept = "
                       "loop %}{% endfor %}{{ ns.kept.index }}"),
           std::string("{% set it = range(9) | map('string') %}{% for m in messages %}x{% endfor %}"
                       "{{ it | first }}"),
           std::string("{% with x = 1 %}{% for m in messages %}{{ m.role }}{% endfor %}"
                       "{% endwith %}"),
           std::string("no loop at all {{ messages[0].role }}"),
           after_the_loop("{{ nothing.there }}"),
       }) {
    EXPECT_FALSE(at_once(source)) << source;
  }
}

TEST(JinjaPrefixes, TemplatesOfModelsGiveWhatRenderingEachGives) {
  const auto file = test_source_dir() / "src/atoll/text/testdata/chat_templates.json";
  const Json json = Json::parse(read_file(file));
  int num_at_once = 0;
  for (const auto& [name, source] : json["templates"].items()) {
    SCOPED_TRACE(name);
    try {
      num_at_once += at_once(source.get<std::string>()) ? 1 : 0;
    } catch (const Error&) {
      continue;  // it refuses such conversations
    }
  }
  EXPECT_GE(num_at_once, 2);
}

}  // namespace
}  // namespace atl::text::jinja
