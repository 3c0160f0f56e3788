#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "atoll/base/files/lfs_pointer.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/safetensors/safetensors.h"

namespace atl::ckpt {

namespace {

// Not ordered_json, which looks for a key through all that came before. The bytes give the order.
using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference reader
constexpr std::size_t kMaxRank = 8;
constexpr int kMaxNesting = 16;  // 3 levels, and what other writers put into an entry

struct DtypeName {
  std::string_view name;
  std::uint64_t bits;
  std::optional<Dtype> dtype;
};
constexpr DtypeName kDtypes[] = {
    {"F32", 32, Dtype::kF32}, {"F64", 64, Dtype::kF64}, {"BF16", 16, Dtype::kBf16},
    {"F16", 16, Dtype::kF16}, {"I32", 32, Dtype::kI32}, {"I64", 64, Dtype::kI64},
    {"U8", 8, Dtype::kU8},    {"BOOL", 8, {}},          {"I8", 8, {}},
    {"I16", 16, {}},          {"U16", 16, {}},          {"U32", 32, {}},
    {"U64", 64, {}},          {"F8_E4M3", 8, {}},       {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},       {"C64", 64, {}},          {"F4", 4, {}},
    {"F6_E2M3", 6, {}},       {"F6_E3M2", 6, {}},       {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
};

const DtypeName* find_dtype(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const DtypeName& d) { return d.name == name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

Json parse_json(std::string_view text) {
  // Writers pad with spaces; the library takes all white space of JSON, before the object too.
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  const std::size_t last = text.find_last_not_of(kWhiteSpace);
  if (first == text.npos || text[first] != '{' || text[last] != '}') {
    throw damaged_error("it is not a JSON object padded with white space");
  }
  return atl::parse_json(text, "its JSON", {.max_depth = kMaxNesting});
}

std::uint64_t number(const Json& value, const char* what) {
  if (!value.is_number_unsigned()) {
    throw damaged_error("{} {} is not a whole number from 0", what, value.dump());
  }
  return value.get<std::uint64_t>();
}

// Bytes of the elements; checked, because a product of eight numbers can overflow into any.
std::uint64_t bytes_needed(const SafetensorsEntry& entry, std::uint64_t bits_each) {
  std::uint64_t bits = bits_each;
  for (const std::int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits)) {
      throw damaged_error("its shape has more elements than any memory");
    }
  }
  if (bits % 8 != 0) throw damaged_error("its {} bits are no whole bytes", bits);
  return bits / 8;
}

SafetensorsEntry parse_entry(const std::string& name, const Json& value) {
  // As the library does, whatever else stands in the entry is read past.
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    throw damaged_error("{} is not {{dtype, shape, data_offsets}}", value.dump());
  }
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = value.at("dtype").get<std::string>();
  const DtypeName* dtype = find_dtype(entry.dtype);
  if (dtype == nullptr) throw damaged_error("dtype \"{}\" is unknown", entry.dtype);
  const Json& shape = value.at("shape");
  const Json& offsets = value.at("data_offsets");
  if (!shape.is_array() || shape.size() > kMaxRank) {
    throw damaged_error("shape {} is not a list of up to {} dims", shape.dump(), kMaxRank);
  }
  for (const Json& dim : shape) {
    const std::uint64_t size = number(dim, "dim");
    if (size > INT64_MAX) throw damaged_error("dim {} is too large", size);
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  if (!offsets.is_array() || offsets.size() != 2) {
    throw damaged_error("data_offsets {} are not [begin, end]", offsets.dump());
  }
  entry.begin = number(offsets[0], "offset");
  entry.end = number(offsets[1], "offset");
  const std::uint64_t needed = bytes_needed(entry, dtype->bits);
  if (entry.end < entry.begin || entry.end - entry.begin != needed) {
    throw damaged_error("data_offsets {} do not hold the {} bytes of {} {}", offsets.dump(), needed,
                        entry.dtype, shape.dump());
  }
  return entry;
}

Metadata parse_metadata(const Json& value) {
  Metadata metadata;
  for (const auto& [key, text] : value.items()) metadata[key] = text.get<std::string>();
  return metadata;
}

void check_cover(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t next = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != next) {
      throw damaged_error("tensor \"{}\" begins at byte {} of the data, not at {} behind the last",
                          entry.name, entry.begin, next);
    }
    next = entry.end;
  }
  if (next != data_bytes) {
    throw damaged_error("its tensors take {} bytes and the file has {} for them{}", next,
                        data_bytes, next > data_bytes ? "; it was cut off" : "");
  }
}

SafetensorsHeader parse_header(std::string_view text) {
  SafetensorsHeader header;
  const Json root = parse_json(text);
  for (const auto& [name, value] : root.items()) {
    try {
      if (name == "__metadata__") {
        if (value.is_null()) continue;
        if (!value.is_object()) throw damaged_error("it is not an object");
        header.metadata = parse_metadata(value);
      } else {
        header.entries.push_back(parse_entry(name, value));
      }
    } catch (const std::exception& error) {  // the JSON library's, for a missing key or a type
      throw damaged_error("\"{}\": {}", name, json_reason(error));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  return header;
}

}  // namespace

std::optional<Dtype> dtype_from_safetensors(std::string_view name) {
  const DtypeName* found = find_dtype(name);
  return found == nullptr ? std::nullopt : found->dtype;
}

std::string_view safetensors_name(Dtype dtype) {
  return std::find_if(std::begin(kDtypes), std::end(kDtypes),
                      [&](const DtypeName& d) { return d.dtype == dtype; })
      ->name;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin) {
  refuse_lfs_pointer({reinterpret_cast<const char*>(file.data()), file.size()}, origin);
  try {
    std::uint64_t header_bytes = 0;
    if (file.size() < sizeof header_bytes) {
      throw damaged_error("{} bytes are too few for a safetensors file", file.size());
    }
    std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
    if (header_bytes > kMaxHeaderBytes) {
      throw damaged_error("a header of {} bytes, more than {}", header_bytes, kMaxHeaderBytes);
    }
    const std::span<const std::byte> rest = file.subspan(sizeof header_bytes);
    if (header_bytes > rest.size()) {
      throw damaged_error("a header of {} bytes in a file of {}", header_bytes, file.size());
    }
    SafetensorsHeader header =
        parse_header({reinterpret_cast<const char*>(rest.data()), header_bytes});
    check_cover(header.entries, rest.size() - header_bytes);
    header.data_offset = sizeof header_bytes + header_bytes;
    return header;
  } catch (const Error& error) {
    throw damaged_error("{} is damaged: safetensors header: {}", origin, error.what());
  }
}

}  // namespace atl::ckpt
