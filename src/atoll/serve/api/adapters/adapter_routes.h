#pragma once

// Adapters that come and go while the server runs, asked for as vLLM has it.

#include <string>
#include <vector>

#include "atoll/serve/api/fields.h"
#include "atoll/serve/api/serving.h"

namespace atl::serve::api {

/// All fields of POST /v1/load_lora_adapter.
std::vector<FieldRule> load_adapter_rules();
/// Serves the adapter at "lora_path" under "lora_name". Returns when requests may ask for it:
/// {"id":...,"object":"model","version":...}. Throws ApiError: 400 naming the field, 403 for a
/// server that loads none, 409 where there is no room.
std::string load_adapter(const Json& body, const ServedModel& model);

/// All fields of POST /v1/unload_lora_adapter.
std::vector<FieldRule> unload_adapter_rules();
/// Serves "lora_name" no more; requests under way end with it. {"id":...,"object":"model",
/// "deleted":true}. Throws ApiError: 404 for a name that is none, 403 as load_adapter.
std::string unload_adapter(const Json& body, const ServedModel& model);

}  // namespace atl::serve::api
