/* SPDX-License-Identifier: Apache-2.0
 *
 * What the small clients of the C API share: texts, and an end with the error's words where a call failed.
 */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bespoke.h"

static bespoke_error* error;

static bespoke_text text(const char* characters) {
  bespoke_text text = {characters, strlen(characters)};
  return text;
}

static void check(bespoke_status status) {
  if (!status) return;
  fprintf(stderr, "%s: %s: got %s\n", error->kind, error->subject, error->got);
  exit(status);
}
