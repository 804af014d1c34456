// SPDX-License-Identifier: Apache-2.0
// The lock on the files of a state. The trainer's is in store.h.
#pragma once

#include <string>

#include "platform/descriptor.h"
#include "platform/fork.h"

namespace bespoke {

class LockFile {  // one of a state's lock files, open; unlocked when it goes, though a fork has a copy of it
 public:
  LockFile(const std::string& folder, const std::string& name);
  ~LockFile();
  [[nodiscard]] bool take();  // false: another process has it
  int descriptor() const { return opened_.get(); }

 private:
  Descriptor opened_;
  ClosedInForks closed_in_forks_;
};

extern const char* const kFilesLock;  // "files.lock"

class FilesLock {  // exclusive right to change tensor files; waits, Unavailable after 30 seconds
 public:
  explicit FilesLock(const std::string& folder);

 private:
  LockFile file_;
};

}  // namespace bespoke
