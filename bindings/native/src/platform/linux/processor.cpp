// SPDX-License-Identifier: Apache-2.0
#include "platform/processor.h"

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

}  // namespace bespoke
