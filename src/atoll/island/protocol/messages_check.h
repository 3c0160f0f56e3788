#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace atl::island {

/// What is wrong with a message of messages.proto, naming the field ("reduce.participants[2].weight
/// is nan"); empty when all is there and within the limits of messages.h.
std::string find_fault(const google::protobuf::Message& message);

/// Whether `name` is 1 to 128 of A-Z a-z 0-9 . _ -
bool is_island_name(const std::string& name);

}  // namespace atl::island
