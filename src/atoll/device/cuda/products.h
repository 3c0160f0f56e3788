#pragma once

// Matrix products by cuBLASLt.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <tuple>

namespace atl::cuda {

/// An operand's element type, and of numbers of 8 bits what scales them.
struct ProductOperand {
  cudaDataType_t type = CUDA_R_16BF;
  const void* scales = nullptr;  ///< f32 of the device, as `mode` says; or null
  cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
};

/// c (m, n) = op(a) op(b) [+ bias] [+ residual, or + c], all row by row as ops::matmul has them.
struct Product {
  bool transpose_a = false;  ///< a is (k, m), else (m, k)
  bool transpose_b = false;  ///< b is (n, k), else (k, n)
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  ProductOperand of_a;
  ProductOperand of_b;
  cudaDataType_t result = CUDA_R_16BF;  ///< of c
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;      ///< n elements of the result's type, or null
  const void* residual = nullptr;  ///< (m, n), of the result's type, apart from c; or null
  void* gelu_of = nullptr;  ///< (m, n), of the result's type: gets the product, and c GELU of it
  bool accumulate = false;  ///< c is added to; without a residual

  /// Sums of numbers of 8 bits may be kept in the tensor cores' own, shorter registers.
  bool fast_sums = false;

  /// What cuBLASLt calls C: what is added to the product, times beta. Where nothing is, c.
  const void* addend() const { return residual != nullptr ? residual : c; }
  float beta() const { return accumulate || residual != nullptr ? 1 : 0; }
};

/// What cuBLASLt is told of a product. Needs no GPU. cuBLASLt counts columns first, so the product
/// that it makes is c^T = op(b)^T op(a)^T.
class ProductDescription {
 public:
  explicit ProductDescription(const Product& product);
  ~ProductDescription();
  ProductDescription(const ProductDescription&) = delete;
  ProductDescription& operator=(const ProductDescription&) = delete;

  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t left = nullptr;   // b
  cublasLtMatrixLayout_t right = nullptr;  // a
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

/// The products of one stream: a handle, one workspace of a fixed size, and an algorithm for each
/// shape, chosen at its first call. Sums that are split are added in f32 and in a fixed order.
class Products {
 public:
  /// Hopper's kernels want this much (cuBLAS documentation, "cublasSetWorkspace").
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Queues the product. Throws Error(kResource) when the library has no algorithm for it; with
  /// GELU it returns false then.
  bool multiply(cudaStream_t stream, const Product& product);

 private:
  using Key = std::tuple<bool, bool, std::int64_t, std::int64_t, std::int64_t, int, int, int, int,
                         int, bool, bool, bool, bool, bool>;

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

/// Throws Error(kResource) when `status` is not success; `what` says what was being done.
void check(cublasStatus_t status, const char* what);

}  // namespace atl::cuda
