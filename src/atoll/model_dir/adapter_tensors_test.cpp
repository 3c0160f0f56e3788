#include "atoll/model_dir/adapter_tensors.h"

#include <gtest/gtest.h>

namespace atl::model_dir {
namespace {

TEST(AdapterTensors, NamesLoseWhatLibrariesPutAroundThem) {
  const std::string a = "model.layers.0.self_attn.q_proj.lora_A.weight";
  for (const std::string& name :
       {a, "base_model.model." + a, "base_model.model.base_model.model." + a,
        "module.base_model.model." + a, "_orig_mod.base_model.model." + a,
        std::string("base_model.model.model.layers.0._checkpoint_wrapped_module.self_attn.q_proj."
                    "lora_A.default.weight"),
        std::string("base_model.model._fsdp_wrapped_module.model.layers.0.self_attn._orig_mod."
                    "q_proj.lora_A.weight")}) {
    EXPECT_EQ(plain_name(name), a) << name;
  }
  EXPECT_EQ(plain_name("base_model.model.model.norm.modules_to_save.default.weight"),
            "model.norm.weight");
  EXPECT_EQ(plain_name("base_model.model.lm_head.base_layer.weight"), "lm_head.weight");
  EXPECT_EQ(plain_name("base_model.model.q.lora_magnitude_vector.default.weight"),
            "q.lora_magnitude_vector");
  EXPECT_EQ(plain_name("base_model.model.e.lora_embedding_A.default"), "e.lora_embedding_A");
  // Of a parameter that is adapted without its module, base_layer tells two factors apart.
  EXPECT_EQ(plain_name("base_model.model.mlp.experts.base_layer.lora_A.weight"),
            "mlp.experts.base_layer.lora_A.weight");
}

}  // namespace
}  // namespace atl::model_dir
