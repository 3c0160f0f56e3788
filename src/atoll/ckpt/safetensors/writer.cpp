#include "atoll/ckpt/safetensors/writer.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/tensor/host_access.h"

namespace atl::ckpt {

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Json = nlohmann::ordered_json;
using Order = std::vector<const TensorSource*>;

Order order_of_bytes(std::span<const TensorSource> sources) {
  Order order;
  for (const TensorSource& source : sources) order.push_back(&source);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_size(a->spec.dtype) > dtype_size(b->spec.dtype);
  });
  return order;
}

Json shape_to_json(const Shape& shape) {
  Json dims = Json::array();
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
  return dims;
}

void append_member(std::string& object, const std::string& key, const Json& value) {
  try {
    object += (object.size() > 1 ? "," : "") + Json(key).dump() + ":" + value.dump();
  } catch (const Json::exception& error) {
    ATOLL_CHECK(false, "a name or the metadata is no text: {}", error.what());
  }
}

std::string header_of(const Order& order, const Metadata& metadata) {
  // Put together as text: an ordered_json of many keys searches all of them for each new one.
  std::string text = "{";
  std::set<std::string_view> names = {"__metadata__"};
  std::uint64_t offset = 0;
  if (!metadata.empty()) append_member(text, "__metadata__", metadata);
  for (const TensorSource* source : order) {
    ATOLL_CHECK(names.insert(source->name).second, "tensor name \"{}\" twice", source->name);
    const std::uint64_t end = offset + source->spec.bytes();
    const Json entry = {{"dtype", safetensors_name(source->spec.dtype)},
                        {"shape", shape_to_json(source->spec.shape)},
                        {"data_offsets", {offset, end}}};
    append_member(text, source->name, entry);
    offset = end;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

WrittenFile write_safetensors(const std::filesystem::path& path,
                              std::span<const TensorSource> sources, const Metadata& metadata) {
  const Order order = order_of_bytes(sources);
  const std::string header = header_of(order, metadata);
  AtomicFile file(path);
  const std::uint64_t header_bytes = header.size();
  file.write(&header_bytes, sizeof header_bytes);
  file.write(header);
  for (const TensorSource* source : order) {
    const std::uint64_t end = file.bytes_written() + source->spec.bytes();
    source->produce([&](const void* data, std::size_t size) {
      ATOLL_CHECK(size <= end - file.bytes_written(), "{}: {} bytes too many", source->name,
                  size - (end - file.bytes_written()));
      file.write(data, size);
    });
    ATOLL_CHECK(file.bytes_written() == end, "{}: {} bytes too few", source->name,
                end - file.bytes_written());
  }
  const WrittenFile written{file.bytes_written(), file.digest()};
  file.commit();
  return written;
}

WrittenFile write_safetensors(const std::filesystem::path& path,
                              std::span<const NamedTensor> tensors, const Metadata& metadata) {
  std::vector<TensorSource> sources;
  for (const NamedTensor& named : tensors) {
    sources.push_back({named.name, named.tensor.spec(), [tensor = named.tensor](const auto& sink) {
                         const HostRead read(tensor);
                         if (!read.bytes().empty()) sink(read.bytes().data(), read.bytes().size());
                       }});
  }
  return write_safetensors(path, sources, metadata);
}

}  // namespace atl::ckpt
