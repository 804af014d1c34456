// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bespoke {

struct Bytes {  // somebody else's memory
  const uint8_t* data = nullptr;
  size_t size = 0;
};

inline Bytes bytes_of(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

}  // namespace bespoke
