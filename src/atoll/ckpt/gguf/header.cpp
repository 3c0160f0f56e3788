#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "atoll/base/files/lfs_pointer.h"
#include "atoll/ckpt/gguf/gguf.h"

namespace atl::ckpt {

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::uint64_t kMaxRank = 4;

// What a type is called that a file may have and atoll does not read.
std::string type_name(std::uint32_t number) {
  constexpr std::pair<std::uint32_t, const char*> kOthers[] = {
      {9, "Q8_1"},   {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
      {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},
      {24, "I8"},    {25, "I16"},    {26, "I32"},     {27, "I64"},    {28, "F64"},
      {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"},
  };
  for (const auto& [other, name] : kOthers) {
    if (other == number) return name;
  }
  return fmt::format("number {}", number);
}

std::size_t size_of(GgufKind kind) {
  switch (kind) {
    case GgufKind::kU8:
    case GgufKind::kI8:
    case GgufKind::kBool:
      return 1;
    case GgufKind::kU16:
    case GgufKind::kI16:
      return 2;
    case GgufKind::kU32:
    case GgufKind::kI32:
    case GgufKind::kF32:
      return 4;
    default:
      return 8;  // a string has its length, of eight bytes, before it
  }
}

// A control character in a message would break its line, and a long name flood it.
std::string printable(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  std::string shown;
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return text.size() > kMaxShown ? shown + "..." : shown;
}

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  std::uint64_t left() const { return file_.size() - at_; }
  std::uint64_t at() const { return at_; }

  std::span<const std::byte> take(std::uint64_t bytes, std::string_view what) {
    if (bytes > left()) {
      throw damaged_error("{} of {} bytes, and {} are left in the file", what, bytes, left());
    }
    const auto taken = file_.subspan(at_, bytes);
    at_ += bytes;
    return taken;
  }
  template <typename T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  std::string_view string(std::string_view what) {
    const auto bytes = take(number<std::uint64_t>(what), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // A count of things that take at least `each` bytes: no more than the file has room for.
  std::uint64_t count(std::uint64_t stated, std::uint64_t each, std::string_view what) const {
    if (stated > left() / each) {
      throw damaged_error("{} {}, and the {} bytes left in the file hold at most {}", stated, what,
                          left(), left() / each);
    }
    return stated;
  }

 private:
  std::span<const std::byte> file_;
  std::uint64_t at_ = 0;
};

GgufKind read_kind(Cursor& cursor) {
  const auto kind = cursor.number<std::uint32_t>("a kind");
  if (kind > static_cast<std::uint32_t>(GgufKind::kF64)) {
    throw damaged_error("kind {} is none of the format's", kind);
  }
  return static_cast<GgufKind>(kind);
}

GgufValue read_value(Cursor& cursor) {
  GgufValue value;
  value.kind = read_kind(cursor);
  std::uint64_t count = 1;
  if (value.kind == GgufKind::kArray) {
    value.is_array = true;
    value.kind = read_kind(cursor);
    if (value.kind == GgufKind::kArray)
      throw damaged_error("an array of arrays, which no model has");
    count = cursor.count(cursor.number<std::uint64_t>("a count"), size_of(value.kind), "elements");
  }
  if (value.kind == GgufKind::kString) {
    value.strings.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) value.strings.push_back(cursor.string("a string"));
    return value;
  }
  value.bytes = cursor.take(count * size_of(value.kind), "a value");
  if (value.kind == GgufKind::kBool) {
    for (const std::byte byte : value.bytes) {
      if (byte > std::byte{1}) throw damaged_error("{} is no boolean", std::to_integer<int>(byte));
    }
  }
  return value;
}

// Does a step; an error of it says at which entry of a table it was. The name is read in a step of
// its own: where one try block both reads it and uses it in its handler, GCC 12 (ipa-modref) leaves
// it undefined when the reading throws.
template <typename Step>
auto at_entry(std::string_view what, std::uint64_t i, std::uint64_t count, std::string_view name,
              Step&& step) {
  try {
    return step();
  } catch (const Error& error) {
    throw make_error(error.kind(), "{} {} of {}, \"{}\": {}", what, i + 1, count, printable(name),
                     error.what());
  }
}

void read_metadata(Cursor& cursor, std::uint64_t count, GgufHeader& header) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view key =
        at_entry("metadata", i, count, "", [&] { return cursor.string("a key"); });
    at_entry("metadata", i, count, key, [&] {
      if (header.metadata.contains(key)) throw damaged_error("it is there twice");
      header.metadata.emplace(key, read_value(cursor));
    });
  }
}

// Bytes of all rows; the product of four numbers from a file can overflow into any.
std::uint64_t bytes_needed(const GgufTensor& tensor) {
  const GgmlLayout layout = ggml_layout(tensor.type);
  const std::int64_t width = tensor.shape.back();
  if (width % layout.block_elements != 0) {
    throw damaged_error("rows of {} elements are no whole blocks of {}'s {}", width, layout.name,
                        layout.block_elements);
  }
  auto bytes = static_cast<std::uint64_t>(width / layout.block_elements);
  bool overflow = __builtin_mul_overflow(bytes, layout.block_bytes, &bytes);
  std::int64_t elements = width;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    const std::int64_t dim = tensor.shape[i];
    overflow = overflow || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes) ||
               __builtin_mul_overflow(elements, dim, &elements);
  }
  if (overflow) throw damaged_error("its shape has more elements than any memory");
  return bytes;
}

