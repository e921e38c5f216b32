# npualloc::libc10 and npualloc::libtorch_npu: the libraries of the torch and torch_npu that
# NPUALLOC_PYTHON would import.

execute_process(
  COMMAND "${NPUALLOC_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/query_torch.py"
  OUTPUT_VARIABLE _npualloc_query
  RESULT_VARIABLE _npualloc_result
  ERROR_VARIABLE _npualloc_error
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _npualloc_result EQUAL 0)
  message(FATAL_ERROR "NPUALLOC_PYTHON=${NPUALLOC_PYTHON} could not be queried: ${_npualloc_error}")
endif()
string(REPLACE "\n" ";" _npualloc_query "${_npualloc_query}")
foreach(_line IN LISTS _npualloc_query)
  string(REGEX MATCH "^([A-Z_]+)=(.*)$" _ "${_line}")
  set(NPUALLOC_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
endforeach()
if(NOT NPUALLOC_TORCH_DIR)
  message(FATAL_ERROR "NPUALLOC_PYTHON=${NPUALLOC_PYTHON} has no torch; install it, or configure with "
                      "-DNPUALLOC_BUILD_C10=OFF -DNPUALLOC_BUILD_TORCH_NPU=OFF")
endif()
message(STATUS "torch ${NPUALLOC_TORCH_VERSION} in ${NPUALLOC_TORCH_DIR}")

add_library(npualloc_libc10 INTERFACE)
target_include_directories(npualloc_libc10 SYSTEM INTERFACE "${NPUALLOC_TORCH_DIR}/include")
target_compile_definitions(npualloc_libc10 INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_libraries(npualloc_libc10 INTERFACE "${NPUALLOC_TORCH_DIR}/lib/libc10.so")
add_library(npualloc::libc10 ALIAS npualloc_libc10)

if(NPUALLOC_BUILD_TORCH_NPU)
  if(NOT NPUALLOC_TORCH_NPU_DIR)
    message(FATAL_ERROR "NPUALLOC_PYTHON=${NPUALLOC_PYTHON} has no torch_npu; install it, or configure "
                        "with -DNPUALLOC_BUILD_TORCH_NPU=OFF")
  endif()
  message(STATUS "torch_npu ${NPUALLOC_TORCH_NPU_VERSION} in ${NPUALLOC_TORCH_NPU_DIR}")
  add_library(npualloc_libtorch_npu INTERFACE)
  target_include_directories(
    npualloc_libtorch_npu SYSTEM
    INTERFACE "${NPUALLOC_TORCH_NPU_DIR}/include"
              "${NPUALLOC_TORCH_NPU_DIR}/include/third_party/acl/inc"
              "${NPUALLOC_TORCH_DIR}/include"
              "${NPUALLOC_TORCH_DIR}/include/torch/csrc/api/include"
              "${NPUALLOC_PYTHON_INCLUDE}")
  # Linked by path, found again at run time by name: the process has torch_npu loaded before the
  # plug-in. libtorch_npu's own dependencies (the device runtime) need not be present at build time.
  target_link_libraries(
    npualloc_libtorch_npu INTERFACE npualloc_libc10 "${NPUALLOC_TORCH_NPU_DIR}/lib/libtorch_npu.so"
                                    "${NPUALLOC_TORCH_DIR}/lib/libtorch_cpu.so")
  add_library(npualloc::libtorch_npu ALIAS npualloc_libtorch_npu)
endif()
