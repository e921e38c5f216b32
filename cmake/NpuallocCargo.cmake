# npualloc::rust: the static library Cargo builds, and the header of its bridge.
#
# Cargo decides itself what is out of date, so the command runs on every build; it costs a fraction of
# a second when nothing changed, and the library's time stamp moves only when it did.

find_program(NPUALLOC_CARGO cargo HINTS "$ENV{HOME}/.cargo/bin" REQUIRED)
find_package(Threads REQUIRED)

if(NPUALLOC_CARGO_TARGET_DIR)
  set(_npualloc_target_dir "${NPUALLOC_CARGO_TARGET_DIR}")
elseif(DEFINED ENV{CARGO_TARGET_DIR})
  set(_npualloc_target_dir "$ENV{CARGO_TARGET_DIR}")
else()
  set(_npualloc_target_dir "${PROJECT_SOURCE_DIR}/target")
endif()
cmake_path(ABSOLUTE_PATH _npualloc_target_dir BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" NORMALIZE)

if(NPUALLOC_CARGO_PROFILE STREQUAL "dev")
  set(_npualloc_profile_dir debug)
else()
  set(_npualloc_profile_dir "${NPUALLOC_CARGO_PROFILE}")
endif()
set(_npualloc_flags ${NPUALLOC_CARGO_FLAGS})
set(_npualloc_out_dir "${_npualloc_target_dir}")
# Always named: another triple, of the environment or of a configuration of Cargo's, would put the library elsewhere,
# and an older one may lie where it is expected.
set(_npualloc_triple "${NPUALLOC_CARGO_TRIPLE}")
if(NOT _npualloc_triple)
  execute_process(
    COMMAND "${NPUALLOC_CARGO}" -vV
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE _npualloc_cargo_version COMMAND_ERROR_IS_FATAL ANY)
  if(NOT _npualloc_cargo_version MATCHES "host: ([^\n]+)")
    message(FATAL_ERROR "npualloc: ${NPUALLOC_CARGO} -vV names no host")
  endif()
  set(_npualloc_triple "${CMAKE_MATCH_1}")
endif()
list(APPEND _npualloc_flags --target "${_npualloc_triple}")
string(APPEND _npualloc_out_dir "/${_npualloc_triple}")
set(NPUALLOC_RUST_LIBRARY "${_npualloc_out_dir}/${_npualloc_profile_dir}/libnpualloc.a")
# Generated headers are copied here under the names the public headers include.
set(NPUALLOC_GENERATED_INCLUDE "${PROJECT_BINARY_DIR}/include")
file(MAKE_DIRECTORY "${NPUALLOC_GENERATED_INCLUDE}/npualloc" "${NPUALLOC_GENERATED_INCLUDE}/rust")

add_custom_target(
  npualloc_cargo
  COMMAND
    "${CMAKE_COMMAND}" -E env "CARGO_TARGET_DIR=${_npualloc_target_dir}" "${NPUALLOC_CARGO}" build
    --manifest-path "${PROJECT_SOURCE_DIR}/Cargo.toml" --package npualloc --lib --profile
    "${NPUALLOC_CARGO_PROFILE}" ${_npualloc_flags}
  COMMAND "${CMAKE_COMMAND}" -E copy_if_different
          "${_npualloc_target_dir}/cxxbridge/npualloc/src/bridge/mod.rs.h"
          "${NPUALLOC_GENERATED_INCLUDE}/npualloc/bridge.h"
  COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${_npualloc_target_dir}/cxxbridge/rust/cxx.h"
          "${NPUALLOC_GENERATED_INCLUDE}/rust/cxx.h"
  BYPRODUCTS "${NPUALLOC_RUST_LIBRARY}" "${NPUALLOC_GENERATED_INCLUDE}/npualloc/bridge.h"
             "${NPUALLOC_GENERATED_INCLUDE}/rust/cxx.h"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "Building the Rust core (${NPUALLOC_CARGO_PROFILE})"
  USES_TERMINAL VERBATIM)

add_library(npualloc::rust STATIC IMPORTED GLOBAL)
set_target_properties(
  npualloc::rust
  PROPERTIES IMPORTED_LOCATION "${NPUALLOC_RUST_LIBRARY}"
             INTERFACE_INCLUDE_DIRECTORIES
             "${PROJECT_SOURCE_DIR}/include;${NPUALLOC_GENERATED_INCLUDE}")
target_link_libraries(npualloc::rust INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
add_dependencies(npualloc::rust npualloc_cargo)
