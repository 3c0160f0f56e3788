# Writes what makes nvcc compile the kernels of src/atoll/ops. The one list of them is the folder: each
# `using ...Kernels =` of a file ops/<family>/*kernels.cuh that is not a template.
#
# In CMake: atoll_kernel_sources(<src> <folder> <variable that gets the .cu and .cpp files>).
# As a script: cmake -DSOURCES=<src> -DOUT=<folder> -P kernels.cmake; it prints the .cu files.
# Writes ops/nvcc/<name>.cu for each of these files, ops/nvcc/gpu_table.cpp, which joins them, and
# ops/nvcc/all_kernels.h, the AllKernels that tests go through, below <folder>/atoll.

# The lists that a file declares. The line before `using` of a template begins with "template".
function(atoll_kernel_lists file result)
  file(READ ${file} text)
  string(REPLACE ";" "," text "${text}")
  string(REGEX MATCHALL "[^\n]*\nusing [A-Za-z0-9]+Kernels =" found "${text}")
  set(lists "")
  foreach(one ${found})
    if(NOT one MATCHES "^template")
      string(REGEX REPLACE ".*using ([A-Za-z0-9]+Kernels) =" "\\1" name "${one}")
      list(APPEND lists ${name})
    endif()
  endforeach()
  set(${result} ${lists} PARENT_SCOPE)
endfunction()

function(atoll_kernel_sources sources out result)
  set(depends CONFIGURE_DEPENDS)
  if(CMAKE_SCRIPT_MODE_FILE)
    set(depends "")
  endif()
  file(GLOB files ${depends} "${sources}/atoll/ops/*/*kernels.cuh")
  list(SORT files)
  set(folder "${out}/atoll/ops/nvcc")
  set(written "")
  set(includes "")
  set(declared "")
  set(calls "")
  set(all "")
  foreach(file ${files})
    atoll_kernel_lists(${file} lists)
    if(NOT lists)
      message(FATAL_ERROR "${file} declares no `using ...Kernels =`: nvcc would compile nothing of it")
    endif()
    file(RELATIVE_PATH path ${sources} ${file})
    get_filename_component(family "${path}" DIRECTORY)
    get_filename_component(family "${family}" NAME)
    get_filename_component(name "${path}" NAME_WE)
    string(REGEX REPLACE "_?kernels$" "" name "${name}")
    string(REGEX REPLACE "_$" "" name "${family}_${name}")
    string(REPLACE ";" ", " joined "${lists}")
    set(content "// Made by cmake/kernels.cmake.
#include \"${path}\"

#include \"atoll/ops/nvcc/compiled.h\"

namespace atl::ops::cuda {

void add_${name}_kernels(GpuTable& table) {
  add_compiled<Joined<${joined}>>(table);
}

}  // namespace atl::ops::cuda
")
    file(CONFIGURE OUTPUT "${folder}/${name}.cu" CONTENT "${content}" @ONLY)
    list(APPEND written "${folder}/${name}.cu")
    string(APPEND includes "#include \"${path}\"\n")
    string(APPEND declared "void add_${name}_kernels(GpuTable& table);\n")
    string(APPEND calls "  add_${name}_kernels(table);\n")
    list(APPEND all ${lists})
    if(NOT CMAKE_SCRIPT_MODE_FILE)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    endif()
  endforeach()
  set(content "// Made by cmake/kernels.cmake.
#include \"atoll/ops/nvcc/gpu_table.h\"

namespace atl::ops::cuda {

${declared}
void add_all_kernels(GpuTable& table) {
${calls}}

}  // namespace atl::ops::cuda
")
  file(CONFIGURE OUTPUT "${folder}/gpu_table.cpp" CONTENT "${content}" @ONLY)
  list(APPEND written "${folder}/gpu_table.cpp")
  list(JOIN all ", " all)
  set(content "// Made by cmake/kernels.cmake.
#pragma once

${includes}
namespace atl::ops::cuda {

/// All kernels that nvcc compiles.
using AllKernels = Joined<${all}>;

}  // namespace atl::ops::cuda
")
  file(CONFIGURE OUTPUT "${folder}/all_kernels.h" CONTENT "${content}" @ONLY)
  set(${result} ${written} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  atoll_kernel_sources("${SOURCES}" "${OUT}" files)
  foreach(file ${files})
    message("${file}")
  endforeach()
endif()
