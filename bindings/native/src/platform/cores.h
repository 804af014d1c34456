// SPDX-License-Identifier: Apache-2.0
// The cores of this device: how many threads suit them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bespoke {

struct Core {
  int number = -1;       // in the system; -1: threads cannot be bound to it
  int64_t capacity = 0;  // the system's figure for its work, larger for faster ones; 0: it has none
  int64_t max_khz = 0;   // 0: unknown
};

struct Cores {
  std::vector<Core> all;  // on which this process may run; at least one
  double quota = 0;       // of their time that the process may use together: 1.5 is one core and a half; 0: all of it
};

Cores read_cores(const std::string& root = "");  // root: the folder that stands for `/`, of Linux

int usable_threads(const Cores& cores);  // that cores and quota give something to do

// Threads for work that all of them share, where nobody has timed it: of usable threads, as many as there are cores above the lowest
// class, 2 to 4. All where there is one class.
int threads_for(const Cores& cores);

}  // namespace bespoke
