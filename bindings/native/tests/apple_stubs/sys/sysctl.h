// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stddef.h>

#define CTL_KERN 1
#define KERN_BOOTTIME 21
extern "C" int sysctl(int* name, unsigned int levels, void* old, size_t* old_size, void* new_value, size_t new_size);
extern "C" int sysctlbyname(const char* name, void* old, size_t* old_size, void* new_value, size_t new_size);
