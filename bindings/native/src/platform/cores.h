// SPDX-License-Identifier: Apache-2.0
// The cores of this device: how many threads suit them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bespoke {

struct Cores {
  std::vector<int64_t> speeds;  // of those on which this process may run, in a measure of the system's; 0: it does not say
  double quota = 0;             // of their time that the process may use together: 1.5 is one core and a half; 0: all of it
};

Cores read_cores(const std::string& root = "");  // root: the folder that stands for `/`, of Linux

int usable_threads(const Cores& cores);  // that cores and quota give something to do

// Threads for work that all of them share, where nobody has timed it: of usable threads, as many as there are cores above the lowest
// class, 2 to 4. All where there is one class.
int threads_for(const Cores& cores);

}  // namespace bespoke
