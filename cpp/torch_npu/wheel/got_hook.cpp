#include "got_hook.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace npualloc::torch_npu_plugin {

namespace {

struct Request {
  std::string_view library;
  const char* symbol;
  void* replacement;
  void* previous = nullptr;
};

struct Image {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * calls = nullptr;
  std::size_t call_count = 0;
  const ElfW(Rela) * data = nullptr;
  std::size_t data_count = 0;
};

Image read_dynamic(const ElfW(Dyn) * entry) {
  Image image;
  for (; entry->d_tag != DT_NULL; ++entry) {
    // glibc has relocated the pointers.
    const auto address = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        image.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
        break;
      case DT_STRTAB:
        image.strings = reinterpret_cast<const char*>(address);
        break;
      case DT_JMPREL:
        image.calls = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_PLTRELSZ:
        image.call_count = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELA:
        image.data = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_RELASZ:
        image.data_count = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      default:
        break;
    }
  }
  return image;
}

// Entries are read-only where the linker was told to bind at start (RELRO).
bool write_entry(void** entry, void* value, bool read_only) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  void* start = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(entry) & ~(page - 1));
  if (read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(entry, value, __ATOMIC_RELEASE);
  if (read_only) mprotect(start, page, PROT_READ);
  return true;
}

int visit(dl_phdr_info* info, std::size_t, void* data) {
  auto& request = *static_cast<Request*>(data);
  const std::string_view path = info->dlpi_name;
  const auto slash = path.rfind('/');
  if (path.substr(slash == path.npos ? 0 : slash + 1) != request.library) return 0;

  const ElfW(Dyn)* dynamic = nullptr;
  std::uintptr_t relro_begin = 0;
  std::uintptr_t relro_end = 0;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + header.p_vaddr);
    } else if (header.p_type == PT_GNU_RELRO) {
      relro_begin = info->dlpi_addr + header.p_vaddr;
      // Whole pages alone are read-only: the loader leaves the last one as it is where other data
      // shares it, as with larger pages than the linker knew.
      relro_end = (relro_begin + header.p_memsz) & ~(page - 1);
    }
  }
  if (dynamic == nullptr) return 1;
  const Image image = read_dynamic(dynamic);
  if (image.symbols == nullptr || image.strings == nullptr) return 1;

  const auto patch = [&](const ElfW(Rela) * relocations, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto symbol = ELF64_R_SYM(relocations[i].r_info);
      if (symbol == 0) continue;
      if (std::strcmp(image.strings + image.symbols[symbol].st_name, request.symbol) != 0) continue;
      const std::uintptr_t where = info->dlpi_addr + relocations[i].r_offset;
      void** entry = reinterpret_cast<void**>(where);
      void* previous = *entry;
      if (write_entry(entry, request.replacement, relro_begin <= where && where < relro_end)) {
        request.previous = previous;
      }
    }
  };
  patch(image.calls, image.call_count);
  patch(image.data, image.data_count);
  return 1;
}

}  // namespace

void* redirect_import(const char* library, const char* symbol, void* replacement) {
  Request request{library, symbol, replacement};
  dl_iterate_phdr(&visit, &request);
  return request.previous;
}

}  // namespace npualloc::torch_npu_plugin
