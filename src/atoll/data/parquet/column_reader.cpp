#include "atoll/data/parquet/column_reader.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "atoll/base/error.h"
#include "atoll/data/columns/block_codec.h"

namespace atl::data {

namespace {

BlockCodec codec_of(std::int32_t codec) {
  switch (codec) {
    case 0:
      return BlockCodec::kNone;
    case 1:
      return BlockCodec::kSnappy;
    case 2:
      return BlockCodec::kGzip;
    case 5:
      return BlockCodec::kLz4Hadoop;
    case 6:
      return BlockCodec::kZstd;
    case 7:
      return BlockCodec::kLz4;
    default:
      break;
  }
  throw std::runtime_error(
      fmt::format("it is compressed with {}, which is not read; write it with zstd or snappy",
                  codec == 3   ? "LZO"
                  : codec == 4 ? "Brotli"
                               : fmt::format("codec {}", codec)));
}

int bits_of(int max_level) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)));
}

}  // namespace

void ParquetColumnReader::fail(const std::string& problem) const {
  throw user_error("{}, column {}, page at byte {}: {}; write or copy the file again", path_,
                   column_.name, page_at_, problem);
}

void ParquetColumnReader::begin(const ParquetChunk& chunk) {
  chunk_ = chunk;
  page_at_ = static_cast<std::uint64_t>(std::max<std::int64_t>(chunk.offset, 0));
  if (is_loaded_ || left_in_page_ > 0 || left_in_chunk_ > 0) {
    fail("it has more values than other columns");
  }
  if (chunk.is_elsewhere) fail("its values are in another file, which is not read");
  if (chunk.is_encrypted) fail("it is encrypted");
  const auto size = static_cast<std::int64_t>(file_.size());
  if (chunk.offset < 0 || chunk.bytes < 0 || chunk.num_values < 0 || chunk.offset > size ||
      chunk.bytes > size - chunk.offset) {
    fail(fmt::format("its {} bytes are not in the file of {}", chunk.bytes, size));
  }
  at_ = page_at_;
  end_ = at_ + static_cast<std::uint64_t>(chunk.bytes);
  left_in_chunk_ = chunk.num_values;
  left_in_page_ = 0;
  has_dictionary_ = false;
}

bool ParquetColumnReader::has_entry() {
  if (is_loaded_) return true;
  try {
    while (left_in_page_ == 0) {
      if (left_in_chunk_ == 0) return false;
      load_page();
    }
    load_entry();
  } catch (const std::runtime_error& error) {
    // An Error is one too, and says it all.
    if (dynamic_cast<const Error*>(&error) != nullptr) throw;
    fail(error.what());
  }
  return true;
}

void ParquetColumnReader::load_entry() {
  repetition_ = column_.max_repetition > 0 ? static_cast<int>(repetitions_.next()) : 0;
  definition_ = column_.max_definition > 0 ? static_cast<int>(definitions_.next()) : 0;
  if (repetition_ > column_.max_repetition || definition_ > column_.max_definition) {
    throw std::runtime_error("a level is higher than the schema allows");
  }
  if (definition_ == column_.max_definition) values_->next(value_);
  --left_in_page_;
  is_loaded_ = true;
}

void ParquetColumnReader::load_page() {
  page_at_ = at_;
  if (at_ >= end_) throw std::runtime_error("its pages have fewer values than it should have");
  const ParquetPage page = read_parquet_page(file_.substr(at_, end_ - at_));
  at_ += page.header_bytes;
  const auto size = static_cast<std::uint64_t>(page.compressed_bytes);
  if (size > end_ - at_) {
    throw std::runtime_error(fmt::format("a page of {} bytes goes on behind the column", size));
  }
  const std::string_view content = file_.substr(at_, size);
  at_ += size;
  if (page.crc) {
    const auto crc =
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    if (static_cast<std::uint32_t>(crc) != static_cast<std::uint32_t>(*page.crc)) {
      throw std::runtime_error("its checksum is wrong");
    }
  }
  if (page.kind == 2) {
    load_dictionary(page, content);
  } else if (page.kind == 0 || page.kind == 3) {
    load_data(page, content);
  } else if (page.kind != 1) {
    throw std::runtime_error(fmt::format("it is a page of kind {}, which is not known", page.kind));
  }
}

std::string_view ParquetColumnReader::decompress(std::string_view block, std::size_t size,
                                                 std::vector<char>& out) {
  const BlockCodec codec = codec_of(chunk_.codec);
  if (codec == BlockCodec::kNone) return block;  // in place
  decompress_block(codec, block, size, out);
  return {out.data(), size};
}

void ParquetColumnReader::load_dictionary(const ParquetPage& page, std::string_view content) {
  if (has_dictionary_) throw std::runtime_error("it has two dictionaries");
  if (page.encoding != 0 && page.encoding != 2) {
    throw std::runtime_error("its dictionary has an encoding that is not read");
  }
  content = decompress(content, static_cast<std::size_t>(page.bytes), dictionary_bytes_);
  const auto values = make_value_reader(0, column_.element, content, nullptr);
  dictionary_.clear();
  for (std::int32_t i = 0; i < page.num_values; ++i) values->next(dictionary_.emplace_back());
  has_dictionary_ = true;
}

std::string_view ParquetColumnReader::take_levels(std::string_view& content) {
  std::uint32_t size = 0;
  if (content.size() < sizeof(size)) throw std::runtime_error("a page ends within its levels");
  std::memcpy(&size, content.data(), sizeof(size));
  content.remove_prefix(sizeof(size));
  if (content.size() < size) throw std::runtime_error("a page ends within its levels");
  const std::string_view levels = content.substr(0, size);
  content.remove_prefix(size);
  return levels;
}

void ParquetColumnReader::load_data(const ParquetPage& page, std::string_view content) {
  std::string_view repetitions;
  std::string_view definitions;
  const auto bytes = static_cast<std::size_t>(page.bytes);
  if (page.kind == 3) {
    const auto first = static_cast<std::size_t>(page.repetition_bytes);
    const auto second = static_cast<std::size_t>(page.definition_bytes);
    if (first > content.size() || second > content.size() - first || first + second > bytes) {
      throw std::runtime_error("a page ends within its levels");
    }
    repetitions = content.substr(0, first);
    definitions = content.substr(first, second);
    content.remove_prefix(first + second);
    // What has no values may not be compressed at all.
    if (page.is_compressed && !content.empty()) {
      content = decompress(content, bytes - first - second, page_);
    }
  } else {
    content = decompress(content, bytes, page_);
    // Levels that are not there may be called anything: Spark's writer calls them BIT_PACKED.
    if ((column_.max_repetition > 0 && page.repetition_encoding != 3) ||
        (column_.max_definition > 0 && page.definition_encoding != 3)) {
      throw std::runtime_error(
          "its levels are BIT_PACKED, as writers of 2014 did; that is not read");
    }
    if (column_.max_repetition > 0) repetitions = take_levels(content);
    if (column_.max_definition > 0) definitions = take_levels(content);
  }
  if (page.num_values > left_in_chunk_) {
    throw std::runtime_error("its pages have more values than it should have");
  }
  repetitions_ = RleReader(repetitions, bits_of(column_.max_repetition));
  definitions_ = RleReader(definitions, bits_of(column_.max_definition));
  values_ = make_value_reader(page.encoding, column_.element, content,
                              has_dictionary_ ? &dictionary_ : nullptr);
  left_in_page_ = page.num_values;
  left_in_chunk_ -= page.num_values;
}

}  // namespace atl::data
