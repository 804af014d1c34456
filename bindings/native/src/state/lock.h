// SPDX-License-Identifier: Apache-2.0
// Locks between processes: flock, because the kernel releases it when its holder dies, however it dies. As sdk/bespoke/state/lock.py.
#pragma once

#include <string>

namespace bespoke {

extern const char* const kFilesLock;  // "files.lock"

class FilesLock {  // exclusive right to change tensor files; waits, StateError after 30 seconds
 public:
  explicit FilesLock(const std::string& folder);
  ~FilesLock();
  FilesLock(const FilesLock&) = delete;
  FilesLock& operator=(const FilesLock&) = delete;

 private:
  int descriptor_;
};

class Descriptor {  // closed when it goes
 public:
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int release() {
    int kept = number;
    number = -1;
    return kept;
  }
  int number;
};

}  // namespace bespoke
