#include "atoll/data/parquet/metadata.h"

#include <stdexcept>

#include "atoll/data/parquet/thrift.h"

namespace atl::data {

namespace {

using Type = ThriftType;

constexpr std::size_t kMaxElements = 65536;

void read_time(ThriftReader& in, Type type, ParquetElement& element) {
  in.expect_struct(type);
  in.read_struct([&](std::int64_t number, Type inner) {
    if (number == 1) {
      element.is_utc = ThriftReader::boolean(inner);
    } else if (number == 2) {
      in.expect_struct(inner);
      in.read_struct([&](std::int64_t unit, Type empty) {
        element.unit = static_cast<int>(unit) - 1;
        in.skip(empty);
      });
    } else {
      in.skip(inner);
    }
  });
}

void read_logical_type(ThriftReader& in, ParquetElement& element) {
  using Meaning = ParquetMeaning;
  in.read_struct([&](std::int64_t number, Type type) {
    switch (number) {
      case 2:
        element.meaning = Meaning::kMap;
        break;
      case 3:
        element.meaning = Meaning::kList;
        break;
      case 5:
        element.meaning = Meaning::kDecimal;
        in.expect_struct(type);
        in.read_struct([&](std::int64_t inner, Type inner_type) {
          if (inner == 1) {
            element.scale = in.integer32(inner_type);
          } else {
            in.skip(inner_type);
          }
        });
        return;
      case 6:
        element.meaning = Meaning::kDate;
        break;
      case 7:
      case 8:
        element.meaning = number == 7 ? Meaning::kTime : Meaning::kTimestamp;
        return read_time(in, type, element);
      case 10:
        element.meaning = Meaning::kPlain;
        in.expect_struct(type);
        in.read_struct([&](std::int64_t inner, Type inner_type) {
          if (inner == 2) {
            if (!ThriftReader::boolean(inner_type)) element.meaning = Meaning::kUnsigned;
          } else {
            in.skip(inner_type);
          }
        });
        return;
      case 14:
        element.meaning = Meaning::kUuid;
        break;
      case 15:
        element.meaning = Meaning::kHalf;
        break;
      default:  // texts, and what is newer than this reader
        break;
    }
    in.skip(type);
  });
}

// The older annotation, which files without logical types have alone.
void take_converted_type(std::int32_t converted, ParquetElement& element) {
  using Meaning = ParquetMeaning;
  switch (converted) {
    case 1:
    case 2:
      element.meaning = Meaning::kMap;
      break;
    case 3:
      element.meaning = Meaning::kList;
      break;
    case 5:
      element.meaning = Meaning::kDecimal;
      break;
    case 6:
      element.meaning = Meaning::kDate;
      break;
    case 7:
    case 8:
      element.meaning = Meaning::kTime;
      element.unit = converted - 7;
      break;
    case 9:
    case 10:
      element.meaning = Meaning::kTimestamp;
      element.unit = converted - 9;
      element.is_utc = true;
      break;
    case 11:
    case 12:
    case 13:
    case 14:
      element.meaning = Meaning::kUnsigned;
      break;
    case 21:
      element.meaning = Meaning::kInterval;
      break;
    default:
      break;
  }
}

ParquetElement read_element(ThriftReader& in) {
  ParquetElement element;
  std::int32_t converted = -1;
  bool has_logical = false;
  in.read_struct([&](std::int64_t number, Type type) {
    switch (number) {
      case 1: {
        const std::int32_t physical = in.integer32(type);
        if (physical < 0 || physical > 7) throw std::runtime_error("a column has an unknown type");
        element.type = static_cast<ParquetType>(physical);
        return;
      }
      case 2:
        element.type_length = in.integer32(type);
        return;
      case 3:
        element.repetition = in.integer32(type);
        return;
      case 4:
        element.name = in.binary(type);
        return;
      case 5:
        element.num_children = in.integer32(type);
        return;
      case 6:
        converted = in.integer32(type);
        return;
      case 7:
        element.scale = in.integer32(type);
        return;
      case 10:
        in.expect_struct(type);
        has_logical = true;
        return read_logical_type(in, element);
      default:
        in.skip(type);
    }
  });
  if (!has_logical) take_converted_type(converted, element);
  return element;
}

void read_column(ThriftReader& in, ParquetChunk& chunk) {
  std::int64_t dictionary = 0;
  in.read_struct([&](std::int64_t number, Type type) {
    switch (number) {
      case 4:
        chunk.codec = in.integer32(type);
        return;
      case 5:
        chunk.num_values = in.integer(type);
        return;
      case 7:
        chunk.bytes = in.integer(type);
        return;
      case 9:
        chunk.offset = in.integer(type);
        return;
      case 11:
        dictionary = in.integer(type);
        return;
      default:
        in.skip(type);
    }
  });
  if (dictionary > 0 && dictionary < chunk.offset) chunk.offset = dictionary;
}

ParquetChunk read_chunk(ThriftReader& in) {
  ParquetChunk chunk;
  in.read_struct([&](std::int64_t number, Type type) {
    if (number == 1) {
      chunk.is_elsewhere = !in.binary(type).empty();
    } else if (number == 3) {
      in.expect_struct(type);
      read_column(in, chunk);
    } else {
      if (number == 8 || number == 9) chunk.is_encrypted = true;
      in.skip(type);
    }
  });
  return chunk;
}

ParquetRowGroup read_row_group(ThriftReader& in) {
  ParquetRowGroup group;
  in.read_struct([&](std::int64_t number, Type type) {
    if (number == 1) {
      in.read_list(type, [&](Type inner) {
        in.expect_struct(inner);
        group.chunks.push_back(read_chunk(in));
      });
    } else if (number == 3) {
      group.num_rows = in.integer(type);
    } else {
      in.skip(type);
    }
  });
  return group;
}

// The headers of dictionaries begin as those of data do, and have no levels.
void read_data_page(ThriftReader& in, bool has_levels, ParquetPage& page) {
  in.read_struct([&](std::int64_t number, Type type) {
    if (number < 1 || number > (has_levels ? 4 : 2)) return in.skip(type);
    const std::int32_t value = in.integer32(type);
    if (number == 1) page.num_values = value;
    if (number == 2) page.encoding = value;
    if (number == 3) page.definition_encoding = value;
    if (number == 4) page.repetition_encoding = value;
  });
}

void read_data_page_v2(ThriftReader& in, ParquetPage& page) {
  in.read_struct([&](std::int64_t number, Type type) {
    switch (number) {
      case 1:
        page.num_values = in.integer32(type);
        return;
      case 4:
        page.encoding = in.integer32(type);
        return;
      case 5:
        page.definition_bytes = in.integer32(type);
        return;
      case 6:
        page.repetition_bytes = in.integer32(type);
        return;
      case 7:
        page.is_compressed = ThriftReader::boolean(type);
        return;
      default:
        in.skip(type);
    }
  });
}

}  // namespace

ParquetFooter read_parquet_footer(std::string_view bytes) {
  ThriftReader in(bytes);
  ParquetFooter footer;
  in.read_struct([&](std::int64_t number, Type type) {
    switch (number) {
      case 2:
        in.read_list(type, [&](Type inner) {
          in.expect_struct(inner);
          footer.schema.push_back(read_element(in));
          if (footer.schema.size() > kMaxElements) {
            throw std::runtime_error("it has more than 65536 columns");
          }
        });
        return;
      case 3:
        footer.num_rows = in.integer(type);
        return;
      case 4:
        in.read_list(type, [&](Type inner) {
          in.expect_struct(inner);
          footer.row_groups.push_back(read_row_group(in));
        });
        return;
      case 8:
        throw std::runtime_error("it is encrypted");
      default:
        in.skip(type);
    }
  });
  return footer;
}

ParquetPage read_parquet_page(std::string_view bytes) {
  ThriftReader in(bytes);
  ParquetPage page;
  in.read_struct([&](std::int64_t number, Type type) {
    switch (number) {
      case 1:
        page.kind = in.integer32(type);
        return;
      case 2:
        page.bytes = in.integer32(type);
        return;
      case 3:
        page.compressed_bytes = in.integer32(type);
        return;
      case 4:
        page.crc = in.integer32(type);
        return;
      case 5:
      case 7:
        in.expect_struct(type);
        return read_data_page(in, number == 5, page);
      case 8:
        in.expect_struct(type);
        return read_data_page_v2(in, page);
      default:
        in.skip(type);
    }
  });
  page.header_bytes = bytes.size() - in.rest().size();
  if (page.bytes < 0 || page.compressed_bytes < 0 || page.num_values < 0 ||
      page.definition_bytes < 0 || page.repetition_bytes < 0) {
    throw std::runtime_error("a page has a negative size");
  }
  return page;
}

}  // namespace atl::data
