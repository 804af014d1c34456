// SPDX-License-Identifier: Apache-2.0
// Hashes that were computed before, so that gigabytes of weights are not read again at every start. A file is taken for unchanged while
// device, inode, size and both of its times, in nanoseconds, are what they were. A write sets both times, the second one to what the
// system's clock says. A file that changed less than two seconds before it was hashed is not remembered: a second change within one tick
// of the clock would not show.
//
// What this does not find: a change through a writable mapping, whose times are set when a page is first written to and not with each
// write that follows; a disk that returns other bytes than were written; file systems whose change time means something else (FAT). So
// nothing is remembered of a file that another user may write to, and nothing of a program at all (format/bundle/bundle.cpp). It keeps
// out no one who may write as this user: they may as well train the model on anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "locks.h"

namespace bespoke {

class KnownHashes {
 public:
  using Clock = int64_t (*)();  // nanoseconds since 1970

  // `path`: where they are kept from process to process; empty: in this process alone. What cannot be read there is not known.
  explicit KnownHashes(std::string path, Clock now = nullptr);

  // The sha256 of `size` bytes from `offset` of an open file: as remembered, else as `compute` gives it. From any thread. Computed each
  // time for a file that users other than this one and the system's may write to.
  std::string of(int descriptor, uint64_t offset, uint64_t size, const std::function<std::string()>& compute);

  // Writes down what is new, in place: two that write at once leave a damaged file, which is no memory. False where it could not, which
  // costs the next process the time to compute it again.
  bool save() noexcept;

 private:
  using Place = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;  // device, inode, offset, size
  struct Version {
    uint64_t file_size;
    int64_t modified_ns, changed_ns;
    bool operator==(const Version& other) const {
      return file_size == other.file_size && modified_ns == other.modified_ns && changed_ns == other.changed_ns;
    }
  };
  struct Known {
    Version version;
    std::string sha256;
  };

  static std::optional<std::pair<Place, Version>> look(int descriptor, uint64_t offset, uint64_t size);
  void load() REQUIRES(mutex_);
  std::string text() const REQUIRES(mutex_);

  const std::string path_;
  const Clock now_;
  Mutex mutex_;
  std::map<Place, Known> known_ GUARDED_BY(mutex_);
  std::set<Place> used_ GUARDED_BY(mutex_);  // by this process
  bool is_new_ GUARDED_BY(mutex_) = false;   // something that is not in the file
};

}  // namespace bespoke
