#include "atoll/data/arrow/batch.h"

#include <cstring>
#include <stdexcept>

#include "atoll/data/columns/block_codec.h"

namespace atl::data {

namespace {

constexpr std::size_t kNode = 16;    // a length and a count of nulls
constexpr std::size_t kBuffer = 16;  // an offset and a length

class Reader {
 public:
  Reader(const FlatTable& batch, std::string_view body, ArrowBatch& result)
      : body_(body),
        nodes_(batch.vector(1, kNode)),
        buffers_(batch.vector(2, kBuffer)),
        counts_(batch.vector(4, 8)),
        result_(result) {
    if (!batch.has(3)) return;
    const auto codec = batch.table(3).number<std::int8_t>(0, 0);
    if (codec != 0 && codec != 1) throw std::runtime_error("its compression is not known");
    codec_ = codec == 0 ? BlockCodec::kLz4Frame : BlockCodec::kZstd;
  }

  ArrowArray array(const ArrowField& field, bool is_read) {
    if (node_ >= nodes_.size()) throw std::runtime_error("a batch has too few columns");
    ArrowArray array{&field};
    array.length = nodes_.number<std::int64_t>(node_);
    const auto nulls = nodes_.number<std::int64_t>(node_, 8);
    ++node_;
    if (array.length < 0 || array.length > kMaxLength) {
      throw std::runtime_error("a column has a length that none has");
    }
    const auto count = static_cast<std::size_t>(array.length);
    if (field.type == ArrowType::kNull && !field.dictionary) return array;
    array.validity = buffer(is_read);
    if (nulls == 0) {
      array.validity = {};
    } else if (is_read) {
      expect(array.validity, (count + 7) / 8);
    }
    if (field.dictionary) {
      array.values = buffer(is_read);
      if (is_read) expect(array.values, count * static_cast<std::size_t>(field.index_width));
      return array;
    }
    read_values(field, is_read, count, array);
    return array;
  }

 private:
  // Rows of a batch, at most: far above what any writer makes, and safe to multiply.
  static constexpr std::int64_t kMaxLength = std::int64_t{1} << 40;

  static void expect(std::string_view buffer, std::size_t bytes) {
    if (buffer.size() < bytes) throw std::runtime_error("a buffer is shorter than its column");
  }

  std::string_view buffer(bool is_read) {
    if (buffer_ >= buffers_.size()) throw std::runtime_error("a batch has too few buffers");
    const auto offset = buffers_.number<std::int64_t>(buffer_);
    const auto length = buffers_.number<std::int64_t>(buffer_, 8);
    ++buffer_;
    const auto all = static_cast<std::int64_t>(body_.size());
    if (offset < 0 || length < 0 || offset > all || length > all - offset) {
      throw std::runtime_error("a buffer is not in its message");
    }
    const std::string_view bytes =
        body_.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
    if (!is_read || codec_ == BlockCodec::kNone || bytes.empty()) return bytes;
    return decompress(bytes);
  }

  std::string_view decompress(std::string_view bytes) {
    std::int64_t size = 0;
    if (bytes.size() < sizeof(size)) throw std::runtime_error("a buffer has no size");
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
    if (size == -1) return bytes;  // it would have become longer
    if (size < 0) throw std::runtime_error("a buffer has a negative size");
    auto& owned = *result_.owned.emplace_back(std::make_unique<std::vector<char>>());
    decompress_block(codec_, bytes, static_cast<std::size_t>(size), owned);
    return {owned.data(), static_cast<std::size_t>(size)};
  }

  void read_values(const ArrowField& field, bool is_read, std::size_t count, ArrowArray& array) {
    const auto offsets = [&](std::size_t width) {
      array.offsets = buffer(is_read);
      // Without values some writers leave out the one offset.
      if (is_read && count > 0) expect(array.offsets, (count + 1) * width);
    };
    switch (field.type) {
      case ArrowType::kUtf8:
      case ArrowType::kBinary:
      case ArrowType::kLargeUtf8:
      case ArrowType::kLargeBinary: {
        const bool is_large =
            field.type == ArrowType::kLargeUtf8 || field.type == ArrowType::kLargeBinary;
        offsets(is_large ? 8 : 4);
        array.bytes = buffer(is_read);
        return;
      }
      case ArrowType::kUtf8View:
      case ArrowType::kBinaryView:
        return read_views(is_read, count, array);
      case ArrowType::kList:
      case ArrowType::kMap:
      case ArrowType::kLargeList:
        offsets(field.type == ArrowType::kLargeList ? 8 : 4);
        break;
      case ArrowType::kListView:
      case ArrowType::kLargeListView: {
        const std::size_t width = field.type == ArrowType::kListView ? 4 : 8;
        array.offsets = buffer(is_read);
        array.sizes = buffer(is_read);
        if (is_read) expect(array.offsets, count * width);
        if (is_read) expect(array.sizes, count * width);
        break;
      }
      case ArrowType::kStruct:
      case ArrowType::kFixedList:
        break;
      case ArrowType::kBool:
        array.values = buffer(is_read);
        if (is_read) expect(array.values, (count + 7) / 8);
        return;
      default:
        array.values = buffer(is_read);
        if (is_read && field.width > 0) {
          if (array.values.size() / static_cast<std::size_t>(field.width) < count) {
            expect({}, 1);
          }
        }
        return;
    }
    for (const ArrowField& child : field.children) {
      array.children.push_back(this->array(child, is_read));
    }
  }

  void read_views(bool is_read, std::size_t count, ArrowArray& array) {
    constexpr std::size_t kView = 16;
    array.values = buffer(is_read);
    if (is_read) expect(array.values, count * kView);
    if (count_ >= counts_.size()) throw std::runtime_error("a batch lacks a count of buffers");
    const auto more = counts_.number<std::int64_t>(count_++);
    for (std::int64_t i = 0; i < more; ++i) array.buffers.push_back(buffer(is_read));
  }

  std::string_view body_;
  FlatVector nodes_;
  FlatVector buffers_;
  FlatVector counts_;  // of the buffers of views
  ArrowBatch& result_;
  BlockCodec codec_ = BlockCodec::kNone;
  std::size_t node_ = 0;
  std::size_t buffer_ = 0;
  std::size_t count_ = 0;
};

}  // namespace

ArrowBatch read_arrow_batch(const FlatTable& batch, std::string_view body,
                            const std::vector<const ArrowField*>& fields,
                            const std::vector<bool>& is_read) {
  ArrowBatch result;
  result.length = batch.number<std::int64_t>(0, 0);
  if (result.length < 0) throw std::runtime_error("a batch has a negative length");
  Reader reader(batch, body, result);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    ArrowArray array = reader.array(*fields[i], is_read[i]);
    if (is_read[i] && array.length < result.length) {
      throw std::runtime_error("a column is shorter than its batch");
    }
    result.arrays.push_back(std::move(array));
  }
  return result;
}

}  // namespace atl::data
