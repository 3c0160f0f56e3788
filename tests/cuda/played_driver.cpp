// A CUDA driver that is not there: the functions of libcuda.so.1 that cuDNN 9 loads, as far as the
// library asks them to make a plan. So src/atoll/device/cudnn/sdpa_graph_test.cpp makes plans for
// an H100 on a machine without a GPU. There is no device, and nothing can be run. Functions return
// CUDA's codes; those that no plan asks for refuse with 100, which says that there is no device.

extern "C" {

int cuInit(unsigned /*flags*/) {
  return 100;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetErrorString(int /*error*/, const char** text) {
  *text = "the driver is played";
  return 0;
}

// A library of kernels and a kernel of it are handles that nobody looks behind.
int cuLibraryLoadData(void** library) {
  static char handle;
  *library = &handle;
  return 0;
}
int cuLibraryUnload(void* /*library*/) {
  return 0;
}
int cuLibraryGetKernel(void** kernel) {
  static char handle;
  *kernel = &handle;
  return 0;
}
int cuKernelGetAttribute(int* value) {
  *value = 0;
  return 0;
}
int cuKernelSetAttribute() {
  return 0;
}

#define REFUSED(name) \
  int name() {        \
    return 100;       \
  }
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetCount)
REFUSED(cuGetErrorName)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkDestroy)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuStreamGetCtx)

}  // extern "C"
