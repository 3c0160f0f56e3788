// What cuDNN makes of calls, on a machine without a GPU: an H100 is described by its properties,
// and the driver that the library loads is played (tests/cuda/played_driver.cpp).

#include "atoll/device/cudnn/sdpa_graph.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "atoll/base/files/test_paths.h"

namespace atl {
namespace {

std::string properties() {
  std::ifstream file(test_source_dir() / "tests/cuda/h100.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

class Cudnn : public testing::Test {
 protected:
  void SetUp() override {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (driver == nullptr) {
      // From here on the library, too, finds this one by the name that it has inside.
      const auto path = test_program().parent_path().parent_path() / "tests" / "played_driver.so";
      driver = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    }
    ASSERT_NE(driver, nullptr) << dlerror();
    const bool is_real = dlsym(driver, "cuMemAlloc_v2") != nullptr;
    if (is_real)
      GTEST_SKIP() << "a driver is installed, which may have no H100 to load kernels into";
  }
};

// Calls of the models that are planned, and what a plan of cuDNN 9.19 takes for each.
struct Planned {
  const char* name;
  SdpaCall call;
  std::size_t forward_bytes;
  std::size_t backward_bytes;
};
const Planned kPlanned[] = {
    {"124M, 32 of 1024", {false, 32, 12, 12, 1024, 64, 0.125F}, 256, 806'879'488},
    {"1B, 8 of 1024", {false, 8, 32, 8, 1024, 64, 0.125F}, 256, 605'028'608},
    {"8B, 1 of 1024", {false, 1, 32, 8, 1024, 128, 0.088388F}, 256, 84'017'408},
    {"8B, 1 of 4096", {false, 1, 32, 8, 4096, 128, 0.088388F}, 256, 1'141'375'232},
};

SdpaCall backward(SdpaCall call) {
  call.is_backward = true;
  return call;
}

TEST_F(Cudnn, HasPlansForTheModelsThatArePlanned) {
  const bool is_pinned = cudnnGetVersion() / 100 == 919;
  for (const Planned& one : kPlanned) {
    SCOPED_TRACE(one.name);
    const SdpaGraph forward(one.call, properties()), gradient(backward(one.call), properties());
    EXPECT_LE(forward.workspace_bytes(), sdpa_workspace_bytes(one.call));
    EXPECT_LE(gradient.workspace_bytes(), sdpa_workspace_bytes(backward(one.call)));
    if (!is_pinned) continue;
    EXPECT_EQ(forward.workspace_bytes(), one.forward_bytes);
    EXPECT_EQ(gradient.workspace_bytes(), one.backward_bytes);
  }
}

// Rows that fill no tile, heads of other widths, one head of keys for all.
TEST_F(Cudnn, TakesNoLargerWorkspaceThanIsPlanned) {
  for (const SdpaCall& call :
       {SdpaCall{true, 3, 4, 2, 1000, 80, 1}, SdpaCall{true, 2, 6, 1, 130, 128, 1},
        SdpaCall{true, 5, 2, 2, 33, 8, 1}, SdpaCall{true, 1, 3, 3, 2, 64, 1},
        SdpaCall{false, 3, 4, 2, 1000, 80, 1}, SdpaCall{false, 2, 6, 1, 17, 128, 1}}) {
    SCOPED_TRACE(describe(call));
    EXPECT_LE(SdpaGraph(call, properties()).workspace_bytes(), sdpa_workspace_bytes(call));
  }
}

// As the library writes an f32 number.
std::string bits_of(float value) {
  return fmt::format("{:08X}", std::bit_cast<std::uint32_t>(value));
}

// A tensor of the library's own description, under the name that it was given.
nlohmann::json tensor_of(const nlohmann::json& graph, const std::string& name) {
  for (const auto& [key, tensor] : graph.at("tensors").items()) {
    if (tensor.at("name") == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name << " in " << graph.dump(1);
  return {};
}

TEST_F(Cudnn, IsToldStridesScaleMaskAndOrder) {
  for (const Planned& one : kPlanned) {
    for (const SdpaCall& call : {one.call, backward(one.call)}) {
      SCOPED_TRACE(describe(call));
      const auto graph = nlohmann::json::parse(SdpaGraph(call, properties()).told());
      for (const SdpaTensor& expected : sdpa_tensors(call)) {
        const auto told = tensor_of(graph, sdpa_name(expected.operand));
        EXPECT_EQ(told.at("uid"), sdpa_uid(expected.operand));
        EXPECT_EQ(told.at("dim"), expected.dims);
        EXPECT_EQ(told.at("stride"), expected.strides);
        EXPECT_EQ(told.at("data_type"), expected.is_f32 ? "FLOAT" : "BFLOAT16");
      }
      ASSERT_EQ(graph.at("nodes").size(), 1u);
      const auto& node = graph.at("nodes").at(0);
      EXPECT_EQ(node.at("attn_scale_value"), bits_of(call.scale));
      EXPECT_EQ(node.at("diagonal_alignment"), "TOP_LEFT");
      EXPECT_EQ(node.at("right_bound"), 0);
      EXPECT_TRUE(node.at("left_bound").is_null());
      if (call.is_backward) {
        EXPECT_TRUE(node.at("is_deterministic_algorithm").get<bool>());
      }
    }
  }
}

TEST_F(Cudnn, SaysWhatItCannotPlan) {
  SdpaCall call = kPlanned[0].call;
  call.head_dim = 12;
  try {
    const SdpaGraph graph(call, properties());
    FAIL() << "a plan for heads of 12";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("multiple of 8"),
                                             testing::HasSubstr("device.attention=own")));
  }
}

}  // namespace
}  // namespace atl
