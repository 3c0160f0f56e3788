#include "atoll/ckpt/hf/stacked_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/tensor/host_access.h"

namespace atl::ckpt {

namespace {

constexpr std::string_view kExperts = ".experts.";

struct PartName {
  std::string_view stack, part;
  std::int64_t number, count;
};
constexpr PartName kParts[] = {
    {"gate_up_proj", "gate", 0, 2}, {"gate_up_proj", "up", 1, 2}, {"down_proj", "down", 0, 1}};

// to[j * to_step] = from[j * from_step] for `count` elements of kSize bytes.
template <std::size_t kSize>
void copy_column(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
                 std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) {
    std::memcpy(to + static_cast<std::size_t>(j * to_step) * kSize,
                from + static_cast<std::size_t>(j * from_step) * kSize, kSize);
  }
}

void copy_column(std::size_t size, const std::byte* from, std::int64_t from_step, std::byte* to,
                 std::int64_t to_step, std::int64_t count) {
  switch (size) {
    case 2:
      return copy_column<2>(from, from_step, to, to_step, count);
    case 4:
      return copy_column<4>(from, from_step, to, to_step, count);
    case 8:
      return copy_column<8>(from, from_step, to, to_step, count);
    default:
      ATOLL_CHECK(false, "parameters are floats, not of {} bytes", size);
  }
}

// `from` in another dtype.
std::vector<std::byte> converted(Dtype from, std::span<const std::byte> in, Dtype to,
                                 const std::string& name) {
  std::vector<std::byte> out(in.size() / dtype_size(from) * dtype_size(to));
  convert_floats(from, in, to, out, name);
  return out;
}

}  // namespace

std::optional<StackedExpert> stacked_expert(std::string_view name) {
  const std::size_t at = name.rfind(kExperts);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = name.substr(at + kExperts.size());
  const std::size_t dot = rest.find('.');
  constexpr std::size_t kMostDigits = 6;
  if (dot == std::string_view::npos || dot == 0 || dot > kMostDigits) return {};
  const std::string_view number = rest.substr(0, dot);
  if (!std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return {};
  }
  for (const PartName& known : kParts) {
    for (const bool is_bias : {false, true}) {
      const std::string end =
          fmt::format("{}.{}.{}", known.stack, known.part, is_bias ? "bias" : "weight");
      if (rest.substr(dot + 1) != end) continue;
      return StackedExpert{fmt::format("{}{}{}{}", name.substr(0, at), kExperts, known.stack,
                                       is_bias ? "_bias" : ""),
                           std::stoll(std::string(number)), known.number, known.count, is_bias};
    }
  }
  return {};
}

std::string stacked_name(std::string_view stack, std::int64_t expert, std::int64_t part) {
  const std::size_t at = stack.rfind(kExperts);
  ATOLL_CHECK(at != std::string_view::npos, "{}", stack);
  for (const PartName& known : kParts) {
    if (stack.substr(at + kExperts.size()) != known.stack || known.number != part) continue;
    return fmt::format("{}{}{}.{}.{}.weight", stack.substr(0, at), kExperts, expert, known.stack,
                       known.part);
  }
  ATOLL_CHECK(false, "{} has no part {}", stack, part);
}

void read_stacked(const SafetensorsFile& file, const StackedExpert& where, const Tensor& rows) {
  const Shape found = file.spec(where.tensor).shape;
  const std::int64_t out = rows.dim(0), in = where.is_bias ? 1 : rows.dim(1);
  const std::int64_t width = out * where.num_parts;
  const std::int64_t experts = found.rank() > 0 ? found.dim(0) : 0;
  const Shape needed = where.is_bias ? Shape{experts, width} : Shape{experts, in, width};
  if (found != needed || where.expert >= experts) {
    throw user_error(
        "{}: \"{}\" has shape {}, where the model needs {} of expert {}; config.json and the "
        "weights do not belong together",
        file.path().string(), where.tensor, found.to_string(), needed.to_string(), where.expert);
  }
  const Dtype to = rows.dtype();
  const Dtype from = file.check_floats(where.tensor, found);
  const auto bytes = static_cast<std::size_t>(in * width) * dtype_size(from);
  const std::vector<std::byte> matrix = converted(
      from, file.bytes(where.tensor).subspan(static_cast<std::size_t>(where.expert) * bytes, bytes),
      to, where.tensor);
  const std::size_t size = dtype_size(to);
  write_on_host<std::byte>(rows, [&](std::span<std::byte> all) {
    for (std::int64_t row = 0; row < out; ++row) {
      copy_column(
          size, matrix.data() + static_cast<std::size_t>(row * where.num_parts + where.part) * size,
          width, all.data() + static_cast<std::size_t>(row * in) * size, 1, in);
    }
  });
}

