// SPDX-License-Identifier: Apache-2.0
#include "platform/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "platform/descriptor.h"
#include "platform/files.h"

namespace bespoke {
namespace {

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

void* anonymous(size_t size, int rights) { return mmap(nullptr, size, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

// Of all pages that hold a byte of it: a mapping begins and ends at a page, what an archive has in it does not.
void advise(Bytes mapped, int advice) {
  const auto at = reinterpret_cast<uintptr_t>(mapped.data), begin = at / page_size() * page_size();
  if (mapped.size) madvise(reinterpret_cast<void*>(begin), at - begin + mapped.size, advice);
}

}  // namespace

size_t whole_pages(size_t length) { return (length + page_size() - 1) / page_size() * page_size(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), length_(other.length_), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(length_, other.length_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (base_) munmap(base_, length_);
}

int MappedFile::map(int descriptor, uint64_t offset, size_t size) { return map(descriptor, offset, size, PROT_READ, MAP_SHARED); }

int MappedFile::map_private(int descriptor, uint64_t offset, size_t size) {
  return map(descriptor, offset, size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
}

int MappedFile::map(int descriptor, uint64_t offset, size_t size, int rights, int kind) {
  const size_t shift = offset % page_size();
  const size_t length = whole_pages(size + shift) + whole_pages(kReadBehind);
  void* place = anonymous(length, PROT_READ);
  if (place == MAP_FAILED) return errno;
  if (mmap(place, size + shift, rights, kind | MAP_FIXED, descriptor, static_cast<off_t>(offset - shift)) == MAP_FAILED) {
    const int failed = errno;
    munmap(place, length);
    return failed;
  }
  base_ = place, length_ = length;
  bytes_ = {static_cast<const uint8_t*>(place) + shift, size};
  return 0;
}

WritablePages::WritablePages(WritablePages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

WritablePages& WritablePages::operator=(WritablePages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

WritablePages::~WritablePages() {
  if (data_) munmap(data_, size_);
}

int WritablePages::map_anonymous(size_t size) {
  if (!size) return 0;
  void* place = anonymous(size, PROT_READ | PROT_WRITE);
  if (place == MAP_FAILED) return errno;
  data_ = static_cast<uint8_t*>(place), size_ = size;
#ifdef MADV_NOHUGEPAGE
  madvise(data_, size_, MADV_NOHUGEPAGE);  // a huge page would count whole from its first byte on
#endif
  return 0;
}

int WritablePages::map_addresses(size_t size) {
  void* place = anonymous(size, PROT_NONE);
  if (place == MAP_FAILED) return errno;
  data_ = static_cast<uint8_t*>(place), size_ = size;
  return 0;
}

int WritablePages::map_scratch(const std::string& path, size_t size) {
  if (!size) return 0;
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) return errno;
  int failed = preallocate(file.get(), size);
  void* place = failed ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (!failed && place == MAP_FAILED) failed = errno;
  unlink(path.c_str());
  if (failed) return failed;
  data_ = static_cast<uint8_t*>(place), size_ = size;
  return 0;
}

bool can_map(size_t size) {
  void* place = anonymous(size, PROT_READ | PROT_WRITE);
  if (place == MAP_FAILED) return false;
  munmap(place, size);
  return true;
}

void want_pages(Bytes mapped) { advise(mapped, MADV_WILLNEED); }
void drop_pages(Bytes mapped) { advise(mapped, MADV_DONTNEED); }

}  // namespace bespoke
