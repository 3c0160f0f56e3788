#include <nlohmann/json.hpp>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/text/testing.h"
#include "atoll/text/utf8.h"

// What testing.h declares; a _test.cpp, so that no program but the tests holds it.

namespace atl::text::testing {

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace

std::filesystem::path testdata() {
  return test_source_dir() / "src/atoll/text/testdata";
}

std::vector<std::string> awkward_strings(std::size_t count, std::uint64_t seed) {
  const auto data = nlohmann::json::parse(read_file(testdata() / "fragments.json"));
  const auto text = data["text"].get<std::vector<std::string>>();
  std::vector<std::string> invalid;
  for (const auto& hex : data["invalid"]) invalid.push_back(from_hex(hex.get<std::string>()));
  std::vector<std::string> strings = {""};
  strings.insert(strings.end(), text.begin(), text.end());
  strings.insert(strings.end(), invalid.begin(), invalid.end());
  Random random(seed);
  while (strings.size() < count) {
    const std::uint64_t kind = random.below(100);
    std::string run;
    if (kind < 15) {
      for (std::uint64_t left = 1 + random.below(11); left > 0; --left) {
        const bool ascii = random.below(2) == 0;
        append_utf8(
            static_cast<char32_t>(ascii ? 32 + random.below(95) : 0x80 + random.below(0xD780)),
            run);
      }
    } else {
      for (std::uint64_t left = 1 + random.below(8); left > 0; --left) {
        const auto& pool = kind < 25 && random.below(3) == 0 ? invalid : text;
        run += pool[random.below(pool.size())];
      }
    }
    strings.push_back(std::move(run));
  }
  strings.resize(count);
  return strings;
}

std::string lossy(std::string_view raw) {
  std::string out;
  while (!raw.empty()) {
    const Utf8Step step = utf8_step(raw);
    out += step.kind == Utf8Kind::kValid ? raw.substr(0, step.size) : kReplacementCharacter;
    raw.remove_prefix(step.size);
  }
  return out;
}

void BlockHash::add(std::string_view bytes) {
  const auto mix = [&](unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001B3U; };
  for (const char c : bytes) mix(static_cast<unsigned char>(c));
  for (int shift = 0; shift < 32; shift += 8) {
    mix(static_cast<unsigned char>(bytes.size() >> shift));
  }
}

std::string BlockHash::digest() const {
  return fmt::format("{:016x}", value_);
}

std::string id_bytes(const std::vector<std::int32_t>& ids) {
  std::string bytes;
  for (const std::int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(id >> shift));
  }
  return bytes;
}

}  // namespace atl::text::testing