// Leaves in begin and end what they are within the data.
GgufTensor read_tensor(Cursor& cursor, std::uint64_t alignment) {
  GgufTensor tensor;
  const auto rank = cursor.number<std::uint32_t>("a number of dims");
  if (rank == 0 || rank > kMaxRank) throw damaged_error("{} dims, not 1 to {}", rank, kMaxRank);
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto dim = cursor.number<std::uint64_t>("a dim");
    if (dim == 0 || dim > INT64_MAX) throw damaged_error("dim {} is no size", dim);
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  const auto number = cursor.number<std::uint32_t>("a type");
  const std::optional<GgmlType> type = ggml_type(number);
  if (!type) {
    throw user_error("its type is {}, which atoll does not read; have the file in f16 or Q8_0",
                     type_name(number));
  }
  tensor.type = *type;
  tensor.begin = cursor.number<std::uint64_t>("an offset");
  if (tensor.begin % alignment != 0) {
    throw damaged_error("offset {} is not a multiple of the alignment {}", tensor.begin, alignment);
  }
  if (__builtin_add_overflow(tensor.begin, bytes_needed(tensor), &tensor.end)) {
    throw damaged_error("offset {} is beyond any file", tensor.begin);
  }
  return tensor;
}

std::uint64_t read_alignment(const GgufHeader& header) {
  const auto found = header.metadata.find("general.alignment");
  if (found == header.metadata.end()) return 32;
  const GgufValue& value = found->second;
  std::uint32_t alignment = 0;
  if (value.kind == GgufKind::kU32 && !value.is_array) {
    std::memcpy(&alignment, value.bytes.data(), sizeof alignment);
  }
  if (!std::has_single_bit(alignment)) {
    throw damaged_error("general.alignment {} is not a power of two", alignment);
  }
  return alignment;
}

void read_tensors(Cursor& cursor, std::uint64_t count, GgufHeader& header) {
  const std::uint64_t alignment = read_alignment(header);
  std::set<std::string_view> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view name =
        at_entry("tensor", i, count, "", [&] { return cursor.string("a name"); });
    at_entry("tensor", i, count, name, [&] {
      if (!names.insert(name).second) throw damaged_error("it is there twice");
      header.tensors.push_back(read_tensor(cursor, alignment));
      header.tensors.back().name = name;
    });
  }
}

