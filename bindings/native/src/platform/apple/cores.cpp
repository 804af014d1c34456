// SPDX-License-Identifier: Apache-2.0
#include "platform/cores.h"

#include <sys/sysctl.h>

#include <algorithm>
#include <cstddef>

namespace bespoke {
namespace {

int number(const char* name) {  // 0 where the system has none of this name
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? std::max(0, value) : 0;
}

}  // namespace

// The system says how many cores each class has, and not how fast they are. Its first class is the fastest.
Cores read_cores(const std::string&) {
  const int all = std::max(1, number("hw.logicalcpu")), fast = number("hw.perflevel0.logicalcpu");
  Cores cores;
  for (int i = 0; i < all; i++) cores.all.push_back({-1, fast == 0 || i < fast ? 2 : 1, 0});
  return cores;
}

}  // namespace bespoke
