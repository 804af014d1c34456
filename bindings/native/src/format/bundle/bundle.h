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
#include "format/known_hashes.h"
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

struct Located {
  std::string path;  // empty where the file lies in an archive
  Extent extent;
};

class Bundle {  // may be read by several threads
 public:
  // Manifest, its sum, pin and signature are checked here, files when they are first asked for. BundleError and its kinds.
  static std::unique_ptr<Bundle> open(const BundlePlace& place, const Trust& trust = {});
  static std::unique_ptr<Bundle> open(std::unique_ptr<ByteSource> source, const Trust& trust);
  virtual ~Bundle() = default;

  virtual const Manifest& manifest() const = 0;
  // From now on a file is not hashed again whose hash `known` has; it must outlive the bundle. The manifest and programs always are.
  virtual void remember(KnownHashes& known) = 0;
  virtual void hash_again(const std::string& name) = 0;         // whatever is remembered
  virtual Bytes file(const std::string& name) = 0;              // mapped read-only; hashed the first time
  virtual const Tensors& tensors(const std::string& name) = 0;  // of a safetensors file, header checked
  virtual Located locate(const std::string& name) = 0;          // its file, opened once more; not read and not hashed
  virtual void drop(const std::string& name) = 0;               // its pages may go; they come back when touched
};

// A safetensors file's header, checked: in order, without holes, inside `file`. Throws Error(kind, subject, ...).
Tensors read_tensors(Bytes file, const std::string& subject, Kind kind);

}  // namespace bespoke
