/* SPDX-License-Identifier: Apache-2.0
 *
 * What an app does with a user's model: adds examples, trains in two slices, talks with it, takes the adapter out, forgets an example.
 *
 *   cc personalize.c -lbespoke_core -o personalize && ./personalize chat.bundle alice/ adapter/
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bespoke.h"

static bespoke_error* error;

static bespoke_text text(const char* characters) {
  bespoke_text text = {characters, strlen(characters)};
  return text;
}

/* Ends the program where a call failed, with the words that the error has for a developer. What was committed stays. */
static void check(bespoke_status status) {
  if (!status) return;
  fprintf(stderr, "%s: %s: got %s; expected %s. %s.\n", error->kind, error->subject, error->got, error->expected, error->next_step);
  bespoke_error_free(error);
  exit(status);
}

static void show(const char* what, char* json) {
  printf("%s %s\n", what, json);
  bespoke_free(json);
}

/* An app looks here whether it still may compute: the charger, the temperature, the window of the system. Not 0 ends the slice. */
static int32_t tell(void* context, const bespoke_progress* progress) {
  if (progress->phase != BESPOKE_PHASE_STEP) return 0;
  fprintf(stderr, "step %" PRId64 " of %" PRId64 "  loss %.4f\n", progress->step, progress->steps, progress->loss);
  (void)context;
  return 0;
}

/* An app shows each piece as it comes. Messages are fed as "[{\"role\": \"user\", \"content\": ...}]" where the model has a chat template.
 */
static void answer(bespoke_session* session, const char* prompt) {
  check(bespoke_session_feed(session, text(prompt), &error));
  const bespoke_piece* piece = NULL;
  do {
    check(bespoke_session_next(session, NULL, &piece, &error));
    printf("piece %" PRId64 " %s\n", piece->token, piece->text.data);
  } while (piece->ended == BESPOKE_GOES_ON); /* BESPOKE_END_CONTEXT_FULL: open another session with the last messages */
  printf("ended %d after %" PRId64 " tokens\n", piece->ended, piece->tokens);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s BUNDLE STATE ADAPTER\n", argv[0]);
    return 2;
  }
  bespoke_model* model = NULL;
  bespoke_bundle bundle = {.struct_size = sizeof bundle, .path = text(argv[1])};
  /* An app gives the pin or the key of its bundle here: a bundle is code. */
  bespoke_options options = {.struct_size = sizeof options};
  check(bespoke_open(&bundle, text(argv[2]), &options, NULL, &model, &error));

  static const char* const examples[3][2] = {
      {"likes-cats", "{\"prompt\": \"the cat\", \"completion\": \" sat on a mat\"}"},
      {"went-home", "{\"prompt\": \"and then\", \"completion\": \" it went home to sleep\"}"},
      {"was-tired", "{\"text\": \"because it was tired of sitting there\"}"},
  };
  for (int i = 0; i < 3; i++) {
    bespoke_example example = {.struct_size = sizeof example, .json = text(examples[i][1]), .id = text(examples[i][0])};
    char* added = NULL;
    check(bespoke_add_example(model, &example, NULL, &added, &error));
    show("added", added);
  }

  bespoke_training training = {.struct_size = sizeof training, .run_steps = 12, .most_steps = 5};
  check(bespoke_check_training(model, &training, &error));
  for (int slice = 0; slice < 2; slice++) { /* the second one goes on with the run, to its end, where the gate judges what was learned */
    bespoke_call call = {.struct_size = sizeof call, .deadline_seconds = 600, .progress = tell};
    char* report = NULL;
    check(bespoke_train(model, &training, &call, &report, &error));
    show("trained", report); /* losses, accepted, memory, why it stopped */
    training.most_steps = 0;
  }

  bespoke_session* session = NULL;
  bespoke_generation generation = {.struct_size = sizeof generation, .max_tokens = 4, .temperature = 0.7, .seed = 1};
  check(bespoke_session_open(model, &generation, &session, &error));
  answer(session, "\"the cat\"");
  answer(session, "\" and then\""); /* goes on where the answer ended */
  bespoke_session_close(session);

  char *versions = NULL, *forgotten = NULL;
  check(bespoke_list_versions(model, &versions, &error));
  show("versions", versions);
  check(bespoke_export_adapter(model, text(argv[3]), text("peft"), 0, NULL, &error));
  check(bespoke_forget_example(model, text(examples[2][0]), NULL, &forgotten, &error)); /* with every adapter that has seen it */
  show("forgotten", forgotten);
  int64_t left = 0;
  check(bespoke_count_examples(model, &left, &error));
  printf("left %" PRId64 "\n", left);
  return bespoke_close(model, -1, NULL);
}
