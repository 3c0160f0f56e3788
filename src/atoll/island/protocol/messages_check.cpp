#include "atoll/island/protocol/messages_check.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/island/protocol/messages.h"
#include "island/protocol/messages.pb.h"

namespace atl::island {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

int max_items(std::string_view field) {
  if (field == "ranges" || field == "consumed" || field == "holds") return kMaxRanges;
  if (field == "hashes" || field == "state_sizes") return kMaxFragments;
  return kMaxIslands;
}

bool is_address(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

// A run's name may be any directory's.
bool has_no_control(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7F; });
}

bool is_secret_text(const std::string& text) {
  return text.size() == kSecretSize && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool is_member_state(const std::string& text) {
  constexpr std::string_view kStates[] = {"joining", "syncing", "active", "suspect", "out"};
  return std::find(std::begin(kStates), std::end(kStates), text) != std::end(kStates);
}

// A fault's text is the name of the field and this.
using Fault = std::string;

// `owner`: the name of the message that the field is in.
Fault text_fault(const std::string& owner, const std::string& field, const std::string& text) {
  if (field == "why") {
    return text.size() <= kMaxReason ? "" : fmt::format(" has {} bytes", text.size());
  }
  const bool is_settings = owner == "Identity" && field == "settings";
  const std::size_t most = is_settings ? kMaxSettings : field == "address" ? kMaxAddress : kMaxText;
  if (text.size() > most) return fmt::format(" has {} bytes", text.size());
  if (field == "name" && !is_island_name(text)) {
    return fmt::format(" is \"{}\": 1 to {} letters, digits, dots, dashes and underscores",
                       text.substr(0, kMaxName), kMaxName);
  }
  // A member that has not joined since the coordinator started has no token.
  const bool may_be_none = owner == "Member" && text.empty();
  if (field.ends_with("_token") && !may_be_none && !is_secret_text(text)) return " is no secret";
  if (field == "state" && !is_member_state(text)) return fmt::format(" is \"{}\"", text);
  if (owner == "Identity" ? !has_no_control(text) : !is_address(text)) {
    return " has characters that do not belong there";
  }
  return "";
}

Fault integer_fault(const std::string& owner, const std::string& field, std::int64_t value) {
  const std::int64_t least = owner == "Join" && field == "outer_step" ? -1
                             : field == "island" && owner != "Source" ? 1
                                                                      : 0;
  const bool fine = value >= least && (field != "tokens" || value <= kMaxTokens) &&
                    (field != "fragment" || value < kMaxFragments) &&
                    (field != "num_fragments" || (value >= 1 && value <= kMaxFragments));
  return fine ? "" : fmt::format(" is {}", value);
}

Fault real_fault(const std::string& field, double value) {
  const bool fine =
      std::isfinite(value) && (value >= 0 || field == "loss") && (value <= 1 || field != "weight");
  return fine ? "" : fmt::format(" is {}", value);
}

// Faults that no single field shows.
Fault whole_fault(const Message& message) {
  if (const auto* range = dynamic_cast<const proto::Range*>(&message)) {
    if (range->begin() > range->end()) {
      return fmt::format(" goes from {} to {}", range->begin(), range->end());
    }
  }
  return "";
}

class Checker {
 public:
  // Empty, or the path of the faulty field and what is wrong with it.
  Fault check(const Message& message) {
    const Reflection& reflection = *message.GetReflection();
    if (!reflection.GetUnknownFields(message).empty()) return " has a field that is not known";
    const auto& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const Fault fault =
          field.is_repeated() ? check_list(message, field) : check_one(message, field);
      if (!fault.empty()) return "." + field.name() + fault;
    }
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      if (!reflection.HasOneof(message, type.oneof_decl(i))) return " has no known body";
    }
    return whole_fault(message);
  }

 private:
  Fault check_list(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, &field);
    if (size > max_items(field.name())) return fmt::format(" has {} items", size);
    for (int i = 0; i < size; ++i) {
      const Fault fault =
          field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
              ? check(reflection.GetRepeatedMessage(message, &field, i))
              : integer_fault("", "island", reflection.GetRepeatedUInt32(message, &field, i));
      if (!fault.empty()) return fmt::format("[{}]{}", i, fault);
    }
    return "";
  }

  Fault check_one(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    if (!reflection.HasField(message, &field)) {
      return field.real_containing_oneof() != nullptr ? "" : " is missing";
    }
    const std::string& owner = message.GetDescriptor()->name();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return check(reflection.GetMessage(message, &field));
      case FieldDescriptor::CPPTYPE_STRING:
        return text_fault(owner, field.name(), reflection.GetString(message, &field));
      case FieldDescriptor::CPPTYPE_INT64:
        return integer_fault(owner, field.name(), reflection.GetInt64(message, &field));
      case FieldDescriptor::CPPTYPE_INT32:
        return integer_fault(owner, field.name(), reflection.GetInt32(message, &field));
      case FieldDescriptor::CPPTYPE_UINT32:
        return integer_fault(owner, field.name(), reflection.GetUInt32(message, &field));
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        // A Ready that says it is not finite may show what it has become.
        const auto* ready = dynamic_cast<const proto::Ready*>(&message);
        if (ready != nullptr && ready->has_is_finite() && !ready->is_finite()) return "";
        return real_fault(field.name(), reflection.GetDouble(message, &field));
      }
      default:  // 64 bits without a sign, and yes or no: all values are fine
        return "";
    }
  }
};

}  // namespace

bool is_island_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && name != "." && name != ".." &&
         name.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
             std::string::npos;
}

std::string find_fault(const Message& message) {
  const Fault fault = Checker().check(message);
  return fault.starts_with('.') ? fault.substr(1) : fault.empty() ? "" : "it" + fault;
}

void check_island_name(std::string_view name) {
  if (is_island_name(std::string(name))) return;
  throw user_error(
      "\"{}\" cannot be an island's name; give 1 to {} letters, digits, dots, dashes and "
      "underscores",
      name.substr(0, kMaxName), kMaxName);
}

}  // namespace atl::island
