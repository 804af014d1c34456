// SPDX-License-Identifier: Apache-2.0
// Files that rounds bring, in the folder `received` of a state by their sha256. They come in pieces, in any number of processes, while a
// computation waits for them. Nothing of the user is in them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bytes.h"
#include "exec/control.h"
#include "federated/round_document.h"

namespace bespoke {

class ReceivedFiles {
 public:
  explicit ReceivedFiles(const std::string& state_folder);

  // The bytes that are wanted next of the first of these files that is not whole: the file, and from where on. None: all are there.
  std::optional<std::pair<ReceivedFile, int64_t>> wanted(const std::vector<ReceivedFile>& files) const;

  // Adds bytes of a file from `offset` on. A file that is whole is checked: DataError where it is not what the server signed, and it has to
  // come again. Bytes that are there already, or that are not the next ones, change nothing.
  void add(const ReceivedFile& file, int64_t offset, Bytes bytes) const;

  bool has(const ReceivedFile& file) const;
  // Returns once the file is there. Throws Abandoned where the call must end, and DataError once it is no longer wanted.
  void wait_for(const ReceivedFile& file, const Control& control, const std::function<bool()>& is_wanted) const;
  std::string path_of(const ReceivedFile& file) const;
  void remove_all_but(const std::vector<ReceivedFile>& files) const;  // as far as that is possible

 private:
  std::string partial_of(const ReceivedFile& file) const { return path_of(file) + ".partial"; }

  const std::string folder_;
};

}  // namespace bespoke
