/* SPDX-License-Identifier: Apache-2.0
 * libQnnHtp.so of QAIRT 2.47 for ExecuTorch 1.5, which is made for QAIRT 2.37. Between the two, what describes a device has got a
 * field in front, so that the SoC is read where ExecuTorch wrote something else. This library hands out the table of the real one,
 * whose file REAL names, with a deviceCreate that moves that one number. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t (*DeviceCreate)(void* logger, const void** configurations, void** device);
typedef struct {
  uint32_t backend, padding;
  const char* name;
  uint32_t core_api[3], backend_api[3];
  void* functions[256];
} Provider;
typedef struct {
  uint32_t option, padding;
  void* custom;
} Configuration;
enum { DEVICE_CREATE = 40, SOC = 0 };

static Provider provider;
static const Provider* providers[] = {&provider};
static DeviceCreate create;

static uint64_t device_create(void* logger, const void** configurations, void** device) {
  uint32_t described[16] = {0};
  Configuration moved;
  const void* all[16] = {0};
  for (int i = 0; configurations && configurations[i] && i < 15; ++i) {
    const Configuration* given = configurations[i];
    all[i] = given;
    if (i == 0 && given->option == 0 && given->custom && ((const uint32_t*)given->custom)[0] == SOC) {
      described[2] = ((const uint32_t*)given->custom)[1];
      moved = (Configuration){given->option, 0, described};
      all[i] = &moved;
    }
  }
  return create(logger, configurations ? all : NULL, device);
}

uint64_t QnnInterface_getProviders(const Provider*** found, uint32_t* count) {
  if (!create) {
    void* real = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    uint64_t (*get)(const Provider***, uint32_t*) = real ? dlsym(real, "QnnInterface_getProviders") : NULL;
    const Provider** theirs;
    if (!get || get(&theirs, count) || theirs[0]->backend_api[0] != 5 || theirs[0]->backend_api[1] != 47) {
      fprintf(stderr, "%s: not the library of QAIRT 2.47 (%s)\n", REAL, real ? "another version" : dlerror());
      return 1;
    }
    provider = *theirs[0];
    create = provider.functions[DEVICE_CREATE];
    provider.functions[DEVICE_CREATE] = device_create;
  }
  *found = providers;
  *count = 1;
  return 0;
}
