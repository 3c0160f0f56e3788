#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/serve/batch/step_model.h"

namespace atl::serve::stages {

/// Bytes of the parameters of each part of a model in f32, in the order in which a step reads them.
struct LayerBytes {
  double embedding = 0;
  std::vector<double> layers;
  double head = 0;  ///< with the last norm, and the table of a tied head
};
LayerBytes layer_bytes(const nn::ModelConfig& config);

/// Bytes that a stage of these layers has.
double stage_bytes(const LayerBytes& bytes, const StepLayers& layers);

/// Splits the layers among `stages` so that the largest share of bytes is as small as can be.
/// Throws Error(kUser) where there are more stages than layers.
std::vector<StepLayers> split_evenly(const nn::ModelConfig& config, std::size_t stages);

/// The layers of "0-11,12-23", both ends included; a stage may be one layer, "12". Throws
/// Error(kUser) where `text` is of another form, leaves out a layer or names one twice, or is of
/// another number of stages.
std::vector<StepLayers> parse_layers(const std::string& text, const nn::ModelConfig& config,
                                     std::size_t stages);

}  // namespace atl::serve::stages
