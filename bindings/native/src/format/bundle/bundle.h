// SPDX-License-Identifier: Apache-2.0
// A bundle on disk: nothing is used before its name, size and sha256 were held against the manifest.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "format/bundle/manifest.h"
#include "format/bundle/source.h"
#include "format/plan/plan.h"

namespace bespoke {

struct Tensor {  // of a mapped safetensors file
  DType dtype;
  std::vector<int64_t> shape;
  const uint8_t* data;
  size_t size;  // bytes
};
using Tensors = std::map<std::string, Tensor>;

struct Trust {
  std::optional<std::string> pin_sha256;              // of manifest.json, in hexadecimal
  std::optional<std::array<uint8_t, 32>> public_key;  // ed25519
  bool require = false;                               // SignatureError where neither is given
};

class Bundle {
 public:
  // Manifest, its sum, pin and signature are checked here, files when they are first asked for. BundleError and its kinds.
  static std::unique_ptr<Bundle> open(const BundlePlace& place, const Trust& trust = {});
  virtual ~Bundle() = default;

  virtual const Manifest& manifest() const = 0;
  virtual Bytes file(const std::string& name) = 0;              // mapped read-only; hashed the first time
  virtual const Tensors& tensors(const std::string& name) = 0;  // of a safetensors file, header checked
  virtual void drop(const std::string& name) = 0;               // its pages may go; they come back when touched
};

// A safetensors file's header, checked: in order, without holes, inside `file`. Throws Error(kind, subject, ...).
Tensors read_tensors(Bytes file, const std::string& subject, Kind kind);

}  // namespace bespoke
