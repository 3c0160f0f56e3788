#include "atoll/data/fields.h"

#include <map>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/nesting.h"
#include "atoll/data/field_map.h"

namespace atl::data {

namespace {

using Json = nlohmann::ordered_json;

std::map<std::string, std::string> role_names(const Fields& fields) {
  std::map<std::string, std::string> names;
  if (fields.roles.empty() && fields.role == "from") {
    names = {{"human", "user"}, {"gpt", "assistant"}};
  }
  for (const std::string& role : fields.roles) {
    const std::size_t sign = role.find('=');
    names[role.substr(0, sign)] = role.substr(sign + 1);
  }
  return names;
}

}  // namespace

void set_field(Fields& fields, std::string_view assignment, const std::string& option) {
  const std::map<std::string_view, std::string*> members = {{"text", &fields.text},
                                                            {"prompt", &fields.prompt},
                                                            {"completion", &fields.completion},
                                                            {"chosen", &fields.chosen},
                                                            {"rejected", &fields.rejected},
                                                            {"label", &fields.label},
                                                            {"messages", &fields.messages},
                                                            {"role", &fields.role},
                                                            {"content", &fields.content},
                                                            {"choices", &fields.choices},
                                                            {"answer", &fields.answer},
                                                            {"answers", &fields.answers}};
  const std::size_t sign = assignment.find('=');
  const std::string_view name = assignment.substr(0, sign);
  const auto member = members.find(name);
  if (sign == std::string_view::npos || (member == members.end() && name != "roles")) {
    std::string all = "roles";
    for (const auto& [known, target] : members) all += fmt::format(", {}", known);
    throw user_error("{}={}: give FIELD=KEY; the fields are {}", option, assignment, all);
  }
  const std::string value(assignment.substr(sign + 1));
  if (name == "roles") {
    fields.roles.push_back(value);
  } else {
    *member->second = value;
  }
  check_fields(fields, option + " ");
}

void check_fields(const Fields& fields, const std::string& prefix) {
  const std::pair<const char*, const std::string*> templates[] = {
      {"text", &fields.text},
      {"prompt", &fields.prompt},
      {"completion", &fields.completion},
      {"chosen", &fields.chosen},
      {"rejected", &fields.rejected},
      {"answer", &fields.answer}};
  for (const auto& [name, spec] : templates) FieldMap({{prefix + name, *spec}});
  const std::pair<const char*, const std::string*> keys[] = {
      {"messages", &fields.messages}, {"label", &fields.label},     {"role", &fields.role},
      {"content", &fields.content},   {"choices", &fields.choices}, {"answers", &fields.answers}};
  for (const auto& [name, key] : keys) {
    if (key->empty()) throw user_error("{}{} is empty; give the key that holds it", prefix, name);
    if (key->find_first_of("{}") == std::string::npos) continue;
    throw user_error("{}{} is \"{}\"; it is one key, not a text made of several", prefix, name,
                     *key);
  }
  for (const std::string& role : fields.roles) {
    const std::size_t sign = role.find('=');
    if (sign != std::string::npos && sign > 0 && sign + 1 < role.size()) continue;
    throw user_error("{}roles has \"{}\"; give what a role is called here and what it is: {}",
                     prefix, role, "human=user");
  }
}

std::string plain_messages(const Fields& fields, std::string_view json, const std::string& origin) {
  constexpr int kMaxNesting = 64;
  if (nesting_depth(json) > kMaxNesting) throw user_error("{}: nested too deeply", origin);
  const Json from = Json::parse(json, nullptr, false);
  if (!from.is_array()) throw user_error("{}: messages must be a list", origin);
  const std::map<std::string, std::string> names = role_names(fields);
  Json messages = Json::array();
  for (const Json& each : from) {
    const auto missing = [&](const std::string& key, const char* what) {
      return user_error("{}: message {} has no text \"{}\", which is to be its {}", origin,
                        messages.size(), key, what);
    };
    if (!each.is_object() || !each.contains(fields.role) || !each[fields.role].is_string()) {
      throw missing(fields.role, "role");
    }
    if (!each.contains(fields.content)) throw missing(fields.content, "content");
    const auto role = each[fields.role].get<std::string>();
    const auto known = names.find(role);
    Json message = {{"role", known == names.end() ? role : known->second},
                    {"content", each[fields.content]}};
    for (const auto& [key, value] : each.items()) {
      if (key != fields.role && key != fields.content && !message.contains(key))
        message[key] = value;
    }
    messages.push_back(std::move(message));
  }
  return messages.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace atl::data
