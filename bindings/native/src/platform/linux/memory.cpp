// SPDX-License-Identifier: Apache-2.0
// Readings of /proc without allocation: what measures memory takes none.
#include "platform/memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bespoke {

namespace {

int64_t kilobytes(const char* text, const char* label) {
  const char* found = std::strstr(text, label);
  return found == nullptr ? 0 : std::strtoll(found + std::strlen(label), nullptr, 10) * 1024;
}

struct File {
  explicit File(const char* path) : stream(std::fopen(path, "re")) {}
  ~File() {
    if (stream != nullptr) std::fclose(stream);
  }
  std::FILE* stream;
};

}  // namespace

MemoryColumns::MemoryColumns() : descriptor_(::open("/proc/self/status", O_RDONLY | O_CLOEXEC)) {}

MemoryColumns::~MemoryColumns() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Footprint MemoryColumns::read() const {
  char text[8192];
  const ssize_t size = descriptor_ < 0 ? -1 : ::pread(descriptor_, text, sizeof text - 1, 0);
  if (size <= 0) return {};
  text[size] = 0;
  return {kilobytes(text, "RssAnon:"), kilobytes(text, "RssShmem:"), kilobytes(text, "VmSwap:"), kilobytes(text, "RssFile:")};
}

int64_t dirty_mapped_bytes() {
  File smaps("/proc/self/smaps");
  if (smaps.stream == nullptr) return 0;
  char line[512];
  int64_t total = 0, dirty = 0, anonymous = 0;
  bool mapped_file = false, whole = true;  // whole: the line before ended, so this one begins
  const auto close_map = [&] {
    if (mapped_file) total += std::max<int64_t>(0, dirty - anonymous);
    dirty = anonymous = 0;
  };
  while (std::fgets(line, sizeof line, smaps.stream) != nullptr) {
    const bool begins = whole;
    whole = std::strchr(line, '\n') != nullptr;
    if (!begins) continue;  // the rest of a long path
    unsigned long from, to, offset, inode;
    char rights[8], device[16];
    if (std::sscanf(line, "%lx-%lx %7s %lx %15s %lu", &from, &to, rights, &offset, device, &inode) == 6) {
      close_map();
      mapped_file = inode != 0;
    } else if (std::strncmp(line, "Private_Dirty:", 14) == 0 || std::strncmp(line, "Shared_Dirty:", 13) == 0) {
      dirty += std::strtoll(std::strchr(line, ':') + 1, nullptr, 10) * 1024;
    } else if (std::strncmp(line, "Anonymous:", 10) == 0) {
      anonymous += std::strtoll(line + 10, nullptr, 10) * 1024;
    }
  }
  close_map();
  return total;
}

Storage storage_bytes() {
  File io("/proc/self/io");
  Storage storage;
  if (io.stream == nullptr) return storage;
  char line[128];
  while (std::fgets(line, sizeof line, io.stream) != nullptr) {
    if (std::strncmp(line, "read_bytes:", 11) == 0) storage.read = std::strtoll(line + 11, nullptr, 10);
    if (std::strncmp(line, "write_bytes:", 12) == 0) storage.written = std::strtoll(line + 12, nullptr, 10);
  }
  return storage;
}

void release_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#elif defined(M_PURGE)
  ::mallopt(M_PURGE, 0);  // Android
#endif
}

void steady_malloc() {
#ifdef __GLIBC__
  constexpr int kThreshold = 1 << 17;  // as sdk/bespoke/system/malloc.py found best
  ::mallopt(M_MMAP_THRESHOLD, kThreshold);
  ::mallopt(M_TRIM_THRESHOLD, kThreshold);
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace bespoke
