// SPDX-License-Identifier: Apache-2.0
// An artifact as MLX wants it, through C++ and through mlx-c: a file of its own version, by a path.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engines/failure.h"

namespace bespoke {

// A file's first field. What follows differs from version to version, and MLX reads on without a look at it.
inline void check_version(const bespoke_artifact& artifact, const std::string& expected) {
  const auto* bytes = static_cast<const char*>(artifact.bytes);
  uint64_t size = 0;
  if (artifact.size >= sizeof size) std::memcpy(&size, bytes, sizeof size);
  if (!size || size > 32 || size > artifact.size - sizeof size) throw Failure{"no file of MLX"};
  const std::string version(bytes + sizeof size, size);
  if (version != expected) throw Failure{"a program of MLX " + version + " for this MLX " + expected};
}

// MLX reads files by their path only, and keeps this one open for the program's constants. So it has none by the time it is read.
class UnnamedFile {
 public:
  UnnamedFile(const void* bytes, size_t size) {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder && *folder ? folder : "/tmp") + "/bespoke-mlxfn-XXXXXX";
    descriptor_ = ::mkstemp(path_.data());
    if (descriptor_ < 0) throw Failure{"no temporary file in " + path_};
    const char* at = static_cast<const char*>(bytes);
    for (size_t left = size; left;) {
      const ssize_t written = ::write(descriptor_, at, left);
      if (written <= 0) {
        close();
        throw Failure{"no room for a temporary file"};
      }
      at += written, left -= static_cast<size_t>(written);
    }
  }
  ~UnnamedFile() { close(); }
  UnnamedFile(const UnnamedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  void close() {
    if (descriptor_ < 0) return;
    ::unlink(path_.c_str());
    ::close(descriptor_);
    descriptor_ = -1;
  }
  std::string path_;
  int descriptor_;
};

}  // namespace bespoke
