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

#include "bespoke.h"

static bespoke_model *model;

static void stop(int signal) {
  (void)signal;
  bespoke_stop(model); /* training ends at the next instruction, in a committed state */
}

static void on_step(void *context, int64_t step, double loss) {
  (void)context;
  printf("step %" PRId64 "  loss %.4f\n", step, loss);
}

static int failed(bespoke_error *error) {
  fprintf(stderr, "%s: %s: got %s; expected %s. %s.\n", error->kind, error->subject, error->got, error->expected, error->next_step);
  int code = error->code;
  bespoke_error_free(error);
  return code;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s BUNDLE STATE [STEPS]\n", argv[0]);
    return 2;
  }
  bespoke_error *error = NULL;
  bespoke_options options = {.struct_size = sizeof options}; /* the bundle's budget, all processors, ExecuTorch */
  if (bespoke_open(argv[1], argv[2], &options, &model, &error)) return failed(error);
  signal(SIGINT, stop);

  bespoke_training training = {.struct_size = sizeof training, .seed = -1, .on_step = on_step};
  training.steps = argc > 3 ? atoll(argv[3]) : 0;
  char *report = NULL;
  int code = bespoke_train(model, &training, &report, &error);
  if (code) {
    code = failed(error);
  } else {
    puts(report); /* losses, validation before and after, accepted, memory, why it stopped */
  }
  bespoke_text_free(report);
  signal(SIGINT, SIG_DFL);
  bespoke_close(model);
  return code;
}
