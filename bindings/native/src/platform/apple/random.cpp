// SPDX-License-Identifier: Apache-2.0
#include "platform/random.h"

#include <stdlib.h>

namespace bespoke {

void draw_from_system(void* bytes, size_t size) { arc4random_buf(bytes, size); }

}  // namespace bespoke
