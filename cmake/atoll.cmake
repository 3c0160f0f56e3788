# One folder = one target. A new .cpp beside the others is picked up without an edit here:
#   x.cpp            goes into the folder's library
#   x_test.cpp       goes into its test program, label `fast` (the fast label stays below a minute)
#   x_slow_test.cpp  goes into its slow test program, label `slow`
#   main.cpp         becomes the program `atoll`, in bin/ of the build folder

add_library(atoll_options INTERFACE)
target_include_directories(atoll_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
# -ffp-contract=off: the compiler must not decide which sums are fused, or bits differ by build.
target_compile_options(atoll_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers
                                               -ffp-contract=off)
target_link_libraries(atoll_options INTERFACE Threads::Threads)
if(ATOLL_WERROR)
  target_compile_options(atoll_options INTERFACE -Werror)
endif()
if(ATOLL_DEBUG_CHECKS)
  target_compile_definitions(atoll_options INTERFACE ATOLL_DEBUG_CHECKS=1)
endif()
if(ATOLL_SANITIZE)
  # Not in targets with the property ATOLL_UNSANITIZED.
  target_compile_options(
    atoll_options INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:ATOLL_UNSANITIZED>>>:-fsanitize=${ATOLL_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's instrumentation makes it see uninitialised values in <functional> that are not there.
    target_compile_options(atoll_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(atoll_options INTERFACE -fsanitize=${ATOLL_SANITIZE})
endif()

# Reads together.txt: sets atoll_group_of_<file> to the name of the group that the file is compiled with.
function(atoll_together)
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
                                                          "${PROJECT_SOURCE_DIR}/cmake/together.txt")
  file(STRINGS "${PROJECT_SOURCE_DIR}/cmake/together.txt" lines REGEX "^[a-z]")
  foreach(line ${lines})
    string(REGEX MATCH "^([a-z_0-9]+): (.*)$" matched "${line}")
    set(group ${CMAKE_MATCH_1})
    string(REPLACE " " ";" files "${CMAKE_MATCH_2}")
    foreach(file ${files})
      if(NOT EXISTS "${PROJECT_SOURCE_DIR}/${file}")
        message(FATAL_ERROR "cmake/together.txt: there is no ${file}; take it out of ${group}")
      endif()
      set_property(GLOBAL PROPERTY "atoll_group_of_${PROJECT_SOURCE_DIR}/${file}" ${group})
    endforeach()
  endforeach()
endfunction()
if(ATOLL_UNITY)
  atoll_together()
endif()

# Puts one generated unit in place of the files of each group among <sources>. The unit includes its files by
# paths relative to itself: CMake's own UNITY_BUILD writes absolute ones, and then no clone could take from
# ccache what another one has compiled.
function(atoll_units result sources)
  set(units "")
  set(groups "")
  foreach(source ${sources})
    get_filename_component(source "${source}" ABSOLUTE) # without the "./" of a folder's own files
    get_property(group GLOBAL PROPERTY "atoll_group_of_${source}")
    if(group)
      list(APPEND groups ${group})
      list(APPEND files_of_${group} ${source})
    else()
      list(APPEND units ${source})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group ${groups})
    set(text "// Made from cmake/together.txt.\n")
    foreach(file ${files_of_${group}})
      file(RELATIVE_PATH path "${PROJECT_BINARY_DIR}/together" ${file})
      string(APPEND text "#include \"${path}\" // NOLINT(bugprone-suspicious-include)\n")
    endforeach()
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/together/${group}.cpp" CONTENT "${text}" @ONLY)
    list(APPEND units "${PROJECT_BINARY_DIR}/together/${group}.cpp")
  endforeach()
  set(${result} ${units} PARENT_SCOPE)
endfunction()

# atoll_module(<folder> DEPS <folders below> [PUBLIC <libs>] [PRIVATE <libs>]
#              [WITHOUT <subfolders that cannot be built here>])
function(atoll_module name)
  cmake_parse_arguments(ARG "" "" "DEPS;PUBLIC;PRIVATE;WITHOUT;TEST_LIBS" ${ARGN})
  set(sources "")
  set(tests "")
  set(slow_tests "")
  file(GLOB_RECURSE found CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp")
  foreach(dir ${ARG_WITHOUT})
    list(FILTER found EXCLUDE REGEX "/${name}/${dir}/")
  endforeach()
  foreach(file ${found})
    if(file MATCHES "_slow_test\\.cpp$")
      list(APPEND slow_tests ${file})
    elseif(file MATCHES "_test\\.cpp$")
      list(APPEND tests ${file})
    elseif(NOT file MATCHES "/main\\.cpp$")
      list(APPEND sources ${file})
    endif()
  endforeach()

  if(sources)
    set(scope PUBLIC)
    atoll_units(units "${sources}")
    add_library(atoll_${name} STATIC ${units})
    target_link_libraries(atoll_${name} PRIVATE ${ARG_PRIVATE})
  else()
    set(scope INTERFACE)
    add_library(atoll_${name} INTERFACE)
  endif()
  target_link_libraries(atoll_${name} ${scope} atoll_options ${ARG_PUBLIC})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(atoll_${name} ${scope} atoll_${dep})
  endforeach()

  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/main.cpp")
    add_executable(atoll "${CMAKE_CURRENT_SOURCE_DIR}/${name}/main.cpp")
    target_link_libraries(atoll PRIVATE atoll_${name})
    set_target_properties(atoll PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  endif()

  if(ATOLL_TESTS)
    atoll_tests(${name}_test fast "${tests}" atoll_${name} ${ARG_TEST_LIBS})
    atoll_tests(${name}_slow_test slow "${slow_tests}" atoll_${name} ${ARG_TEST_LIBS})
  endif()
endfunction()

# atoll_page(<module> HEADER <header> FUNCTION <function>): the files in <module>/page become a part of the program, as a
# list of http::Asset that the function gives.
function(atoll_page name)
  cmake_parse_arguments(ARG "" "HEADER;FUNCTION" "" ${ARGN})
  set(from "${CMAKE_CURRENT_SOURCE_DIR}/${name}/page")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/${name}_page.cpp")
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed.cmake")
  file(GLOB page CONFIGURE_DEPENDS "${from}/*")
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DFROM=${from} -DOUT=${out} -DHEADER=${ARG_HEADER} -DFUNCTION=${ARG_FUNCTION} -P ${script}
    DEPENDS ${page} ${script})
  target_sources(atoll_${name} PRIVATE ${out})
endfunction()

# base/files/test_paths.h
configure_file(${PROJECT_SOURCE_DIR}/cmake/test_paths.cpp.in ${PROJECT_BINARY_DIR}/test_paths.cpp @ONLY)
add_library(atoll_test_paths STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/test_paths.cpp)
target_link_libraries(atoll_test_paths PRIVATE atoll_options)

# What `./dev test fast` builds: the programs with the fast label.
add_custom_target(fast_tests)

# atoll_tests(<target> fast|slow "<files>" <libraries...>): a GoogleTest program, a ctest per TEST.
function(atoll_tests target label files)
  if(NOT files)
    return()
  endif()
  atoll_units(units "${files}")
  add_executable(${target} ${units})
  target_link_libraries(${target} PRIVATE ${ARGN} atoll_test_paths atoll_test_main GTest::gmock)
  if(label STREQUAL "fast")
    add_dependencies(fast_tests ${target})
  endif()
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${label} TIMEOUT 600)
endfunction()
