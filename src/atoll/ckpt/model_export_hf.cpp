#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/ckpt/convert.h"
#include "atoll/ckpt/float_rows.h"
#include "atoll/ckpt/hf_directory.h"
#include "atoll/ckpt/model_export.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/new_directory.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kIndexSuffix = ".index.json";

// A checkpoint's own, and weights in any format: what is left is the model's and travels.
bool travels(const std::string& name) {
  constexpr std::string_view kNot[] = {"config.json", "trainer.json", "manifest.json",
                                       kSourceDtypesFile};
  constexpr std::string_view kWeights[] = {".safetensors", ".bin",     ".pt",   ".pth", ".ckpt",
                                           ".gguf",        ".msgpack", ".onnx", ".h5",  ".npz"};
  return !name.starts_with('.') && !name.ends_with(kIndexSuffix) &&
         std::find(std::begin(kNot), std::end(kNot), name) == std::end(kNot) &&
         std::none_of(std::begin(kWeights), std::end(kWeights),
                      [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// A tensor of a file, converted while it is written.
TensorSource converted(const HfDirectory& directory, const std::string& name, Dtype dtype) {
  const SafetensorsFile& file = directory.file_of(name);
  const Spec spec = file.spec(name);
  return {name, {dtype, spec.shape}, [&file, name, from = spec.dtype, dtype](const ByteSink& sink) {
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
              check_fits_f32(from, piece, name);
              convert_to_f32(from, piece, values);
              check_fits(values, dtype, name);
              convert_from_f32(values, dtype, out);
              sink(out.data(), out.size());
            }
          }};
}

bool is_as_it_was(const HfDirectory& directory, const FileDtypes& dtypes) {
  for (const SafetensorsFile& file : directory.files()) {
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto wanted = dtypes.find(entry.name);
      if (wanted != dtypes.end() && safetensors_name(wanted->second) != entry.dtype) return false;
    }
  }
  return true;
}

// The dtype of most elements.
Dtype main_dtype(std::span<const TensorSource> sources) {
  std::map<Dtype, std::int64_t> elements;
  for (const TensorSource& source : sources) {
    elements[source.spec.dtype] += source.spec.shape.num_elements();
  }
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? Dtype::kF32 : most->first;
}

std::vector<TensorSource> sources_of(const HfDirectory& directory, const FileDtypes& dtypes) {
  std::vector<TensorSource> sources;
  for (const SafetensorsFile& file : directory.files()) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (is_buffer(entry.name)) continue;
      const auto dtype = dtypes.find(entry.name);
      if (dtype == dtypes.end()) {
        throw user_error("{}: tensor \"{}\" is {}, which cannot be converted", file.path().string(),
                         entry.name, entry.dtype);
      }
      sources.push_back(converted(directory, entry.name, dtype->second));
    }
  }
  return sources;
}

void copy_weights(const HfDirectory& directory, const fs::path& to) {
  for (const SafetensorsFile& file : directory.files()) {
    copy_durably(file.path(), to / file.path().filename());
  }
  constexpr const char* kIndex = "model.safetensors.index.json";
  if (directory.has_file(kIndex)) copy_durably(directory.path() / kIndex, to / kIndex);
}

}  // namespace

void export_hf(const fs::path& from, const fs::path& to, const HfExportOptions& options) {
  const HfDirectory directory(from);
  FileDtypes dtypes = directory.source_dtypes();
  if (options.dtype) {
    for (auto& [name, dtype] : dtypes) dtype = *options.dtype;
  }
  NewDirectory made(to, "--out");
  const fs::path config = made.temporary() / "config.json";
  if (!options.dtype && !options.shard_bytes && is_as_it_was(directory, dtypes)) {
    copy_weights(directory, made.temporary());
    write_file(config, directory.config_json());
  } else {
    const std::vector<TensorSource> sources = sources_of(directory, dtypes);
    write_weights(made.temporary(), sources, options.shard_bytes.value_or(kDefaultShardBytes));
    // A cut alone changes nothing that config.json says.
    const bool is_recut = !options.dtype && is_as_it_was(directory, dtypes);
    write_file(config, is_recut ? directory.config_json()
                                : with_dtype(directory.config_json(), main_dtype(sources),
                                             (from / "config.json").string()));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && travels(name) && !options.files.contains(name)) {
      copy_durably(entry.path(), made.temporary() / name);
    }
  }
  for (const auto& [name, content] : options.files) write_file(made.temporary() / name, content);
  made.commit();
}

}  // namespace atl::ckpt
