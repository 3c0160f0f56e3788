# Every dependency is a Debian package; nothing is downloaded here. `./dev` installs what is missing.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED)  # only to tell oneDNN, which runs on it, to stay on one thread
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
# Not find_package(dnnl): Debian's configuration asks for the OpenCL development files, which the CPU
# engine does not need.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
add_library(dnnl INTERFACE)
target_include_directories(dnnl INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(dnnl INTERFACE ${DNNL_LIBRARY})
find_package(hwy REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(Protobuf REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(grpc REQUIRED IMPORTED_TARGET grpc++)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
find_package(ZLIB REQUIRED)
find_package(BZip2 REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(lzma REQUIRED IMPORTED_TARGET liblzma)
pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)
find_library(SNAPPY_LIBRARY snappy REQUIRED)
find_path(SNAPPY_INCLUDE_DIR snappy-c.h REQUIRED)
# Without one of these, comm/no_mpi or comm/no_gloo says so where it is asked for.
option(ATOLL_MPI "Build the mpi backend where there is an MPI" ON)
option(ATOLL_GLOO "Build the gloo backend where there is Gloo" ON)
if(ATOLL_MPI)
  find_package(MPI QUIET COMPONENTS CXX)
endif()
if(ATOLL_GLOO)
  find_package(Gloo QUIET CONFIG)
endif()
if(ATOLL_CUDA)
  # Looks on PATH and where NVIDIA's packages put it.
  # 12.9: cuBLASLt's products of 8 bits with scales of blocks.
  find_package(CUDAToolkit 12.9 REQUIRED)
  # Ampere, Hopper and Blackwell of data centres; the last one's PTX goes on what comes after.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
  # Without it comm/no_nccl says so where it is asked for.
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    add_library(nccl UNKNOWN IMPORTED)
    set_target_properties(nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                                          INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
  endif()
  # Without these device/no_cudnn says so where it is asked for. The front end is headers alone: those of the Python
  # package nvidia-cudnn-frontend, say, with -DCUDNN_FRONTEND_INCLUDE_DIR=<its folder include>.
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY AND CUDNN_FRONTEND_INCLUDE_DIR AND TARGET CUDA::nvrtc)
    add_library(cudnn UNKNOWN IMPORTED)
    set_target_properties(cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY})
    target_include_directories(cudnn SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR} ${CUDNN_FRONTEND_INCLUDE_DIR})
    target_link_libraries(cudnn INTERFACE CUDA::nvrtc CUDA::cudart ${CMAKE_DL_LIBS})
  endif()
  enable_language(CUDA)
  # CMake before 3.26 knows no flag for C++20 of CUDA's compiler.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
if(ATOLL_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)  # ours is checked with it
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # What one clone has compiled serves the next one: paths inside the clone are hashed as relative.
  find_program(ENV_PROGRAM env REQUIRED)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ENV_PROGRAM} CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  ${CCACHE})
endif()
