// SPDX-License-Identifier: Apache-2.0
// What only the system knows about the processor.
#pragma once

namespace bespoke {

bool get_amx_tiles();  // asks the system for the registers of AMX, on x86: false where it does not hand them out

// Of arm64: false on other processors.
struct ArmFeatures {
  bool dot_products;     // FEAT_DotProd: of bytes
  bool matrix_products;  // FEAT_I8MM: of bytes
};
ArmFeatures get_arm_features();

}  // namespace bespoke