// That bytes [begin, end) of the file are the zeros that fill up to the next multiple of the
// alignment. Anything more is a tensor whose shape says less than its writer's, and would be left
// unread without a word.
void check_padding(std::span<const std::byte> file, std::uint64_t begin, std::uint64_t end,
                   std::uint64_t alignment, std::string_view behind) {
  const std::uint64_t padding = (alignment - begin % alignment) % alignment;
  if (end - begin > padding) {
    throw damaged_error("bytes {} to {} of the file, behind {}, are no tensor's", begin + padding,
                        end, behind);
  }
  const std::span<const std::byte> zeros = file.subspan(begin, end - begin);
  if (std::all_of(zeros.begin(), zeros.end(), [](std::byte b) { return b == std::byte{0}; }))
    return;
  throw damaged_error("bytes {} to {} of the file, behind {}, are no tensor's and not zero", begin,
                      end, behind);
}

// Turns offsets within the data into offsets within the file, and looks that the tensors and what
// fills up to the alignment are all of it.
void place(GgufHeader& header, std::uint64_t header_bytes, std::span<const std::byte> file) {
  const std::uint64_t alignment = read_alignment(header);
  const std::uint64_t padding = (alignment - header_bytes % alignment) % alignment;
  const std::uint64_t data = header_bytes + padding;
  const std::uint64_t data_bytes = file.size() > data ? file.size() - data : 0;
  std::vector<const GgufTensor*> order;
  for (GgufTensor& tensor : header.tensors) {
    if (tensor.end > data_bytes) {
      throw damaged_error("tensor \"{}\" is bytes {} to {} of the data, which has {}",
                          printable(tensor.name), tensor.begin, tensor.end, data_bytes);
    }
    tensor.begin += data;
    tensor.end += data;
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->begin < b->begin; });
  std::uint64_t end = header_bytes;
  std::string behind = "the header";
  for (const GgufTensor* tensor : order) {
    if (tensor->begin < end) {
      throw damaged_error("{} and tensor \"{}\" overlap at byte {} of the file", behind,
                          printable(tensor->name), tensor->begin);
    }
    check_padding(file, end, tensor->begin, alignment, behind);
    end = tensor->end;
    behind = fmt::format("tensor \"{}\"", printable(tensor->name));
  }
  check_padding(file, end, file.size(), alignment, behind);
}

}  // namespace

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& origin) {
  // The least that a metadata entry and a tensor's entry can take.
  constexpr std::uint64_t kEntryBytes = 8 + 4 + 1;
  constexpr std::uint64_t kTensorBytes = 8 + 4 + 8 + 4 + 8;
  refuse_lfs_pointer({reinterpret_cast<const char*>(file.data()), file.size()}, origin);
  try {
    Cursor cursor(file);
    if (file.size() < 4 || std::memcmp(file.data(), "GGUF", 4) != 0) {
      throw damaged_error("it does not begin with \"GGUF\"");
    }
    cursor.take(4, "the mark");
    GgufHeader header;
    header.version = cursor.number<std::uint32_t>("the version");
    if (header.version != 2 && header.version != 3) {
      throw user_error("version {}; atoll reads 2 and 3, little-endian", header.version);
    }
    const auto num_tensors = cursor.number<std::uint64_t>("the number of tensors");
    const auto num_entries = cursor.number<std::uint64_t>("the number of metadata entries");
    cursor.count(num_tensors, kTensorBytes, "tensors");
    read_metadata(cursor, cursor.count(num_entries, kEntryBytes, "metadata entries"), header);
    read_tensors(cursor, cursor.count(num_tensors, kTensorBytes, "tensors"), header);
    place(header, cursor.at(), file);
    return header;
  } catch (const Error& error) {
    throw make_error(error.kind(), "{}: GGUF: {}", origin, error.what());
  }
}

}  // namespace atl::ckpt
