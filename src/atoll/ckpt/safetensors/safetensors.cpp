#include "atoll/ckpt/safetensors/safetensors.h"

#include <cstring>

#include "atoll/base/check.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/tensor/host_access.h"

namespace atl::ckpt {

namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

Shape to_shape(const std::vector<std::int64_t>& dims) {
  switch (dims.size()) {
    case 0:
      return {};
    case 1:
      return {dims[0]};
    case 2:
      return {dims[0], dims[1]};
    case 3:
      return {dims[0], dims[1], dims[2]};
    default:
      return {dims[0], dims[1], dims[2], dims[3]};
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), header_(parse_safetensors(file_.bytes(), path.string())) {
  for (std::size_t i = 0; i < header_.entries.size(); ++i) index_[header_.entries[i].name] = i;
}

void SafetensorsFile::rename(const std::function<std::string(std::string_view)>& name_of) {
  std::vector<SafetensorsEntry> kept;
  index_.clear();
  for (SafetensorsEntry& entry : header_.entries) {
    std::string name = name_of(entry.name);
    if (name.empty()) continue;
    if (!index_.emplace(name, kept.size()).second) {
      throw damaged_error("{}: tensor \"{}\" is \"{}\" under another name, which is there too",
                          path_.string(), entry.name, name);
    }
    entry.name = std::move(name);
    kept.push_back(std::move(entry));
  }
  header_.entries = std::move(kept);
}

const SafetensorsEntry& SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    throw user_error("{} has no tensor \"{}\" among its {}; is it of another model?",
                     path_.string(), name, index_.size());
  }
  return header_.entries[found->second];
}

Spec SafetensorsFile::spec(std::string_view name) const {
  const SafetensorsEntry& entry = find(name);
  const std::optional<Dtype> dtype = dtype_from_safetensors(entry.dtype);
  if (!dtype) {
    throw user_error("{}: tensor \"{}\" is {}, which atoll does not compute with; convert it first",
                     path_.string(), name, entry.dtype);
  }
  if (entry.shape.size() > Shape::kMaxRank) {
    throw user_error("{}: tensor \"{}\" {} has more than {} dims", path_.string(), name,
                     shape_text(entry.shape), int{Shape::kMaxRank});
  }
  return {*dtype, to_shape(entry.shape)};
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const SafetensorsEntry& entry = find(name);
  return file_.bytes().subspan(header_.data_offset + entry.begin, entry.end - entry.begin);
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const Spec spec = this->spec(name);
  const std::byte* data = bytes(name).data();
  if (reinterpret_cast<std::uintptr_t>(data) % dtype_size(spec.dtype) != 0) {
    throw user_error("{}: tensor \"{}\" is not aligned for {}; write the file anew", path_.string(),
                     name, dtype_name(spec.dtype));
  }
  // Tensor has no const form; the pages are mapped read-only.
  return {const_cast<std::byte*>(data), spec};
}

void SafetensorsFile::read(std::string_view name, Tensor out) const {
  const Spec spec = this->spec(name);
  if (spec != out.spec()) {
    throw user_error("{}: tensor \"{}\" is {}, expected {}", path_.string(), name, spec.to_string(),
                     out.spec().to_string());
  }
  write_on_host<std::byte>(out, [&](std::span<std::byte> to) {
    if (!to.empty()) std::memcpy(to.data(), bytes(name).data(), to.size());
  });
}

Dtype SafetensorsFile::check_floats(std::string_view name, const Shape& shape) const {
  const Spec spec = this->spec(name);
  if (!converts_to_f32(spec.dtype)) {
    throw user_error("{}: tensor \"{}\" is {}, expected floats", path_.string(), name,
                     dtype_name(spec.dtype));
  }
  if (spec.shape != shape) {
    throw user_error("{}: tensor \"{}\" has shape {}, expected {}", path_.string(), name,
                     spec.shape.to_string(), shape.to_string());
  }
  return spec.dtype;
}

void SafetensorsFile::read_floats(std::string_view name, Tensor out) const {
  const Dtype from = check_floats(name, out.shape());
  write_on_host<std::byte>(out, [&](std::span<std::byte> to) {
    convert_floats(from, bytes(name), out.dtype(), to, name);
  });
}

void SafetensorsFile::read_f32(std::string_view name, Tensor out) const {
  const Spec spec = this->spec(name);
  if (spec.shape != out.shape()) {
    throw user_error("{}: tensor \"{}\" has shape {}, expected {}", path_.string(), name,
                     spec.shape.to_string(), out.shape().to_string());
  }
  write_on_host<float>(out, [&](std::span<float> to) { read_f32(name, to); });
}

void SafetensorsFile::read_f32(std::string_view name, std::span<float> out) const {
  const Spec spec = this->spec(name);
  if (!converts_to_f32(spec.dtype)) {
    throw user_error("{}: tensor \"{}\" is {}, expected floats", path_.string(), name,
                     dtype_name(spec.dtype));
  }
  if (static_cast<std::size_t>(spec.shape.num_elements()) != out.size()) {
    throw user_error("{}: tensor \"{}\" has shape {}, expected {} elements", path_.string(), name,
                     spec.shape.to_string(), out.size());
  }
  check_fits_f32(spec.dtype, bytes(name), name);
  convert_to_f32(spec.dtype, bytes(name), out);
}

}  // namespace atl::ckpt
