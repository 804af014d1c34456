// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdint.h>

#define RUSAGE_INFO_V4 4
typedef void* rusage_info_t;
struct rusage_info_v4 {  // the fields that are asked for, of more
  uint64_t ri_diskio_bytesread;
  uint64_t ri_diskio_byteswritten;
};
extern "C" int proc_pid_rusage(int pid, int flavor, rusage_info_t* buffer);
