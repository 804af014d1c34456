// SPDX-License-Identifier: Apache-2.0
// One loop, done by the calling thread.
#include "kernels/table.h"

namespace bespoke::kernels {

void strided(const Table& table, const StridedLoop& loop) { table.strided(loop); }

}  // namespace bespoke::kernels
