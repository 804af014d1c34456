// SPDX-License-Identifier: Apache-2.0
#include "federated/snapshot.h"

#include "format/adapter/adapter_file.h"

namespace bespoke {

SharedSnapshot::SharedSnapshot(const std::string& path, Bundle& bundle) {
  const AdapterTensors file(path);
  const Manifest& manifest = bundle.manifest();
  const Tensors& adapter = bundle.tensors(manifest.adapter);
  for (const SafetensorsEntry& entry : file.header.entries) {
    const auto known = adapter.find(entry.name);
    if (known == adapter.end() || !manifest.trains(entry.name) || known->second.shape != entry.shape)
      refuse(path, "a tensor '" + entry.name.substr(0, 80) + "' of this name or shape",
             "the pieces of the bundle's adapter that are trained", "Tell the owner of the server: it serves another bundle");
    pieces_[entry.name] = {entry.shape, file.numbers(entry, entry.name)};
  }
  for (const auto& [name, _] : adapter)
    if (manifest.trains(name) && !pieces_.count(name))
      refuse(path, "no tensor '" + name + "'", "all pieces that are trained", "Tell the owner of the server: it serves another bundle");
}

TensorSource SharedSnapshot::tensors() const {
  TensorSource source;
  for (const auto& [name, piece] : pieces_) source[name] = {piece.numbers.data(), piece.shape};
  return source;
}

}  // namespace bespoke
