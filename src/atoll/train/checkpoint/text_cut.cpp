#include "atoll/train/checkpoint/text_cut.h"

#include <charconv>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/train/checkpoint/contents.h"

namespace atl::train {

std::optional<TextCut> text_cut_of(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "trainer.json";
  if (!path_exists(path)) return std::nullopt;
  const Position position = read_position(directory);
  const auto setting = [&](const std::string& key) -> const std::string& {
    for (const auto& [name, value] : position.settings) {
      if (name == key) return value;
    }
    throw damaged_error("{}: \"settings\" has no {}", path.string(), key);
  };
  TextCut cut;
  const std::string& context = setting("train.context");
  const char* end = context.data() + context.size();
  const auto parsed = std::from_chars(context.data(), end, cut.context);
  if (parsed.ec != std::errc() || parsed.ptr != end || cut.context < 1) {
    throw damaged_error("{}: train.context is {}, which is no length", path.string(), context);
  }
  std::string packing = setting("data.packing");  // a TOML value: in quotes
  std::erase(packing, '"');
  cut.packing = data::parse_packing(packing, path.string() + ": data.packing");
  return cut;
}

}  // namespace atl::train
