// SPDX-License-Identifier: Apache-2.0
// What programs with ExecuTorch's QNN delegate, for Qualcomm's NPU, need of an engine.
#pragma once

#include <cstddef>
#include <functional>

#include <executorch/extension/data_loader/buffer_data_loader.h>

#include "bespoke.h"

namespace bespoke {

constexpr const char* kNpu = "QnnBackend";

// Loads ExecuTorch's library for the NPU, which registers itself and asks for the vendor's in turn: who has no program for the NPU
// needs none of them. Throws Failure where that cannot be.
void need_npu();

// An artifact's program, in which each binary for the NPU has a signature that no other in the process has. ExecuTorch takes two with
// the same one for the same: a program that is open twice, by two models, would end for both when the first closes it. The signature is
// written to a private mapping of the file, so that one page of a binary is the process's own, and not all of it.
class ProgramBytes : public executorch::runtime::DataLoader {
 public:
  // Its descriptor is read while a method is loaded.
  explicit ProgramBytes(const bespoke_artifact& artifact) : artifact_(artifact), whole_(artifact.bytes, artifact.size) {}

  // Called before a constant is handed out: when a delegate is made, after it has opened its file of packed weights. False: it fails.
  std::function<bool()> before_constants;

  executorch::runtime::Result<executorch::runtime::FreeableBuffer> load(size_t offset, size_t size,
                                                                        const SegmentInfo& segment) const override;
  executorch::runtime::Error load_into(size_t offset, size_t size, const SegmentInfo& segment, void* buffer) const override {
    return whole_.load_into(offset, size, segment, buffer);
  }
  executorch::runtime::Result<size_t> size() const override { return whole_.size(); }

 private:
  const bespoke_artifact artifact_;
  executorch::extension::BufferDataLoader whole_;
};

}  // namespace bespoke
