#include "atoll/nn/models/rope.h"

#include <algorithm>
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

void read_yarn(ConfigReader& rope, ModelConfig& config) {
  RopeScaling& scaling = config.rope_scaling;
  scaling.kind = RopeScaling::Kind::kYarn;
  scaling.original_max_positions =
      rope.integer("original_max_position_embeddings", config.max_positions);
  scaling.beta_fast = rope.number("beta_fast", scaling.beta_fast);
  scaling.beta_slow = rope.number("beta_slow", scaling.beta_slow);
  scaling.truncate = rope.boolean("truncate", true);
  // The paper's section 3.4 and DeepSeek's two exponents, which cancel where they are equal.
  const auto growth = [&](double exponent) {
    return scaling.factor > 1 ? 0.1 * exponent * std::log(scaling.factor) + 1 : 1.0;
  };
  const double numerator = rope.number("mscale", 0);
  const double denominator = rope.number("mscale_all_dim", 0);
  if (!rope.is_null("attn_factor")) {
    throw rope.refused("attn_factor",
                       "which transformers passes over, and vLLM multiplies its own factor with: "
                       "remove it for the first, or give \"attention_factor\" for the second "
                       "(0.1 ln \"factor\" + 1, times this number)");
  }
  const bool has_both = numerator != 0 && denominator != 0;
  scaling.attention_factor = rope.number(
      "attention_factor", has_both ? growth(numerator) / growth(denominator) : growth(1));
  if (scaling.original_max_positions < 1) {
    throw rope.refused("original_max_position_embeddings", "below 1");
  }
  if (!(scaling.beta_slow > 0) || !(scaling.beta_fast >= scaling.beta_slow)) {
    throw rope.refused("beta_fast", "and \"beta_slow\" must be above 0 and not above it");
  }
}

void read_longrope(ConfigReader& rope, ModelConfig& config, std::int64_t original) {
  RopeScaling& scaling = config.rope_scaling;
  scaling.kind = RopeScaling::Kind::kLongrope;
  scaling.original_max_positions = rope.integer("original_max_position_embeddings",
                                                original > 0 ? original : config.max_positions);
  if (scaling.original_max_positions < 2) {
    throw rope.refused("original_max_position_embeddings", "below 2");
  }
  scaling.short_factors = rope.numbers("short_factor");
  scaling.long_factors = rope.numbers("long_factor");
  const double stretch = static_cast<double>(config.max_positions) /
                         static_cast<double>(scaling.original_max_positions);
  scaling.factor = rope.number("factor", stretch);
  const double growth = std::sqrt(
      1 + std::log(scaling.factor) / std::log(static_cast<double>(scaling.original_max_positions)));
  scaling.attention_factor = rope.number("attention_factor", scaling.factor > 1 ? growth : 1.0);
  for (const char* field : {"short_factor", "long_factor"}) {
    for (const double factor : rope.numbers(field)) {
      if (!(factor > 0)) throw rope.refused(field, "whose numbers must be above 0");
    }
  }
}

// One object of either form. "type" is what "rope_type" was called at first.
void read_kind(ConfigReader& rope, ModelConfig& config, std::int64_t original) {
  const std::string old_name = rope.text("type", "default");
  std::string kind = rope.text("rope_type", old_name);
  if (rope.contains("type") && kind != old_name) {
    throw rope.refused("type", fmt::format("but \"rope_type\" is \"{}\"; keep one", kind));
  }
  const char* field = rope.contains("rope_type") ? "rope_type" : "type";
  if (kind == "su") kind = "longrope";  // Phi-3's first name for it
  const bool is_known = kind == "default" || kind == "linear" || kind == "llama3" ||
                        kind == "yarn" || kind == "longrope" || kind == "dynamic";
  if (!is_known) {
    throw rope.refused(field,
                       "and atoll computes \"default\", \"linear\", \"llama3\", \"yarn\", "
                       "\"longrope\" and \"dynamic\"");
  }
  if (kind == "longrope") return read_longrope(rope, config, original);
  if (kind == "default") return rope.ignore({"factor", "original_max_position_embeddings"});
  config.rope_scaling.factor = rope.number("factor");
  if (!(config.rope_scaling.factor > 0)) throw rope.refused("factor", "not above 0");
  if (kind == "linear") config.rope_scaling.kind = RopeScaling::Kind::kLinear;
  if (kind == "llama3") read_llama3(rope, config);
  if (kind == "yarn") read_yarn(rope, config);
  // Dynamic NTK stretches only contexts longer than max_position_embeddings, and atoll has none.
  if (kind == "dynamic") {
    config.rope_scaling.factor = 1;
    rope.ignore({"original_max_position_embeddings"});
  }
}

}  // namespace