std::optional<TensorSource> stacked_source(const nn::Param& param, const Tensor& tensor,
                                           Dtype dtype) {
  const auto first = stacked_expert(param.files.front().name);
  if (!first) return {};
  const std::int64_t parts = first->num_parts, out = param.files.front().rows;
  const std::int64_t experts = std::ssize(param.files) / parts;
  const std::int64_t in = first->is_bias ? 1 : tensor.dim(1);
  const std::int64_t width = out * parts;
  ATOLL_CHECK(first->expert == 0 && tensor.dim(0) == experts * width, "{}", param.name);
  const Spec spec = {dtype, first->is_bias ? Shape{experts, width} : Shape{experts, in, width}};
  return TensorSource{
      first->tensor, spec, [=, name = first->tensor](const ByteSink& sink) {
        const HostRead read(tensor);
        const std::size_t size = dtype_size(tensor.dtype());
        const auto elements = static_cast<std::size_t>(width * in);
        std::vector<std::byte> matrix(elements * size);
        for (std::int64_t expert = 0; expert < experts; ++expert) {
          const std::byte* rows =
              read.bytes().data() + static_cast<std::size_t>(expert) * elements * size;
          for (std::int64_t row = 0; row < width; ++row) {
            const std::int64_t column = row % out * parts + row / out;
            copy_column(size, rows + static_cast<std::size_t>(row * in) * size, 1,
                        matrix.data() + static_cast<std::size_t>(column) * size, width, in);
          }
          if (dtype == tensor.dtype()) {
            sink(matrix.data(), matrix.size());
            continue;
          }
          std::vector<float> values(elements);
          convert_to_f32(tensor.dtype(), matrix, values);
          check_fits(values, dtype, name);
          std::vector<std::byte> written(elements * dtype_size(dtype));
          convert_from_f32(values, dtype, written);
          sink(written.data(), written.size());
        }
      }};
}

namespace {

// Expert 0's part of a stack by the name of the stack; nothing where that is none.
std::optional<std::string> name_of_part(std::string_view tensor, std::int64_t part) {
  constexpr std::string_view kBias = "_bias";
  const bool is_bias = tensor.ends_with(kBias);
  if (is_bias) tensor.remove_suffix(kBias.size());
  const std::size_t at = tensor.rfind(kExperts);
  if (at == std::string_view::npos) return {};
  for (const PartName& known : kParts) {
    if (tensor.substr(at + kExperts.size()) != known.stack || known.number != part) continue;
    return fmt::format("{}{}0.{}.{}.{}", tensor.substr(0, at), kExperts, known.stack, known.part,
                       is_bias ? "bias" : "weight");
  }
  return {};
}

// One expert's part of a stack, as rows; the reader holds the expert that was read last.
RowReader open_part(const SafetensorsFile& file, StackedExpert where, const Shape& part) {
  struct Held {
    std::int64_t expert = -1;
    std::vector<float> values;
  };
  const auto held = std::make_shared<Held>();
  held->values.resize(static_cast<std::size_t>(part.num_elements()));
  // Of biases a row is a whole expert's.
  const std::int64_t rows = where.is_bias ? 1 : part.dim(0);
  return [&file, where, part, held, rows](std::int64_t row, std::span<float> out) mutable {
    if (row / rows != held->expert) {
      where.expert = held->expert = row / rows;
      read_stacked(file, where, Tensor(held->values.data(), {Dtype::kF32, part}));
    }
    const auto from = held->values.begin() + row % rows * std::ssize(out);
    std::copy(from, from + std::ssize(out), out.begin());
  };
}

}  // namespace

