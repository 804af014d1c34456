/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a bundle on one user's examples, judges the result and says what happened.
 *
 *   cc train.c -lbespoke_core -o train && ./train chat.bundle alice/ 20
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bespoke.h"

static bespoke_cancel* cancel;

static void stop(int signal) {
  (void)signal;
  bespoke_cancel_set(cancel); /* training ends at the next instruction, in a committed state */
}

static int32_t tell(void* context, const bespoke_progress* progress) {
  (void)context;
  if (progress->phase == BESPOKE_PHASE_STEP)
    printf("step %" PRId64 " of %" PRId64 "  loss %.4f\n", progress->step, progress->steps, progress->loss);
  return 0; /* not 0 would cancel, too */
}

static bespoke_text text(const char* characters) {
  bespoke_text text = {characters, strlen(characters)};
  return text;
}

static int failed(bespoke_error* error) {
  fprintf(stderr, "%s: %s: got %s; expected %s. %s.\n", error->kind, error->subject, error->got, error->expected, error->next_step);
  int status = error->status;
  bespoke_error_free(error);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s BUNDLE STATE [RUN_STEPS]\n", argv[0]);
    return 2;
  }
  bespoke_error* error = NULL;
  bespoke_model* model = NULL;
  bespoke_bundle bundle = {.struct_size = sizeof bundle, .path = text(argv[1])};
  bespoke_options options = {.struct_size = sizeof options}; /* the bundle's budget, all processors, ExecuTorch */
  if (bespoke_open(&bundle, text(argv[2]), &options, NULL, &model, &error)) return failed(error);
  cancel = bespoke_cancel_new();
  signal(SIGINT, stop);

  bespoke_training training = {.struct_size = sizeof training, .run_steps = argc > 3 ? atoll(argv[3]) : 0};
  bespoke_call call = {.struct_size = sizeof call, .cancel = cancel, .progress = tell};
  char* report = NULL;
  int status = bespoke_train(model, &training, &call, &report, &error);
  if (status) {
    status = failed(error);
  } else {
    puts(report); /* losses, validation before and after, accepted, memory, why it stopped */
  }
  bespoke_free(report);
  signal(SIGINT, SIG_DFL);
  bespoke_release(model); /* nothing runs any more */
  bespoke_cancel_free(cancel);
  return status;
}
