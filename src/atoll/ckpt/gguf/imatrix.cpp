#include "atoll/ckpt/gguf/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/gguf/gguf.h"

namespace atl::ckpt {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

std::vector<float> values_of(const GgufFile& file, const GgufTensor& tensor) {
  const FloatRows rows = file.rows(tensor);
  const auto width = static_cast<std::size_t>(rows.width());
  std::vector<float> values(static_cast<std::size_t>(rows.num_rows()) * width);
  const RowReader read = rows.open();
  for (std::int64_t r = 0; r < rows.num_rows(); ++r) {
    read(r, std::span(values).subspan(static_cast<std::size_t>(r) * width, width));
  }
  return values;
}

void check_values(const std::vector<float>& values, const fs::path& path, std::string_view name) {
  const auto wrong = std::find_if(values.begin(), values.end(), [](float value) {
    return !(value >= 0) || !std::isfinite(value);
  });
  if (wrong == values.end()) return;
  throw damaged_error("{}: \"{}\" holds {}, and mean squares are finite and not negative",
                      path.string(), name, *wrong);
}

// Sums over tokens become means, matrix by matrix: each has as many columns as the others.
void divide(std::vector<float>& sums, const std::vector<float>& counts) {
  const std::size_t columns = sums.size() / counts.size();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float count = counts[i / columns];
    sums[i] = count > 0 ? sums[i] / count : 1;
  }
}

Imatrix read_gguf(const fs::path& path) {
  const GgufFile file(path);
  Imatrix imatrix;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const GgufTensor* counted = file.find(name + std::string(kCounts));
    std::vector<float> sums = values_of(file, tensor);
    const std::vector<float> counts =
        counted == nullptr ? std::vector<float>{} : values_of(file, *counted);
    if (counts.empty() || sums.size() % counts.size() != 0) {
      throw damaged_error("{}: {} sums of \"{}\" and {} counts", path.string(), sums.size(), name,
                          counts.size());
    }
    check_values(counts, path, name);
    divide(sums, counts);
    check_values(sums, path, name);
    imatrix.columns[name] = std::move(sums);
  }
  if (file.has("imatrix.datasets")) {
    for (const std::string_view text : file.texts("imatrix.datasets")) {
      imatrix.datasets.emplace_back(text);
    }
  }
  imatrix.chunks = file.integer("imatrix.chunk_count", 0);
  return imatrix;
}

// The older file: a number of entries, each with a name, a count of chunks and sums over these;
// perhaps the number of chunks and the text's name behind them. All numbers have 32 bits.
class OldReader {
 public:
  explicit OldReader(const fs::path& path) : path_(path), file_(path), rest_(file_.bytes()) {}

  Imatrix read() {
    Imatrix imatrix;
    const std::int32_t entries = number("the number of entries");
    for (std::int32_t i = 0; i < entries; ++i) {
      std::string name = text(fmt::format("the name of entry {} of {}", i + 1, entries));
      const std::int32_t calls = number(name);
      std::vector<float> sums = floats(name);
      if (calls > 0) divide(sums, {static_cast<float>(calls)});
      check_values(sums, path_, name);
      imatrix.columns[std::move(name)] = std::move(sums);
    }
    if (rest_.empty()) return imatrix;
    imatrix.chunks = number("the number of chunks");
    if (!rest_.empty()) imatrix.datasets.push_back(text("the text's name"));
    return imatrix;
  }

 private:
  std::span<const std::byte> take(std::size_t bytes, std::string_view what) {
    if (bytes > rest_.size()) {
      throw damaged_error("{}: {} needs {} bytes, and {} are left; is it an importance matrix?",
                          path_.string(), what, bytes, rest_.size());
    }
    const std::span<const std::byte> taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  // All of them are counts.
  std::int32_t number(std::string_view what) {
    std::int32_t value = 0;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    if (value < 0) throw damaged_error("{}: {} is {}", path_.string(), what, value);
    return value;
  }
  std::string text(std::string_view what) {
    const auto bytes = take(static_cast<std::size_t>(number(what)), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<float> floats(std::string_view what) {
    const auto count = static_cast<std::size_t>(number(what));
    const auto bytes = take(count * sizeof(float), what);
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  const fs::path& path_;
  MappedFile file_;
  std::span<const std::byte> rest_;
};

bool begins_as_gguf(const fs::path& path) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

}  // namespace

Imatrix read_imatrix(const fs::path& path) {
  Imatrix imatrix = begins_as_gguf(path) ? read_gguf(path) : OldReader(path).read();
  if (imatrix.columns.empty()) {
    throw user_error(
        "{}: there is no importance of any tensor in it; llama-imatrix makes such files",
        path.string());
  }
  imatrix.name = path.filename().string();
  return imatrix;
}

}  // namespace atl::ckpt
