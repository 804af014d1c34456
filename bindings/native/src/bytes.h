// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace bespoke {

struct Bytes {  // somebody else's memory
  const uint8_t* data = nullptr;
  size_t size = 0;
};

}  // namespace bespoke
