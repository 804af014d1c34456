/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checks of the C API share.
 */
#pragma once
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bespoke.h"

extern const char *bundle, *state;

#define EXPECT(holds)                                             \
  do {                                                            \
    if (!(holds)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #holds); \
      exit(1);                                                    \
    }                                                             \
  } while (0)

bespoke_text text(const char* characters);
int is(bespoke_error* error, bespoke_status status, const char* kind); /* whether it is an error of `kind` with all its parts; frees it */
bespoke_options plain(void);
bespoke_status open_at(const char* path, const char* folder, const bespoke_options* options, bespoke_model** model, bespoke_error** error);
bespoke_model* opened(const bespoke_options* options);

typedef struct {
  const char* name;
  void (*run)(void);
} check;
#define CHECK(name) {#name, name}
extern const check checks_of_calls[], checks_of_closing[], checks_of_verbs[],
    checks_of_sessions[]; /* of c_border_*.c; each ends with one without a name */
