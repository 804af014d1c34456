// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdint.h>

typedef int kern_return_t;
typedef unsigned int natural_t, mach_port_t, mach_msg_type_number_t, task_flavor_t;
typedef int* task_info_t;
typedef uint64_t mach_vm_size_t;
#define KERN_SUCCESS 0
#define TASK_VM_INFO 22
struct task_vm_info {  // the fields that are asked for, of more
  mach_vm_size_t external;
  mach_vm_size_t phys_footprint;
};
typedef struct task_vm_info task_vm_info_data_t;
#define TASK_VM_INFO_COUNT ((mach_msg_type_number_t)(sizeof(task_vm_info_data_t) / sizeof(natural_t)))
extern "C" mach_port_t mach_task_self();
extern "C" kern_return_t task_info(mach_port_t task, task_flavor_t flavor, task_info_t out, mach_msg_type_number_t* count);
