// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bespoke::kernels {

// What this processor and its system have, and this build has been compiled for.
struct Features {
  bool avx2, avx512, vnni, amx;  // x86-64
  bool dotprod, i8mm;            // arm64
};

// Asked once. BESPOKE_MASKED_FEATURES=i8mm,dotprod (names as above) hides some, for tests.
const Features& features();

}  // namespace bespoke::kernels
