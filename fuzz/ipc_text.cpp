// The parser of shared memory handles for Rust.
#include "ipc_text.h"

#include <string_view>

namespace ipc = npualloc::torch_npu_plugin::ipc_text;

// The verdict; for an accepted text, what it says.
extern "C" int npualloc_fuzz_ipc_text(const char* text, std::size_t bytes, std::size_t* page_size,
                                      std::size_t* count, std::uint64_t* sum) {
  ipc::Contents contents;
  const ipc::Verdict verdict = ipc::parse(std::string_view(text, bytes), contents);
  *page_size = contents.page_size;
  *count = contents.shareables.size();
  *sum = contents.key.size();
  for (const std::uint64_t shareable : contents.shareables) *sum += shareable;
  return static_cast<int>(verdict);
}
