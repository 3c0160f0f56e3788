#include "atoll/device/cudnn/sdpa_graph.h"

#include <cudnn_frontend.h>

#include <unordered_map>

#include "atoll/base/error.h"

namespace atl {

namespace fe = cudnn_frontend;

namespace {

using Attributes = fe::graph::Tensor_attributes;
using Handle = std::shared_ptr<Attributes>;

// cuDNN keeps more words about its last refusal than a status has.
std::string last_words() {
  std::string words(1024, '\0');
  cudnnGetLastErrorString(words.data(), words.size());
  words.resize(words.find('\0'));
  return words;
}

void check(fe::error_t status, const SdpaCall& call, const char* what) {
  if (status.is_good()) return;
  throw make_error(ErrorKind::kResource,
                   "cuDNN {}: {}: {}; set device.attention=own (the call: {})", cudnnGetVersion(),
                   what, status.get_message(), describe(call));
}

Attributes attributes_of(const SdpaTensor& tensor) {
  Attributes attributes;
  attributes.set_name(sdpa_name(tensor.operand))
      .set_uid(sdpa_uid(tensor.operand))
      .set_dim({tensor.dims.begin(), tensor.dims.end()})
      .set_stride({tensor.strides.begin(), tensor.strides.end()})
      .set_data_type(tensor.is_f32 ? fe::DataType_t::FLOAT : fe::DataType_t::BFLOAT16);
  return attributes;
}

// What a node gives, as the call has it.
void tell_output(const SdpaTensor& tensor, const Handle& output) {
  output->set_output(true)
      .set_name(sdpa_name(tensor.operand))
      .set_uid(sdpa_uid(tensor.operand))
      .set_dim({tensor.dims.begin(), tensor.dims.end()})
      .set_stride({tensor.strides.begin(), tensor.strides.end()})
      .set_data_type(tensor.is_f32 ? fe::DataType_t::FLOAT : fe::DataType_t::BFLOAT16);
}

}  // namespace

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw make_error(ErrorKind::kResource, "cuDNN: {}: {} {}", what, cudnnGetErrorString(status),
                   last_words());
}

struct SdpaGraph::State {
  explicit State(const SdpaCall& which) : call(which) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  // Behind all that is set for the whole graph: nodes copy it.
  void add_node() {
    std::unordered_map<SdpaOperand, Handle> inputs;
    std::unordered_map<SdpaOperand, SdpaTensor> outputs;
    for (const SdpaTensor& tensor : sdpa_tensors(call)) {
      if (tensor.is_written) {
        outputs.emplace(tensor.operand, tensor);
      } else {
        inputs.emplace(tensor.operand, graph.tensor(attributes_of(tensor)));
      }
    }
    using enum SdpaOperand;
    if (!call.is_backward) {
      const auto [out, stats] = graph.sdpa(inputs[kQ], inputs[kK], inputs[kV],
                                           fe::graph::SDPA_attributes()
                                               .set_name("attention_forward")
                                               .set_generate_stats(true)
                                               .set_attn_scale(call.scale)
                                               .set_causal_mask(true));
      tell_output(outputs.at(kOut), out);
      tell_output(outputs.at(kStats), stats);
      return;
    }
    const auto [dq, dk, dv] = graph.sdpa_backward(inputs[kQ], inputs[kK], inputs[kV], inputs[kOut],
                                                  inputs[kDout], inputs[kStats],
                                                  fe::graph::SDPA_backward_attributes()
                                                      .set_name("attention_backward")
                                                      .set_attn_scale(call.scale)
                                                      .set_causal_mask(true)
                                                      .set_deterministic_algorithm(true));
    tell_output(outputs.at(kDq), dq);
    tell_output(outputs.at(kDk), dk);
    tell_output(outputs.at(kDv), dv);
  }

  // `handle` is null where the GPU is given by its properties.
  void build(cudnnHandle_t handle) {
    add_node();
    told = graph.print();  // before the library takes the node apart
    check(graph.validate(), call, "checking a graph");
    check(handle == nullptr ? graph.build_operation_graph() : graph.build_operation_graph(handle),
          call, "describing a graph");
    check(graph.create_execution_plans({fe::HeurMode_t::A}), call, "asking for engines");
    check(graph.check_support(), call, "asking for support");
    check(graph.build_plans(), call, "making a plan");
    std::int64_t bytes = 0;
    check(graph.get_workspace_size(bytes), call, "asking for the workspace");
    workspace_bytes = static_cast<std::size_t>(bytes);
  }

  SdpaCall call;
  fe::graph::Graph graph;
  std::shared_ptr<fe::DeviceProperties> properties;
  std::string told;
  std::size_t workspace_bytes = 0;
};

SdpaGraph::SdpaGraph(const SdpaCall& call, cudnnHandle_t handle)
    : state_(std::make_unique<State>(call)) {
  state_->build(handle);
}

SdpaGraph::SdpaGraph(const SdpaCall& call, std::string_view properties)
    : state_(std::make_unique<State>(call)) {
  constexpr int kArchitecture = 90;
  state_->properties = std::make_shared<fe::DeviceProperties>();
  check(state_->properties->deserialize({properties.begin(), properties.end()}), call,
        "reading the properties of a GPU");
  state_->graph.set_sm_version(kArchitecture).set_device_properties(state_->properties);
  state_->build(nullptr);
}

SdpaGraph::~SdpaGraph() = default;
SdpaGraph::SdpaGraph(SdpaGraph&&) noexcept = default;

std::size_t SdpaGraph::workspace_bytes() const {
  return state_->workspace_bytes;
}

std::string SdpaGraph::told() const {
  return state_->told;
}

std::string SdpaGraph::engine() const {
  std::string name;
  check(state_->graph.get_plan_name(name), state_->call, "asking for the name of a plan");
  return name;
}

void SdpaGraph::run(cudnnHandle_t handle, const SdpaAddresses& addresses, void* workspace) const {
  std::unordered_map<std::int64_t, void*> pointers;
  for (const SdpaTensor& tensor : sdpa_tensors(state_->call)) {
    pointers[sdpa_uid(tensor.operand)] = addresses[tensor.operand];
  }
  check(state_->graph.execute(handle, pointers, workspace), state_->call, "queueing a call");
}

}  // namespace atl
