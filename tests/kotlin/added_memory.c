/* SPDX-License-Identifier: Apache-2.0
 *
 * added_memory BUNDLE STATE EXAMPLE...: the C client that the Kotlin binding is compared with. It trains the same run twice, each time in a
 * state of its own, and prints the second report's memory: by then the process has what it keeps.
 */
#include "c_client.h"

static char* trained(const char* path, const char* state, int examples, char** json) {
  bespoke_model* model = NULL;
  bespoke_bundle bundle = {.struct_size = sizeof bundle, .path = text(path)};
  bespoke_options options = {.struct_size = sizeof options, .limit_counts = BESPOKE_LIMIT_SINCE_OPEN};
  check(bespoke_open(&bundle, text(state), &options, NULL, &model, &error));
  for (int i = 0; i < examples; i++) {
    bespoke_example example = {.struct_size = sizeof example, .json = text(json[i]), .use = text("train")};
    char* added = NULL;
    check(bespoke_add_example(model, &example, NULL, &added, &error));
    bespoke_free(added);
  }
  bespoke_training training = {.struct_size = sizeof training};
  bespoke_call call = {.struct_size = sizeof call};
  char* report = NULL;
  check(bespoke_train(model, &training, &call, &report, &error));
  check(bespoke_close(model, -1, NULL));
  return report;
}

int main(int argc, char** argv) {
  char state[4096];
  for (int time = 0; time < 2; time++) {
    snprintf(state, sizeof state, "%s/%d", argv[2], time);
    char* report = trained(argv[1], state, argc - 3, argv + 3);
    if (time == 1) puts(report);
    bespoke_free(report);
  }
  return 0;
}
