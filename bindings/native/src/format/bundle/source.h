// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a bundle lie: a folder, or stored zips that are read in place (sdk/bespoke/bundle/sources.py).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "error.h"
#include "platform/descriptor.h"

namespace bespoke {

constexpr uint64_t kPage = 16384;  // where weights begin, and entries of an archive

struct Extent {  // bytes `offset` to `offset + size` of a file
  Descriptor descriptor;
  uint64_t offset, size;
};

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::set<std::string> names() = 0;                              // every file there is; BundleError for links, devices, strangers
  virtual Extent extent(const std::string& name) = 0;                     // BundleError if there is none
  virtual std::string path(const std::string& name) const { return {}; }  // of a file that is not within another
  const std::string& subject() const { return subject_; }

 protected:
  std::string subject_;
};

// A folder with manifest.json in it, a folder with the two zips in it, or a zip; where the path is empty, a zip within an open file.
struct BundlePlace {
  BundlePlace(std::string path) : path(std::move(path)) {}
  BundlePlace(int descriptor, uint64_t offset, uint64_t size) : descriptor(descriptor), offset(offset), size(size) {}

  std::string path;
  int descriptor = -1;  // somebody else's: it is duplicated
  uint64_t offset = 0, size = 0;
};
std::unique_ptr<ByteSource> open_source(const BundlePlace& place);
std::unique_ptr<ByteSource> open_archives(const std::vector<std::string>& paths);  // together they are one source

struct Entry {
  uint64_t offset, size;  // within the file that the archive lies in
};
// Entries of a stored zip exactly as sdk/bespoke/bundle/archive.py writes it. BundleError for any other.
std::map<std::string, Entry> read_entries(const Extent& archive, const std::string& subject);

// At most `size` bytes from `offset`; fewer where the file ends. BundleError when it cannot be read.
size_t read_at(int descriptor, void* out, size_t size, uint64_t offset, const std::string& subject);

[[noreturn]] void refuse_bundle(const std::string& subject, const std::string& got, const std::string& expected);

constexpr size_t kMaxFiles = 16'384;

}  // namespace bespoke
