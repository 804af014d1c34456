// SPDX-License-Identifier: Apache-2.0
// The shared adapter as a server sends it: a safetensors file of the pieces that are trained, in a type of floating-point numbers.
#pragma once

#include <string>
#include <vector>

#include "exec/steps.h"
#include "format/bundle/bundle.h"

namespace bespoke {

class SharedSnapshot {
 public:
  // AdapterError where the file has other pieces or shapes than the bundle's adapter, or numbers that no adapter has.
  SharedSnapshot(const std::string& path, Bundle& bundle);
  TensorSource tensors() const;

 private:
  struct Piece {
    std::vector<int64_t> shape;
    std::vector<float> numbers;
  };
  std::map<std::string, Piece> pieces_;
};

}  // namespace bespoke
