#include <algorithm>
#include <charconv>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/manifest.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/ckpt/safetensors/float_rows.h"
#include "atoll/model_dir/export.h"
#include "atoll/model_dir/new_directory.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kIndexSuffix = ".index.json";

// A checkpoint's own, and weights in any format: what is left is the model's and travels.
bool travels(const std::string& name) {
  constexpr std::string_view kNot[] = {"config.json", "trainer.json", "manifest.json",
                                       ckpt::kSourceDtypesFile};
  constexpr std::string_view kWeights[] = {".safetensors", ".bin",     ".pt",   ".pth", ".ckpt",
                                           ".gguf",        ".msgpack", ".onnx", ".h5",  ".npz"};
  return !name.starts_with('.') && !name.ends_with(kIndexSuffix) &&
         std::find(std::begin(kNot), std::end(kNot), name) == std::end(kNot) &&
         std::none_of(std::begin(kWeights), std::end(kWeights),
                      [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// What prepares pictures and films for the parts that a language model lacks.
bool is_of_pictures(const std::string& name) {
  constexpr std::string_view kNames[] = {"preprocessor_config.json", "processor_config.json",
                                         "video_preprocessor_config.json"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// A tensor of a file, converted while it is written.
ckpt::TensorSource converted(const ckpt::HfDirectory& directory, const std::string& name,
                             Dtype dtype) {
  const ckpt::SafetensorsFile& file = directory.file_of(name);
  const Spec spec = file.spec(name);
  return {name,
          {dtype, spec.shape},
          [&file, name, from = spec.dtype, dtype](const ckpt::ByteSink& sink) {
            const std::span<const std::byte> bytes = file.bytes(name);
            if (from == dtype) {
              if (!bytes.empty()) sink(bytes.data(), bytes.size());
              return;
            }
            constexpr std::size_t kPiece = 65536;
            const std::size_t count = bytes.size() / dtype_size(from);
            std::vector<float> values;
            std::vector<std::byte> out;
            for (std::size_t begin = 0; begin < count; begin += kPiece) {
              values.resize(std::min(kPiece, count - begin));
              out.resize(values.size() * dtype_size(dtype));
              const auto piece =
                  bytes.subspan(begin * dtype_size(from), values.size() * dtype_size(from));
              ckpt::check_fits_f32(from, piece, name);
              ckpt::convert_to_f32(from, piece, values);
              ckpt::check_fits(values, dtype, name);
              ckpt::convert_from_f32(values, dtype, out);
              sink(out.data(), out.size());
            }
          }};
}

bool is_as_it_was(const ckpt::HfDirectory& directory, const ckpt::FileDtypes& dtypes) {
  if (directory.is_language_part()) return false;
  for (const ckpt::SafetensorsFile& file : directory.files()) {
    for (const ckpt::SafetensorsEntry& entry : file.entries()) {
      const auto wanted = dtypes.find(entry.name);
      if (wanted != dtypes.end() && ckpt::safetensors_name(wanted->second) != entry.dtype)
        return false;
    }
  }
  return true;
}

// The dtype of most elements.
Dtype main_dtype(std::span<const ckpt::TensorSource> sources) {
  std::map<Dtype, std::int64_t> elements;
  for (const ckpt::TensorSource& source : sources) {
    elements[source.spec.dtype] += source.spec.shape.num_elements();
  }
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? Dtype::kF32 : most->first;
}

// Digits by what they count: layer 10 after layer 9.
bool in_natural_order(std::string_view a, std::string_view b) {
  const auto number = [](std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() ? std::pair(value, static_cast<std::size_t>(end - text.data()))
                                : std::pair<std::uint64_t, std::size_t>(0, 0);
  };
  while (!a.empty() && !b.empty()) {
    const auto [value_a, size_a] = number(a);
    const auto [value_b, size_b] = number(b);
    if (size_a > 0 && size_b > 0) {
      if (value_a != value_b) return value_a < value_b;
      a.remove_prefix(size_a);
      b.remove_prefix(size_b);
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

// As many files of weights as ranks wrote, each with what its rank had: no cut by size.
bool is_cut_by_ranks(const ckpt::HfDirectory& directory) {
  return directory.has_file(ckpt::kManifestFile) && directory.files().size() > 1;
}

bool is_too_large(const ckpt::HfDirectory& directory) {
  return directory.has_file(ckpt::kManifestFile) &&
         fs::file_size(directory.files().front().path()) > ckpt::kDefaultShardBytes;
}

std::vector<ckpt::TensorSource> sources_of(const ckpt::HfDirectory& directory,
                                           const ckpt::FileDtypes& dtypes) {
  std::vector<ckpt::TensorSource> sources;
  for (const ckpt::SafetensorsFile& file : directory.files()) {
    for (const ckpt::SafetensorsEntry& entry : file.entries()) {
      if (ckpt::is_buffer(entry.name)) continue;
      const auto dtype = dtypes.find(entry.name);
      if (dtype == dtypes.end()) {
        throw user_error("{}: tensor \"{}\" is {}, which cannot be converted", file.path().string(),
                         entry.name, entry.dtype);
      }
      sources.push_back(converted(directory, entry.name, dtype->second));
    }
  }
  if (is_cut_by_ranks(directory)) {
    std::sort(sources.begin(), sources.end(),
              [](const ckpt::TensorSource& a, const ckpt::TensorSource& b) {
                return in_natural_order(a.name, b.name);
              });
  }
  return sources;
}

void copy_weights(const ckpt::HfDirectory& directory, const fs::path& to) {
  for (const ckpt::SafetensorsFile& file : directory.files()) {
    copy_durably(file.path(), to / file.path().filename());
  }
  constexpr const char* kIndex = "model.safetensors.index.json";
  if (directory.has_file(kIndex)) copy_durably(directory.path() / kIndex, to / kIndex);
}

}  // namespace

void export_hf(const fs::path& from, const fs::path& to, const HfExportOptions& options) {
  const ckpt::HfDirectory directory(from);
  ckpt::FileDtypes dtypes = directory.source_dtypes();
  if (options.dtype) {
    for (auto& [name, dtype] : dtypes) dtype = *options.dtype;
  }
  NewDirectory made(to, "--out");
  const fs::path config = made.temporary() / "config.json";
  const bool is_cut = options.shard_bytes || is_cut_by_ranks(directory) || is_too_large(directory);
  if (!options.dtype && !is_cut && is_as_it_was(directory, dtypes)) {
    copy_weights(directory, made.temporary());
    write_file(config, directory.config_json());
  } else {
    const std::vector<ckpt::TensorSource> sources = sources_of(directory, dtypes);
    ckpt::write_weights(made.temporary(), sources,
                        options.shard_bytes.value_or(ckpt::kDefaultShardBytes));
    // A cut alone changes nothing that config.json says; a language part has its own already.
    const bool is_recut =
        !options.dtype && (directory.is_language_part() || is_as_it_was(directory, dtypes));
    write_file(config, is_recut ? directory.config_json()
                                : ckpt::with_dtype(directory.config_json(), main_dtype(sources),
                                                   (from / "config.json").string()));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && travels(name) && !options.files.contains(name) &&
        !(directory.is_language_part() && is_of_pictures(name))) {
      copy_durably(entry.path(), made.temporary() / name);
    }
  }
  for (const auto& [name, content] : options.files) write_file(made.temporary() / name, content);
  made.commit();
}

}  // namespace atl::model_dir
