#pragma once

// A tokenizer.model without its library: field by field, as sentencepiece_model.proto numbers them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl::model_dir {

/// A field that is a varint.
inline std::string wire_number(int field, std::uint64_t value) {
  const auto varint = [](std::uint64_t rest) {
    std::string out;
    for (; rest > 127; rest >>= 7) out.push_back(static_cast<char>(rest | 0x80));
    return out + static_cast<char>(rest);
  };
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}

/// A field that is a string or a message.
inline std::string wire_bytes(int field, std::string_view content) {
  std::string head = wire_number(field, content.size());
  head.front() = static_cast<char>(head.front() | 2);  // fields below 16 have a tag of one byte
  return head.append(content);
}

/// A BPE model with bytes to fall back on, <s> and </s>, and the pieces of a few English words;
/// `removes_spaces` makes it one that no tokenizer.json equals.
inline std::string tiny_sentence_piece(bool removes_spaces = false) {
  constexpr int kUnknown = 2;
  constexpr int kControl = 3;
  constexpr int kByte = 6;
  std::string model;
  float score = 0;
  const auto add = [&](std::string_view text, int type) {
    const auto* bytes = reinterpret_cast<const char*>(&score);
    model += wire_bytes(
        1, wire_bytes(1, text) + '\x15' + std::string(bytes, sizeof(score)) + wire_number(3, type));
    score -= 1;
  };
  add("<unk>", kUnknown);
  add("<s>", kControl);
  add("</s>", kControl);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    add({"<0x" + std::string(1, kHex[byte / 16]) + kHex[byte % 16] + ">"}, kByte);
  }
  for (const char* piece : {"th", "he", "\u2581th", "\u2581the", "se", "sea", "\u2581sea", "an",
                            "and", "\u2581and", "is", "\u2581is", "\u2581a"}) {
    add(piece, 1);
  }
  add("\u2581", 1);
  for (char letter = 'a'; letter <= 'z'; ++letter) add({&letter, 1}, 1);
  model += wire_bytes(2, wire_number(3, 2) + "\x98\x02\x01");  // BPE; field 35: byte_fallback
  model += wire_bytes(3, wire_number(3, 1) + wire_number(4, removes_spaces ? 1 : 0));
  return model;
}

}  // namespace atl::model_dir
