// SPDX-License-Identifier: Apache-2.0
#include "platform/processor.h"

#include <sys/sysctl.h>

#include <cstddef>

namespace bespoke {
namespace {

bool has(const char* feature) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value != 0;
}

}  // namespace

bool get_amx_tiles() { return false; }  // of x86, on Linux alone

ArmFeatures get_arm_features() { return {has("hw.optional.arm.FEAT_DotProd"), has("hw.optional.arm.FEAT_I8MM")}; }

}  // namespace bespoke
