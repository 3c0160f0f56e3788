// Four kernels with one mistake each, to see that compute-sanitizer finds them: a tool that is not
// running finds nothing in our kernels either.
//
//   planted memcheck | initcheck | racecheck | synccheck

#include <cstdio>
#include <cstring>

__global__ void outside(int* data, int size) {
  data[size + threadIdx.x] = 1;
}

__global__ void uninitialised(const int* data, int* sum) {
  atomicAdd(sum, data[threadIdx.x]);
}

__global__ void race(int* out) {
  __shared__ int box[64];
  box[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = box[63 - threadIdx.x];  // no barrier in between
}

// A lane that the mask does not name comes to the warp's barrier. (synccheck
// does not report warps that end while others wait at __syncthreads().)
__global__ void torn_barrier(int* out) {
  if (threadIdx.x <= 16) __syncwarp(0x0000ffffU);
  out[threadIdx.x] = 1;
}

int main(int argc, char** argv) {
  const char* const tool = argc > 1 ? argv[1] : "";
  int *data = nullptr, *out = nullptr;
  if (cudaMalloc(&data, 64 * sizeof(int)) != cudaSuccess ||
      cudaMalloc(&out, 64 * sizeof(int)) != cudaSuccess ||
      cudaMemset(out, 0, 64 * sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "error: no GPU\n");
    return 2;
  }
  if (std::strcmp(tool, "memcheck") == 0) {
    outside<<<1, 64>>>(data, 64);
  } else if (std::strcmp(tool, "initcheck") == 0) {
    uninitialised<<<1, 64>>>(data, out);
  } else if (std::strcmp(tool, "racecheck") == 0) {
    race<<<1, 64>>>(out);
  } else if (std::strcmp(tool, "synccheck") == 0) {
    torn_barrier<<<1, 64>>>(out);
  } else {
    std::fprintf(stderr, "usage: planted memcheck|initcheck|racecheck|synccheck\n");
    return 2;
  }
  cudaDeviceSynchronize();
  return 0;
}
