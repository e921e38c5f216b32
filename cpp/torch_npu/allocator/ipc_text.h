// The text by which memory is shared between processes, read without calling anything. It comes
// from another process: every length in it is checked before it is used. Standard library only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace npualloc::torch_npu_plugin::ipc_text {

// The texts are those of torch_npu, so that processes with either allocator can share memory:
//   version, 'c', key                                      a driver allocation
//   version, 'e', page size, count, count × shareable       pages of a virtual segment
// Versions up to ours are understood. A text of the length of a key is one, without a header.
inline constexpr char kVersion = 1;
inline constexpr char kByKey = 'c';
inline constexpr char kByPages = 'e';
inline constexpr std::size_t kKeyBytes = 65;
// What a text may claim: more is not a range of device memory.
inline constexpr std::size_t kMaxPages = std::size_t{1} << 20;
inline constexpr std::size_t kMaxPageSize = std::size_t{1} << 30;

struct PagesHeader {
  std::size_t page_size;
  std::size_t count;
};

enum class Verdict {
  Key,
  Pages,
  // The length is not what the text says.
  CutOff,
  NewerVersion,
  Illformed,
};

struct Contents {
  // Of a driver allocation.
  std::string key;
  // Of pages of a virtual segment.
  std::size_t page_size = 0;
  std::vector<std::uint64_t> shareables;
};

// Reads a text into `contents`, which stays empty unless the verdict is Key or Pages. The whole
// length is checked before memory is taken for what the text claims.
inline Verdict parse(std::string_view text, Contents& contents) {
  if (text.size() == kKeyBytes) {
    contents.key = text;
    return Verdict::Key;
  }
  if (text.empty()) return Verdict::CutOff;
  if (static_cast<unsigned char>(text[0]) > static_cast<unsigned char>(kVersion)) {
    return Verdict::NewerVersion;
  }
  if (text.size() < 2) return Verdict::CutOff;
  const char type = text[1];
  text.remove_prefix(2);
  if (type == kByKey) {
    if (text.size() < kKeyBytes) return Verdict::CutOff;
    contents.key = text.substr(0, kKeyBytes);
    return Verdict::Key;
  }
  if (type != kByPages) return Verdict::Illformed;
  PagesHeader header{};
  if (text.size() < sizeof(header)) return Verdict::CutOff;
  std::memcpy(&header, text.data(), sizeof(header));
  text.remove_prefix(sizeof(header));
  if (header.count == 0 || header.count > kMaxPages || header.page_size == 0 ||
      header.page_size > kMaxPageSize) {
    return Verdict::Illformed;
  }
  if (text.size() != header.count * sizeof(std::uint64_t)) return Verdict::CutOff;
  contents.page_size = header.page_size;
  contents.shareables.resize(header.count);
  std::memcpy(contents.shareables.data(), text.data(), text.size());
  return Verdict::Pages;
}

}  // namespace npualloc::torch_npu_plugin::ipc_text
