# cmake -DCXX=<compiler> -DPREFIX=<prefix> -DSOURCE=<file> -DPROGRAM=<program> -P pkgconfig.cmake: builds and
# runs a program with pkg-config's flags alone.
file(GLOB_RECURSE package "${PREFIX}/*/npualloc.pc")
cmake_path(GET package PARENT_PATH directory)
set(ENV{PKG_CONFIG_PATH} "${directory}")
execute_process(COMMAND pkg-config --cflags --libs npualloc OUTPUT_VARIABLE flags
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND "${CXX}" "${SOURCE}" -o "${PROGRAM}" ${flags} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${PROGRAM}" COMMAND_ERROR_IS_FATAL ANY)
