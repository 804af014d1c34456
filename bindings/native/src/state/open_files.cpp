// SPDX-License-Identifier: Apache-2.0
#include "state/open_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <map>

#include "platform/fork.h"
#include "state/errors.h"

namespace bespoke {

namespace {

// Never destroyed, since a model may outlive the statics.
auto& open_files() REQUIRES(held_over_forks()) {
  static auto* const made = new std::multimap<std::pair<dev_t, ino_t>, OwnProcess>;
  return *made;
}

}  // namespace

OpenFile::OpenFile(const std::string& path) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0) throw from_errno(errno, path);
  file_ = {found.st_dev, found.st_ino};
  const MutexLock held(held_over_forks());
  const auto [first, last] = open_files().equal_range(file_);
  for (auto at = first; at != last; ++at)
    if (!at->second.is_this())
      throw Error(Kind::State, path, "a state that process " + std::to_string(at->second.number()) + " had open when it forked this one",
                  "a process that inherits no connection to it",
                  "Close the model before the fork, or start the process without one (in Python: spawn)");
  open_files().emplace(file_, OwnProcess());
}

OpenFile::~OpenFile() {
  const MutexLock held(held_over_forks());
  const auto [first, last] = open_files().equal_range(file_);
  for (auto at = first; at != last; ++at)
    if (at->second.is_this()) {
      open_files().erase(at);
      return;
    }
}

}  // namespace bespoke
