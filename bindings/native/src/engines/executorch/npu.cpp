// SPDX-License-Identifier: Apache-2.0
#include "engines/executorch/npu.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include <dlfcn.h>

#include <executorch/runtime/backend/interface.h>

#include "engines/failure.h"
#include "platform/mapping.h"

namespace bespoke {
namespace {

namespace rt = executorch::runtime;

// Android's; the wheel's, in the folder of its others.
constexpr const char* kLibraries[] = {"libqnn_executorch_backend.so", "libexecutorch_backend_qnn.so"};
constexpr size_t kSignature = 4;  // behind the magic number of ExecuTorch's header (QnnContextCustomProtocol), eight bytes

void release(void* mapped, void*, size_t) { delete static_cast<MappedFile*>(mapped); }

}  // namespace

void need_npu() {
  if (rt::get_backend_class(kNpu)) return;
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&rt::get_backend_class), &info);
  const std::string folder = info.dli_fname ? std::string(info.dli_fname, std::string(info.dli_fname).rfind('/') + 1) : "";
  std::string reasons;
  for (const std::string& name : {std::string(kLibraries[0]), folder + kLibraries[1]}) {
    if (dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) && rt::get_backend_class(kNpu)) return;  // for the life of the process
    const char* reason = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + (reason ? std::string(reason) : name + " registers nothing");
  }
  throw Failure{"the program is for Qualcomm's NPU, and ExecuTorch's library for it cannot be loaded: " + reasons,
                BESPOKE_ENGINE_MISSING_DEPENDENCY};
}

rt::Result<rt::FreeableBuffer> ProgramBytes::load(size_t offset, size_t size, const SegmentInfo& segment) const {
  const bool constant = segment.segment_type == SegmentInfo::Type::Constant;
  if (constant && before_constants && !before_constants()) return rt::Error::AccessFailed;
  auto found = whole_.load(offset, size, segment);
  const bool npu = segment.segment_type == SegmentInfo::Type::Backend && segment.descriptor && std::strcmp(segment.descriptor, kNpu) == 0;
  if (!found.ok() || !npu || size < kSignature + sizeof(uint64_t)) return found;
  static std::atomic<uint64_t> opened{0};
  const uint64_t signature = ++opened;
  auto mapped = std::make_unique<MappedFile>();
  if (const int failed = mapped->map_private(artifact_.descriptor, artifact_.offset + offset, size))
    return failed == ENOMEM ? rt::Error::MemoryAllocationFailed : rt::Error::AccessFailed;
  // A hash was computed of the artifact's bytes, and not of what its descriptor leads to.
  if (std::memcmp(mapped->bytes().data, found->data(), size) != 0) return rt::Error::AccessFailed;
  std::memcpy(mapped->writable() + kSignature, &signature, sizeof signature);
  const void* data = mapped->bytes().data;
  return rt::FreeableBuffer(data, size, release, mapped.release());  // until the NPU's driver has its own
}

}  // namespace bespoke
