// Redirects one function that a loaded library imports.
#pragma once

namespace npualloc::torch_npu_plugin {

// Replaces the address through which the library whose file name is `library` calls the imported
// function with the linker name `symbol`. Returns the previous address, or null when the library is
// not loaded or does not import the function.
void* redirect_import(const char* library, const char* symbol, void* replacement);

}  // namespace npualloc::torch_npu_plugin
