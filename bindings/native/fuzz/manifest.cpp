// SPDX-License-Identifier: Apache-2.0
// Any bytes as manifest.json: an Error, or a manifest whose references lead somewhere.
#include <cstdlib>

#include "format/bundle/manifest.h"
#include "error.h"
#include "mutate.h"

using namespace bespoke;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Manifest manifest = read_manifest({data, size}, "manifest.json");
    if (manifest.targets.empty() || manifest.files.count(manifest.adapter) != 1) std::abort();
    for (const Target& target : manifest.targets) {
      for (const Artifact& artifact : target.artifacts) {
        if (!manifest.graph(artifact.graph) || manifest.files.count(artifact.file) != 1) std::abort();
      }
    }
    const Training& training = manifest.method("").training;
    if (training_json(training_from_json(training_json(training), "training")) != training_json(training)) std::abort();
  } catch (const Error& error) {
    if (error.got.empty() || error.expected.empty() || error.next_step.empty()) std::abort();
  }
  return 0;
}
