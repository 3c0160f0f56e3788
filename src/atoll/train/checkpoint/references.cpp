#include "atoll/train/checkpoint/references.h"

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/hash.h"

namespace atl::train {

namespace {

constexpr std::string_view kMagic = "atoll references 1";

std::string bytes_of(const References& references) {
  std::string bytes;
  for (const std::vector<double>* part : {&references.train, &references.held_out}) {
    bytes.append(reinterpret_cast<const char*>(part->data()), part->size() * sizeof(double));
  }
  return bytes;
}

std::string hash_of_bytes(std::string_view bytes) {
  return to_hex(hash_bytes(bytes.data(), bytes.size()));
}

}  // namespace

std::string References::hash() const {
  return hash_of_bytes(bytes_of(*this));
}

void write_references(const std::filesystem::path& path, const std::string& key,
                      const References& references) {
  write_file(path,
             fmt::format("{}\n{}\n{} {} {}\n{}", kMagic, key, references.train.size(),
                         references.held_out.size(), references.hash(), bytes_of(references)));
}

std::optional<StoredReferences> read_references(const std::filesystem::path& path) {
  if (!path_exists(path)) return std::nullopt;
  const MappedFile file(path);
  const std::string_view content(reinterpret_cast<const char*>(file.bytes().data()),
                                 file.bytes().size());
  std::string_view rest = content;
  const auto take_line = [&] {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
  };
  if (take_line() != kMagic) return std::nullopt;
  StoredReferences stored;
  stored.key = take_line();
  std::istringstream line{std::string(take_line())};
  std::uint64_t train = 0, held_out = 0;
  std::string hash;
  line >> train >> held_out >> hash;
  const std::uint64_t numbers = rest.size() / sizeof(double);
  const bool is_whole = !line.fail() && train <= numbers && held_out == numbers - train &&
                        rest.size() % sizeof(double) == 0 && hash_of_bytes(rest) == hash;
  if (!is_whole) return std::nullopt;
  stored.references.train.resize(train);
  stored.references.held_out.resize(held_out);
  std::memcpy(stored.references.train.data(), rest.data(), train * sizeof(double));
  std::memcpy(stored.references.held_out.data(), rest.data() + train * sizeof(double),
              held_out * sizeof(double));
  return stored;
}

}  // namespace atl::train
