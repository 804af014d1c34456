// SPDX-License-Identifier: Apache-2.0
// The databases that this process has open, and those that its parent had open when it was forked.
//
// SQLite remembers in memory which locks its process holds on a file. A fork inherits that memory and none of the locks: a connection
// that it opens to the same file would take itself for locked, and the parent, which finds no lock when it closes, would delete the log
// that the fork writes to. What the fork has committed would be lost.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace bespoke {

class OpenFile {  // of a connection, for as long as it is open
 public:
  explicit OpenFile(const std::string& path);  // StateError where this process has inherited a connection to it
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

 private:
  std::pair<dev_t, ino_t> file_;
};

}  // namespace bespoke
