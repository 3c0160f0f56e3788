#include "atoll/nn/models/rope.h"

#include <cmath>
#include <numbers>
#include <string>

#include "atoll/nn/models/config_reader.h"
#include "atoll/tensor/host_access.h"

namespace atl::nn {

namespace {

void read_llama3(ConfigReader& rope, ModelConfig& config) {
  RopeScaling& scaling = config.rope_scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.low_freq_factor = rope.number("low_freq_factor");
  scaling.high_freq_factor = rope.number("high_freq_factor");
  scaling.original_max_positions =
      rope.integer("original_max_position_embeddings", config.max_positions);
  if (!(scaling.low_freq_factor > 0)) throw rope.refused("low_freq_factor", "not above 0");
  if (!(scaling.high_freq_factor > scaling.low_freq_factor)) {
    throw rope.refused("high_freq_factor", "not above low_freq_factor");
  }
  if (scaling.original_max_positions < 1) {
    throw rope.refused("original_max_position_embeddings", "below 1");
  }
}

// One object of either form. "type" is what "rope_type" was called at first.
void read_kind(ConfigReader& rope, ModelConfig& config) {
  const std::string old_name = rope.text("type", "default");
  const std::string kind = rope.text("rope_type", old_name);
  if (rope.contains("type") && kind != old_name) {
    throw rope.refused("type", fmt::format("but \"rope_type\" is \"{}\"; keep one", kind));
  }
  const char* field = rope.contains("rope_type") ? "rope_type" : "type";
  if (kind != "default" && kind != "linear" && kind != "llama3") {
    throw rope.refused(field, "and atoll computes only \"default\", \"linear\" and \"llama3\"");
  }
  rope.only("partial_rotary_factor", "1.0");
  if (kind != "default") {
    config.rope_scaling.factor = rope.number("factor");
    if (!(config.rope_scaling.factor > 0)) throw rope.refused("factor", "not above 0");
  }
  if (kind == "linear") config.rope_scaling.kind = RopeScaling::Kind::kLinear;
  if (kind == "llama3") read_llama3(rope, config);
}

}  // namespace

void read_rope(ConfigReader& reader, ModelConfig& config) {
  config.rope_theta = reader.number("rope_theta", config.rope_theta);
  reader.only("partial_rotary_factor", "1.0");
  reader.only("rope_interleaved", "false");
  const auto old_form = reader.object("rope_scaling");
  const auto new_form = reader.object("rope_parameters");
  if (old_form && new_form) {
    throw reader.refused("rope_scaling", "and \"rope_parameters\" is there too; keep one of them");
  }
  ConfigReader* rope = old_form ? old_form.get() : new_form.get();
  if (rope == nullptr) return;
  const double theta = rope->number("rope_theta", config.rope_theta);
  if (reader.contains("rope_theta") && theta != config.rope_theta) {
    throw reader.refused("rope_theta", fmt::format("but {} inside \"{}\"; keep one of them", theta,
                                                   old_form ? "rope_scaling" : "rope_parameters"));
  }
  config.rope_theta = theta;
  read_kind(*rope, config);
  rope->finish();
}

namespace {

float llama3_frequency(float frequency, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_positions);
  const auto factor = static_cast<float>(scaling.factor);
  const float wavelength = 1.0F / frequency * static_cast<float>(2 * std::numbers::pi);
  if (wavelength < static_cast<float>(original / scaling.high_freq_factor)) return frequency;
  if (wavelength > static_cast<float>(original / scaling.low_freq_factor)) {
    return frequency / factor;
  }
  const float blend = (1.0F / wavelength * static_cast<float>(original) -
                       static_cast<float>(scaling.low_freq_factor)) /
                      static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0F - blend) * frequency / factor + blend * frequency;
}

template <typename T>
void fill_rope_table(T* table, std::int64_t positions, std::int64_t head_dim,
                     const std::vector<float>& frequencies) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    for (std::int64_t p = 0; p < positions; ++p) {
      const float angle = static_cast<float>(p) * frequencies[static_cast<std::size_t>(i)];
      table[p * head_dim + i] = std::cos(angle);
      table[p * head_dim + half + i] = std::sin(angle);
    }
  }
}

}  // namespace

std::vector<float> rope_frequencies(std::int64_t head_dim, double theta,
                                    const RopeScaling& scaling) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    float frequency = 1.0F / std::pow(static_cast<float>(theta), exponent);
    if (scaling.kind == RopeScaling::Kind::kLinear) {
      frequency /= static_cast<float>(scaling.factor);
    }
    if (scaling.kind == RopeScaling::Kind::kLlama3) {
      frequency = llama3_frequency(frequency, scaling);
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

std::unique_ptr<Constant> make_rope_table(Dtype dtype, std::int64_t positions,
                                          std::int64_t head_dim, double theta,
                                          const RopeScaling& scaling) {
  auto constant = std::make_unique<Constant>();
  constant->name = "rope table";
  constant->spec = {dtype, {positions, head_dim}};
  constant->fill = [=](Tensor table) {
    const std::vector<float> frequencies = rope_frequencies(head_dim, theta, scaling);
    if (dtype == Dtype::kF64) {
      write_on_host<double>(table, [&](std::span<double> to) {
        fill_rope_table(to.data(), positions, head_dim, frequencies);
      });
    } else {
      write_on_host<float>(table, [&](std::span<float> to) {
        fill_rope_table(to.data(), positions, head_dim, frequencies);
      });
    }
  };
  return constant;
}

}  // namespace atl::nn
