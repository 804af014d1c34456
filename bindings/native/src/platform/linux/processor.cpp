// SPDX-License-Identifier: Apache-2.0
#include "platform/processor.h"

#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bespoke {

bool get_amx_tiles() {
#ifdef __x86_64__
  constexpr long ask = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, ask, tile_data) == 0;
#else
  return false;
#endif
}

ArmFeatures get_arm_features() {
#ifdef __aarch64__
  constexpr unsigned long dot_products = 1ul << 20, matrix_products = 1ul << 13;  // HWCAP_ASIMDDP, HWCAP2_I8MM
  return {(getauxval(AT_HWCAP) & dot_products) != 0, (getauxval(AT_HWCAP2) & matrix_products) != 0};
#else
  return {false, false};
#endif
}

}  // namespace bespoke
