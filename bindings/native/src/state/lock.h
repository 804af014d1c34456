// SPDX-License-Identifier: Apache-2.0
// The lock on the files of a state. The trainer's is in store.h.
#pragma once

#include <string>

namespace bespoke {

extern const char* const kFilesLock;  // "files.lock"

class FilesLock {  // exclusive right to change tensor files; waits, Unavailable after 30 seconds
 public:
  explicit FilesLock(const std::string& folder);
  ~FilesLock();
  FilesLock(const FilesLock&) = delete;
  FilesLock& operator=(const FilesLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace bespoke
