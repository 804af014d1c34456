// SPDX-License-Identifier: Apache-2.0
// What the header of a safetensors file says, once all of it was held against the size of the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bytes.h"
#include "error.h"

namespace bespoke {

struct SafetensorsType {
  const char* name;
  size_t bytes;  // of an element
};

struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;  // bytes of the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // as their data lies in the file: in order, without holes, up to the file's end
  std::map<std::string, std::string> metadata;
};

constexpr size_t kSafetensorsStart = 8;  // bytes before the header: its length

// The length of the header, out of the first bytes of a file.
size_t safetensors_header_bytes(Bytes start, uint64_t file_size, const std::string& subject, Kind kind);

// `header` is the text behind the first 8 bytes. Other types than `known` are refused. `is_mapped`: numbers are used where they lie, so
// data must be aligned to its type, which MLX for one does not do. Throws Error(kind, subject, ...).
SafetensorsHeader read_safetensors_header(Bytes header, uint64_t file_size, const std::string& subject, Kind kind,
                                          const std::vector<SafetensorsType>& known, bool is_mapped);

}  // namespace bespoke
