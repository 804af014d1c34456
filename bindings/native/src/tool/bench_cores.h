// SPDX-License-Identifier: Apache-2.0
// The cores that this process may run on, in classes of equal speed, and what else the system says of the device that a report of its
// speed needs. Nothing here names the user or this one machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bespoke {

struct CoreClass {
  std::vector<int> processors;  // their numbers in the system, ascending; empty where threads cannot be bound to them
  int64_t count = 0;
  int64_t capacity = 0;  // the kernel's figure for the work of a core, 1024 for the fastest; 0: it has none
  int64_t max_khz = 0;   // 0: unknown
  std::string part;      // implementer and part of an Arm core in hexadecimal, such as 41:d05
  std::string name;      // its processors as `taskset` lists them, such as 0-3,6
};

std::vector<CoreClass> core_classes();  // the fastest first; one where the system does not tell them apart

// Binds the calling thread to these processors. Threads that it starts later are bound as well.
void run_on(const std::vector<int>& processors);

std::string processor_name();   // of the chip; empty where the system has no name for it
int64_t largest_cache_bytes();  // 0: unknown
double load_average();          // processes that were running over the last minute; -1: unknown

struct SystemName {
  std::string name, version, architecture;
};
SystemName system_name();

}  // namespace bespoke
