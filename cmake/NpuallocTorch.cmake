# The torch and torch_npu to build against. Part of the installed package too.
#
#   npualloc_find_torch()       defines npualloc::libc10
#   npualloc_find_torch_npu()   defines npualloc::torch_npu_headers and, for the wheel, npualloc::libtorch_npu,
#                               which has the headers too
#
# They are those that the Python NPUALLOC_PYTHON (default: python3) would import, unless
# NPUALLOC_TORCH_INCLUDE_DIRS and NPUALLOC_TORCH_NPU_INCLUDE_DIRS name include directories: then nothing
# is linked, the embedding project does that.

set(_NPUALLOC_QUERY "${CMAKE_CURRENT_LIST_DIR}/query_torch.py")

# Sets NPUALLOC_TORCH_DIR, NPUALLOC_TORCH_NPU_DIR and the other keys of query_torch.py in the caller, or
# <why> when it can't.
function(_npualloc_query_python why)
  set(${why} "" PARENT_SCOPE)
  execute_process(
    COMMAND "${NPUALLOC_PYTHON}" "${_NPUALLOC_QUERY}"
    OUTPUT_VARIABLE lines
    RESULT_VARIABLE result
    ERROR_VARIABLE error
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT result EQUAL 0)
    if(NOT error)
      set(error "${result}")
    endif()
    set(${why} "NPUALLOC_PYTHON=${NPUALLOC_PYTHON} could not be queried: ${error}" PARENT_SCOPE)
    return()
  endif()
  string(REPLACE "\n" ";" lines "${lines}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([A-Z_]+)=(.*)$" _ "${line}")
    set(NPUALLOC_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}" PARENT_SCOPE)
  endforeach()
endfunction()

# With an argument: the name of a variable for the reason why it failed. Otherwise that is an error.
macro(_npualloc_fail)
  if(${ARGC} GREATER 0)
    set(${ARGV0} "${_npualloc_why}" PARENT_SCOPE)
    return()
  endif()
  message(FATAL_ERROR "${_npualloc_why}")
endmacro()

function(npualloc_find_torch)
  if(TARGET npualloc::libc10)
    return()
  endif()
  if(NOT NPUALLOC_PYTHON)
    set(NPUALLOC_PYTHON python3)
  endif()
  if(DEFINED GLIBCXX_USE_CXX11_ABI AND NOT GLIBCXX_USE_CXX11_ABI)
    set(_npualloc_why "npualloc needs torch built with _GLIBCXX_USE_CXX11_ABI=1")
    _npualloc_fail(${ARGV})
  endif()
  if(NPUALLOC_TORCH_INCLUDE_DIRS)
    set(includes "${NPUALLOC_TORCH_INCLUDE_DIRS}")
    set(libraries)
  else()
    _npualloc_query_python(_npualloc_why)
    if(NOT _npualloc_why AND NOT NPUALLOC_TORCH_DIR)
      set(_npualloc_why "NPUALLOC_PYTHON=${NPUALLOC_PYTHON} has no torch; set NPUALLOC_PYTHON to one that \
has, or NPUALLOC_TORCH_INCLUDE_DIRS; npualloc itself builds without, with -DNPUALLOC_BUILD_C10=OFF -DNPUALLOC_BUILD_TORCH_NPU=OFF")
    endif()
    if(_npualloc_why)
      _npualloc_fail(${ARGV})
    endif()
    message(STATUS "torch ${NPUALLOC_TORCH_VERSION} in ${NPUALLOC_TORCH_DIR}")
    set(includes "${NPUALLOC_TORCH_DIR}/include")
    set(libraries "${NPUALLOC_TORCH_DIR}/lib/libc10.so")
  endif()
  add_library(npualloc::libc10 INTERFACE IMPORTED GLOBAL)
  target_include_directories(npualloc::libc10 SYSTEM INTERFACE ${includes})
  target_compile_definitions(npualloc::libc10 INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  target_link_libraries(npualloc::libc10 INTERFACE ${libraries})
endfunction()

function(npualloc_find_torch_npu)
  if(TARGET npualloc::torch_npu_headers)
    return()
  endif()
  if(NOT NPUALLOC_PYTHON)
    set(NPUALLOC_PYTHON python3)
  endif()
  if(NPUALLOC_TORCH_NPU_INCLUDE_DIRS)
    set(includes "${NPUALLOC_TORCH_NPU_INCLUDE_DIRS}")
  else()
    _npualloc_query_python(_npualloc_why)
    if(NOT _npualloc_why AND NOT NPUALLOC_TORCH_NPU_DIR)
      set(_npualloc_why "NPUALLOC_PYTHON=${NPUALLOC_PYTHON} has no torch_npu; set NPUALLOC_PYTHON to one \
that has, or NPUALLOC_TORCH_NPU_INCLUDE_DIRS; npualloc itself builds without, with -DNPUALLOC_BUILD_TORCH_NPU=OFF")
    endif()
    if(_npualloc_why)
      _npualloc_fail(${ARGV})
    endif()
    message(STATUS "torch_npu ${NPUALLOC_TORCH_NPU_VERSION} in ${NPUALLOC_TORCH_NPU_DIR}")
    set(includes
        "${NPUALLOC_TORCH_NPU_DIR}/include" "${NPUALLOC_TORCH_NPU_DIR}/include/third_party/acl/inc"
        "${NPUALLOC_TORCH_DIR}/include" "${NPUALLOC_TORCH_DIR}/include/torch/csrc/api/include"
        "${NPUALLOC_PYTHON_INCLUDE}")
    # Linked by path, found again at run time by name: the process has torch_npu loaded before the
    # plug-in. libtorch_npu's own dependencies (the device runtime) need not be present at build time.
    add_library(npualloc::libtorch_npu INTERFACE IMPORTED GLOBAL)
    target_link_libraries(
      npualloc::libtorch_npu INTERFACE npualloc::torch_npu_headers "${NPUALLOC_TORCH_NPU_DIR}/lib/libtorch_npu.so"
                                       "${NPUALLOC_TORCH_DIR}/lib/libtorch_cpu.so")
  endif()
  add_library(npualloc::torch_npu_headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(npualloc::torch_npu_headers SYSTEM INTERFACE ${includes})
  target_link_libraries(npualloc::torch_npu_headers INTERFACE npualloc::libc10)
endfunction()
