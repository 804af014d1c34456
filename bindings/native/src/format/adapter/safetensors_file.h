// SPDX-License-Identifier: Apache-2.0
// A safetensors file of float32 matrices, to be written. Same tensors, same bytes.
#pragma once

#include <map>
#include <string>

#include "format/bundle/bundle.h"
#include "format/whole_folder.h"

namespace bespoke {

class SafetensorsFile {
 public:
  // A matrix [rows, columns] as it lies in the caller's memory, or its transpose.
  void add(const std::string& key, const Tensor& matrix, bool transposed = false);
  void write(WholeFolder& folder, const std::string& name, const std::map<std::string, std::string>& metadata) const;

 private:
  struct Entry {
    const Tensor* matrix;
    bool transposed;
  };
  std::map<std::string, Entry> entries_;
};

void write_text(WholeFolder& folder, const std::string& name, const std::string& text);

}  // namespace bespoke
