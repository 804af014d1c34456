// SPDX-License-Identifier: Apache-2.0
#include "platform/memory.h"

#include <TargetConditionals.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <unistd.h>

#if TARGET_OS_OSX
#include <libproc.h>
#endif

namespace bespoke {

MemoryColumns::MemoryColumns() = default;
MemoryColumns::~MemoryColumns() = default;

Footprint MemoryColumns::read() const {
  task_vm_info_data_t info{};
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  if (task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count) != KERN_SUCCESS) return {};
  return {static_cast<int64_t>(info.phys_footprint), 0, 0, static_cast<int64_t>(info.external)};
}

int64_t dirty_mapped_bytes() { return 0; }  // only a walk over all regions would tell, and dirty pages of files are not in the footprint

#if TARGET_OS_OSX
Storage storage_bytes() {
  rusage_info_v4 usage{};
  if (proc_pid_rusage(getpid(), RUSAGE_INFO_V4, reinterpret_cast<rusage_info_t*>(&usage)) != 0) return {};
  return {static_cast<int64_t>(usage.ri_diskio_bytesread), static_cast<int64_t>(usage.ri_diskio_byteswritten)};
}
#else
Storage storage_bytes() { return {}; }  // iOS keeps it to itself
#endif

void release_free_memory() { malloc_zone_pressure_relief(nullptr, 0); }
void steady_malloc() {}

}  // namespace bespoke
