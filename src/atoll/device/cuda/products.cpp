#include "atoll/device/cuda/products.h"

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/device/cuda/status.h"

namespace atl::cuda {

namespace {

template <typename T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value),
        "describing a product");
}

// A matrix of `rows` rows that lie `columns` apart, as cuBLASLt sees it: transposed.
cublasLtMatrixLayout_t layout_of(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), columns),
        "describing a matrix");
  return layout;
}

cublasLtEpilogue_t epilogue_of(const Product& p) {
  const bool has_bias = p.bias != nullptr;
  if (p.gelu_of == nullptr) return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  return has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check_not_lost(what);
  throw make_error(ErrorKind::kResource, "cuBLASLt: {}: {}", what, cublasLtGetStatusString(status));
}

ProductDescription::ProductDescription(const Product& p) {
  check(cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  // Its left operand is b, which it sees as b^T: to be read as op(b)^T.
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.gelu_of != nullptr) {
    set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.gelu_of);
    set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
  }
  if (p.bias != nullptr) {
    set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p.result);
  }
  ATOLL_CHECK((p.of_a.scales == nullptr) == (p.of_b.scales == nullptr),
              "scales of one operand of a product");
  if (p.of_a.scales != nullptr) {
    set(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(p.of_b.mode));
    set(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(p.of_a.mode));
    set(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.of_b.scales);
    set(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.of_a.scales);
    set(matmul, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.fast_sums ? 1 : 0));
  }
  left = p.transpose_b ? layout_of(p.of_b.type, p.n, p.k) : layout_of(p.of_b.type, p.k, p.n);
  right = p.transpose_a ? layout_of(p.of_a.type, p.k, p.m) : layout_of(p.of_a.type, p.m, p.k);
  result = layout_of(p.result, p.m, p.n);
  check(cublasLtMatmulPreferenceCreate(&preference), "describing a product");
  const std::uint64_t workspace = Products::kWorkspaceBytes;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace),
        "describing a product");
  // Not in the output's type, which may be bf16, nor in place, in any order.
  const std::uint32_t schemes =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &schemes, sizeof schemes),
        "describing a product");
}

ProductDescription::~ProductDescription() {
  if (preference != nullptr) cublasLtMatmulPreferenceDestroy(preference);
  for (cublasLtMatrixLayout_t layout : {left, right, result}) {
    if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
  }
  if (matmul != nullptr) cublasLtMatmulDescDestroy(matmul);
}

Products::Products() {
  check(cublasLtCreate(&handle_), "opening the library");
  check(cudaMalloc(&workspace_, kWorkspaceBytes), "taking a workspace for products");
}

Products::~Products() {
  cudaFree(workspace_);
  cublasLtDestroy(handle_);
}

bool Products::multiply(cudaStream_t stream, const Product& p) {
  const ProductDescription description(p);
  const Key key = {p.transpose_a,
                   p.transpose_b,
                   p.m,
                   p.n,
                   p.k,
                   p.of_a.type,
                   p.of_b.type,
                   p.of_a.mode,
                   p.of_b.mode,
                   p.result,
                   p.bias != nullptr,
                   p.accumulate,
                   p.residual != nullptr,
                   p.gelu_of != nullptr,
                   p.fast_sums};
  auto found = algorithms_.find(key);
  if (found == algorithms_.end()) {
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, description.matmul, description.left,
                                         description.right, description.result, description.result,
                                         description.preference, 1, &best, &count),
          "choosing an algorithm");
    if (count == 0 && p.gelu_of != nullptr) return false;
    if (count == 0) {
      throw make_error(ErrorKind::kResource,
                       "cuBLASLt has no algorithm for a product of {} x {} x {}{}", p.m, p.n, p.k,
                       p.of_a.scales == nullptr ? "" : " in 8 bits; use --train.fp8=off");
    }
    found = algorithms_.emplace(key, best.algo).first;
  }
  const float alpha = 1, beta = p.beta();
  check(cublasLtMatmul(handle_, description.matmul, &alpha, p.b, description.left, p.a,
                       description.right, &beta, p.addend(), description.result, p.c,
                       description.result, &found->second, workspace_, kWorkspaceBytes, stream),
        "multiplying");
  return true;
}

}  // namespace atl::cuda
