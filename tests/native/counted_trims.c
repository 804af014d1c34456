/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded: counts how often freed memory of the process is given back to the system. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

long trims;

int malloc_trim(size_t pad) {
  trims++;
  return ((int (*)(size_t))dlsym(RTLD_NEXT, "malloc_trim"))(pad);
}
