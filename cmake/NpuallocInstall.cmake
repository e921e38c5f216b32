# Installs libraries, headers, the CMake package `npualloc` and npualloc.pc.
#
# One file of targets for each component: core, and c10, torch_npu, torch_npu_fork where they were built.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(_npualloc_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/npualloc")

# npualloc_install(<component> <targets…>)
function(npualloc_install component)
  install(
    TARGETS ${ARGN}
    EXPORT npualloc-${component}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    # The plug-in is loaded by path, not linked.
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/npualloc"
    INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(
    EXPORT npualloc-${component}
    NAMESPACE npualloc::
    DESTINATION "${_npualloc_package_dir}")
endfunction()

npualloc_install(core npualloc_core)
install(FILES "${NPUALLOC_RUST_LIBRARY}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/npualloc" "${NPUALLOC_GENERATED_INCLUDE}/npualloc"
                  "${NPUALLOC_GENERATED_INCLUDE}/rust"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
if(TARGET npualloc_c10)
  npualloc_install(c10 npualloc_c10)
endif()
if(TARGET npualloc_torch_npu)
  npualloc_install(torch_npu npualloc_torch_npu npualloc_pluggable)
endif()
if(TARGET npualloc_torch_npu_fork)
  npualloc_install(torch_npu_fork npualloc_torch_npu_fork npualloc_torch_npu_fork_archive)
endif()

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/npuallocConfig.cmake.in" "${PROJECT_BINARY_DIR}/npuallocConfig.cmake"
  INSTALL_DESTINATION "${_npualloc_package_dir}"
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/npuallocConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/npuallocConfig.cmake"
              "${PROJECT_BINARY_DIR}/npuallocConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/NpuallocTorch.cmake" "${CMAKE_CURRENT_LIST_DIR}/query_torch.py"
        DESTINATION "${_npualloc_package_dir}")

# Relative, so that an installed tree can be moved.
file(RELATIVE_PATH _npualloc_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${CMAKE_CURRENT_LIST_DIR}/npualloc.pc.in" "${PROJECT_BINARY_DIR}/npualloc.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/npualloc.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