std::vector<FloatRows> parts_of_stack(const SafetensorsFile& file, const std::string& tensor) {
  std::vector<FloatRows> parts;
  for (std::int64_t part = 0; part < 2; ++part) {
    const auto name = name_of_part(tensor, part);
    if (!name) continue;
    const StackedExpert where = *stacked_expert(*name);
    const Shape stack = file.spec(tensor).shape;
    if (stack.rank() != (where.is_bias ? 2 : 3) || stack.dim(-1) % where.num_parts != 0) {
      throw user_error("{}: \"{}\" has shape {}, which is no stack of experts",
                       file.path().string(), tensor, stack.to_string());
    }
    const std::int64_t out = stack.dim(-1) / where.num_parts;
    const Shape one = where.is_bias ? Shape{out} : Shape{out, stack.dim(1)};
    FloatRows rows;
    rows.name = *name;
    rows.shape = {stack.dim(0), out};
    if (!where.is_bias) rows.shape.push_back(stack.dim(1));
    rows.open = [&file, where, one] { return open_part(file, where, one); };
    parts.push_back(std::move(rows));
  }
  return parts;
}

namespace {

// The bytes of a source.
std::vector<std::byte> bytes_of(const TensorSource& source) {
  std::vector<std::byte> bytes;
  bytes.reserve(source.spec.bytes());
  source.produce([&](const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  });
  return bytes;
}

// The experts of one stack, by their number and part.
struct Stack {
  StackedExpert first;
  std::map<std::pair<std::int64_t, std::int64_t>, TensorSource> parts;
};

TensorSource source_of(const std::string& name, Stack stack) {
  const std::int64_t parts = stack.first.num_parts;
  const std::int64_t experts = std::ssize(stack.parts) / parts;
  const Spec part = stack.parts.begin()->second.spec;
  const std::int64_t out = part.shape.dim(0), in = stack.first.is_bias ? 1 : part.shape.dim(1);
  const std::int64_t width = out * parts;
  std::vector<TensorSource> sources;
  for (auto& [place, source] : stack.parts) {
    const auto at = std::ssize(sources);
    ATOLL_CHECK(place == std::pair(at / parts, at % parts) && source.spec == part, "{}: {}", name,
                source.name);
    sources.push_back(std::move(source));
  }
  ATOLL_CHECK(std::ssize(sources) == experts * parts, "{}", name);
  const Shape shape = stack.first.is_bias ? Shape{experts, width} : Shape{experts, in, width};
  return {name, {part.dtype, shape}, [=](const ByteSink& sink) {
            const std::size_t size = dtype_size(part.dtype);
            std::vector<std::byte> matrix(static_cast<std::size_t>(width * in) * size);
            for (std::size_t i = 0; i < sources.size(); ++i) {
              const std::vector<std::byte> rows = bytes_of(sources[i]);
              const std::int64_t number = static_cast<std::int64_t>(i) % parts;
              for (std::int64_t row = 0; row < out; ++row) {
                copy_column(size, rows.data() + static_cast<std::size_t>(row * in) * size, 1,
                            matrix.data() + static_cast<std::size_t>(row * parts + number) * size,
                            width, in);
              }
              if (number + 1 == parts) sink(matrix.data(), matrix.size());
            }
          }};
}

}  // namespace

std::vector<TensorSource> stack_experts(std::vector<TensorSource> sources) {
  std::map<std::string, Stack> stacks;
  std::vector<TensorSource> all;
  std::vector<std::pair<std::size_t, std::string>> places;
  for (TensorSource& source : sources) {
    const auto where = stacked_expert(source.name);
    if (!where) {
      all.push_back(std::move(source));
      continue;
    }
    const auto [at, is_new] = stacks.try_emplace(where->tensor, Stack{*where, {}});
    if (is_new) {
      places.emplace_back(all.size(), where->tensor);
      all.emplace_back();
    }
    at->second.parts.emplace(std::pair(where->expert, where->part), std::move(source));
  }
  for (const auto& [place, name] : places) {
    all[place] = source_of(name, std::move(stacks.at(name)));
  }
  return all;
}

}  // namespace atl::ckpt
