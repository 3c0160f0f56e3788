#include "atoll/data/arrow/schema.h"

#include <fmt/format.h>

#include <stdexcept>

namespace atl::data {

namespace {

constexpr std::size_t kOffset = 4;  // bytes of a table's place in a vector

[[noreturn]] void refuse(const ArrowField& field, std::string_view what) {
  throw std::runtime_error(
      fmt::format("column \"{}\" {}, which is not read; write it without", field.name, what));
}

int bytes_of_bits(const ArrowField& field, std::int32_t bits) {
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128 && bits != 256) {
    refuse(field, fmt::format("has numbers of {} bits", bits));
  }
  return bits / 8;
}

int positive(const ArrowField& field, std::int32_t width) {
  if (width < 0) refuse(field, "has values of a negative length");
  return width;
}

void read_type(const FlatTable& from, ArrowField& field) {
  constexpr std::int16_t kMilli = 1;
  const auto type = from.number<std::uint8_t>(2, 0);
  if (type < 1 || type > static_cast<std::uint8_t>(ArrowType::kLargeListView)) {
    refuse(field, fmt::format("has the type {}", type));
  }
  field.type = static_cast<ArrowType>(type);
  const FlatTable details = from.table(3);
  switch (field.type) {
    case ArrowType::kInt:
      field.width = bytes_of_bits(field, details.number<std::int32_t>(0, 0));
      if (field.width > 8) refuse(field, "has integers of more than 64 bits");
      field.is_signed = details.number<std::uint8_t>(1, 0) != 0;
      return;
    case ArrowType::kFloat: {
      const auto precision = details.number<std::int16_t>(0, 0);
      if (precision < 0 || precision > 2) refuse(field, "has floats of an unknown precision");
      field.width = 2 << precision;
      return;
    }
    case ArrowType::kDecimal:
      field.scale = details.number<std::int32_t>(1, 0);
      field.width = bytes_of_bits(field, details.number<std::int32_t>(2, 128));
      if (field.scale < -1000 || field.scale > 1000) refuse(field, "has a scale of over 1000");
      return;
    case ArrowType::kDate:
      field.unit = details.number<std::int16_t>(0, kMilli);
      field.width = field.unit == 0 ? 4 : 8;
      return;
    case ArrowType::kTime:
      field.unit = details.number<std::int16_t>(0, kMilli);
      field.width = bytes_of_bits(field, details.number<std::int32_t>(1, 32));
      return;
    case ArrowType::kTimestamp:
      field.unit = details.number<std::int16_t>(0, 0);
      field.is_utc = !details.text(1).empty();
      field.width = 8;
      return;
    case ArrowType::kDuration:
      field.width = 8;
      return;
    case ArrowType::kFixedBinary:
    case ArrowType::kFixedList:
      field.width = positive(field, details.number<std::int32_t>(0, 0));
      return;
    case ArrowType::kInterval:
      return refuse(field, "has intervals");
    case ArrowType::kUnion:
      return refuse(field, "is a union");
    case ArrowType::kRunEndEncoded:
      return refuse(field, "is run-end encoded");
    default:
      return;
  }
}

class Builder {
 public:
  std::vector<ArrowField> fields(const FlatTable& from, int number, int depth) {
    constexpr int kDeepest = 32;
    constexpr std::size_t kMostFields = 65536;
    if (depth > kDeepest) throw std::runtime_error("its schema nests more than 32 deep");
    const FlatVector all = from.vector(number, kOffset);
    std::vector<ArrowField> result;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (++num_fields_ > kMostFields) throw std::runtime_error("it has more than 65536 columns");
      result.push_back(field(all.table(i), depth));
    }
    return result;
  }

 private:
  ArrowField field(const FlatTable& from, int depth) {
    ArrowField field;
    field.name = from.text(0);
    constexpr std::size_t kMostNameBytes = std::size_t{64} << 20;
    name_bytes_ += field.name.size();
    if (name_bytes_ > kMostNameBytes)
      throw std::runtime_error("the names of its columns are too long");
    read_type(from, field);
    if (from.has(4)) {
      const FlatTable encoding = from.table(4);
      field.dictionary = encoding.number<std::int64_t>(0, 0);
      field.index_width = 4;
      if (encoding.has(1)) {
        const FlatTable index = encoding.table(1);
        field.index_width = bytes_of_bits(field, index.number<std::int32_t>(0, 32));
        field.is_index_signed = index.number<std::uint8_t>(1, 0) != 0;
      }
      if (field.index_width > 8) refuse(field, "has a dictionary with places of more than 64 bits");
    }
    field.children = fields(from, 5, depth + 1);
    check_children(field);
    return field;
  }

  static void check_children(const ArrowField& field) {
    const std::size_t count = field.children.size();
    switch (field.type) {
      case ArrowType::kList:
      case ArrowType::kLargeList:
      case ArrowType::kFixedList:
      case ArrowType::kListView:
      case ArrowType::kLargeListView:
        if (count != 1) throw std::runtime_error("a list in its schema has no element");
        return;
      case ArrowType::kMap:
        if (count != 1 || field.children[0].children.size() != 2 || field.children[0].dictionary ||
            field.children[0].type != ArrowType::kStruct) {
          throw std::runtime_error("a map in its schema has no key and value");
        }
        return;
      default:
        return;
    }
  }

  std::size_t num_fields_ = 0;
  std::size_t name_bytes_ = 0;
};

}  // namespace

std::vector<ArrowField> read_arrow_schema(const FlatTable& schema) {
  if (schema.number<std::int16_t>(0, 0) != 0) {
    throw std::runtime_error("it is big-endian, which is not read");
  }
  return Builder().fields(schema, 1, 1);
}

}  // namespace atl::data
