// SPDX-License-Identifier: Apache-2.0
// Where XNNPACK keeps int4 weights as it lays them out for this processor: a file that it maps, so that they take no anonymous memory, and
// that the next process finds again. XNNPACK believes whatever lies there, gives its lock to one process at a time, and where it has no
// file it takes memory in silence: all of that is seen to here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "locks.h"
#include "platform/descriptor.h"

namespace bespoke {

// One file of weights, which programs of this process with the same weights share. It is this process's while one of them is open: for
// another process the weights are packed into a file of its own.
class PackedWeights {
 public:
  // `names`: of the weights; `bytes`: of their codes. Makes `folder`. Throws Failure.
  static std::shared_ptr<PackedWeights> in(const std::string& folder, std::vector<std::string> names, size_t bytes);

  Mutex loading;  // held while XNNPACK loads a program: models of several threads may share the file
  const std::string& path() const { return path_; }
  // Takes room on the disk for what XNNPACK will write, once its file is there: a write to a mapped page that has none would end the
  // process. 0, or an errno, which `packed` throws.
  [[nodiscard]] int take_room() REQUIRES(loading);
  // When XNNPACK has loaded a program, or could not. Throws Failure where there was no room, or where it has not used the file.
  void packed(bool loaded) REQUIRES(loading);

 private:
  PackedWeights(std::string path, Descriptor seal, size_t count, size_t bytes);
  bool is_sealed() const;
  size_t room() const;

  const std::string path_;
  const Descriptor seal_;       // a file with the sha256 of the other, and the lock on both
  const size_t count_, bytes_;  // of the weights, and of their codes
  bool sealed_ GUARDED_BY(loading);
  int no_room_ GUARDED_BY(loading) = 0;
};

}  // namespace bespoke
