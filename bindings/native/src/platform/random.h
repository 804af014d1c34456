// SPDX-License-Identifier: Apache-2.0
// The operating system's generator, which nobody can predict.
#pragma once

#include <cstddef>

namespace bespoke {

void draw_from_system(void* bytes, size_t size);  // StateError where the system gives nothing

}  // namespace bespoke
