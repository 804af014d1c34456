// SPDX-License-Identifier: Apache-2.0
// Memory by pages: files mapped read-only, anonymous regions, preallocated files mapped writable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bytes.h"

namespace bespoke {

constexpr size_t kReadBehind = 128;  // bytes that an engine may read past an operand: XNNPACK does

size_t whole_pages(size_t length);

// Part of a file, read-only, with a page of zeros behind it: an adapter may end where its file's last page does.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] int map(int descriptor, uint64_t offset, size_t size);  // once; 0 or an errno. The descriptor may be closed afterwards.
  // The same, for changes that only this process sees: a page is copied when it is written to, and the others stay the file's.
  [[nodiscard]] int map_private(int descriptor, uint64_t offset, size_t size);
  Bytes bytes() const { return bytes_; }
  uint8_t* writable() const { return const_cast<uint8_t*>(bytes_.data); }  // of map_private

 private:
  [[nodiscard]] int map(int descriptor, uint64_t offset, size_t size, int rights, int kind);

  void* base_ = nullptr;
  size_t length_ = 0;
  Bytes bytes_;
};

class WritablePages {  // of our own, zero at first
 public:
  WritablePages() = default;
  WritablePages(WritablePages&& other) noexcept;
  WritablePages& operator=(WritablePages&& other) noexcept;
  ~WritablePages();

  [[nodiscard]] int map_anonymous(size_t size);  // once; 0 or an errno
  // Of a new file that has no name any more when this returns, so that a killed process leaves none. Its room is taken on the disk.
  [[nodiscard]] int map_scratch(const std::string& path, size_t size);
  [[nodiscard]] int map_addresses(size_t size);  // no memory: what touches one of them ends the process

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

bool can_map(size_t size);  // whether the system would give so much anonymous memory now

// Clean pages of a mapped file: they are wanted soon, or may leave this process (not the system's cache).
void want_pages(Bytes mapped);
void drop_pages(Bytes mapped);

}  // namespace bespoke