void read_rotary_part(ConfigReader& reader, ModelConfig& config, double default_part) {
  double part = reader.number("partial_rotary_factor", default_part);
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (const auto rope = reader.object(field)) {
      part = rope->number("partial_rotary_factor", part);
    }
  }
  const std::int64_t head_dim = config.heads.head_dim;
  const auto rotary = static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
  if (!(part > 0) || part > 1 || rotary % 2 != 0 || rotary < 2) {
    throw reader.refused(
        "partial_rotary_factor",
        fmt::format("and {} of the {} elements of a head are not whole pairs", part, head_dim));
  }
  config.rotary_dim = rotary;
  for (const auto* factors :
       {&config.rope_scaling.short_factors, &config.rope_scaling.long_factors}) {
    const bool is_longrope = config.rope_scaling.kind == RopeScaling::Kind::kLongrope;
    if (is_longrope && static_cast<std::int64_t>(factors->size()) != rotary / 2) {
      throw reader.refused(
          "rope_scaling",
          fmt::format("whose factors must be {} numbers, one for each frequency", rotary / 2));
    }
  }
}

namespace {

// "rope_parameters" with an object for each kind of layer; the windowed ones have no scaling.
void read_by_layer_type(ConfigReader& rope, ModelConfig& config) {
  if (const auto full = rope.object("full_attention")) {
    config.rope_theta = full->number("rope_theta", config.rope_theta);
    read_kind(*full, config, 0);
    full->finish();
  }
  if (const auto windowed = rope.object("sliding_attention")) {
    config.local_rope_theta = windowed->number("rope_theta", config.local_rope_theta);
    for (const char* field : {"rope_type", "type"}) windowed->only(field, "\"default\"");
    windowed->finish();
  }
  rope.finish();
}

}  // namespace

void read_rope(ConfigReader& reader, ModelConfig& config) {
  config.rope_theta = reader.number("rope_theta", config.rope_theta);
  reader.only("rope_interleaved", "false");
  const bool has_local = config.local_rope_theta > 0;
  if (has_local) {
    config.local_rope_theta = reader.number("rope_local_base_freq", config.local_rope_theta);
  }
  const std::int64_t original = reader.integer("original_max_position_embeddings", 0);
  const auto old_form = reader.object("rope_scaling");
  const auto new_form = reader.object("rope_parameters");
  if (old_form && new_form) {
    throw reader.refused("rope_scaling", "and \"rope_parameters\" is there too; keep one of them");
  }
  ConfigReader* rope = old_form ? old_form.get() : new_form.get();
  if (rope == nullptr) return;
  const bool is_nested = rope->contains("full_attention") || rope->contains("sliding_attention");
  if (has_local && is_nested) return read_by_layer_type(*rope, config);
  const double theta = rope->number("rope_theta", config.rope_theta);
  if (reader.contains("rope_theta") && theta != config.rope_theta) {
    throw reader.refused("rope_theta", fmt::format("but {} inside \"{}\"; keep one of them", theta,
                                                   old_form ? "rope_scaling" : "rope_parameters"));
  }
  config.rope_theta = theta;
  read_kind(*rope, config, original);
  rope->ignore({"partial_rotary_factor"});  // see read_rotary_part
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

// The index of the frequency that turns `turns` times over the original context (Peng et al. 2023,
// equation 17 solved for the dimension).
double yarn_index(double turns, std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_positions);
  return static_cast<double>(head_dim) * std::log(original / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

// How much of frequency `index` stays: 1 for fast ones, 0 for slow ones, between them a ramp.
double yarn_part(std::int64_t index, std::int64_t head_dim, double theta,
                 const RopeScaling& scaling) {
  double low = yarn_index(scaling.beta_fast, head_dim, theta, scaling);
  double high = yarn_index(scaling.beta_slow, head_dim, theta, scaling);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;  // as the reference code, against a division by zero
  return 1 - std::clamp((static_cast<double>(index) - low) / (high - low), 0.0, 1.0);
}

template <typename T>
void fill_rope_table(T* table, std::int64_t positions, std::int64_t head_dim,
                     const std::vector<float>& frequencies, float size) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    for (std::int64_t p = 0; p < positions; ++p) {
      const float angle = static_cast<float>(p) * frequencies[static_cast<std::size_t>(i)];
      table[p * head_dim + i] = size * std::cos(angle);
      table[p * head_dim + half + i] = size * std::sin(angle);
    }
  }
}

}  // namespace

std::vector<float> rope_frequencies(std::int64_t head_dim, double theta, const RopeScaling& scaling,
                                    std::int64_t positions) {
  const std::vector<double>& factors =
      positions > scaling.original_max_positions ? scaling.long_factors : scaling.short_factors;
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
    if (scaling.kind == RopeScaling::Kind::kYarn) {
      const auto part = static_cast<float>(yarn_part(i, head_dim, theta, scaling));
      frequency = frequency / static_cast<float>(scaling.factor) * (1 - part) + frequency * part;
    }
    if (scaling.kind == RopeScaling::Kind::kLongrope) {
      frequency /= static_cast<float>(factors[static_cast<std::size_t>(i)]);
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
    const std::vector<float> frequencies = rope_frequencies(head_dim, theta, scaling, positions);
    const auto size = static_cast<float>(scaling.attention_factor);
    if (dtype == Dtype::kF64) {
      write_on_host<double>(table, [&](std::span<double> to) {
        fill_rope_table(to.data(), positions, head_dim, frequencies, size);
      });
    } else {
      write_on_host<float>(table, [&](std::span<float> to) {
        fill_rope_table(to.data(), positions, head_dim, frequencies, size);
      });
    }
  };
  return constant;
}

}  // namespace atl::nn
