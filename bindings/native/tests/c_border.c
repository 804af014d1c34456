/* SPDX-License-Identifier: Apache-2.0
 *
 * The C API as an app in C meets it: `c_border CHECK BUNDLE STATE`, one check a process. It ends with 0 where the check holds, else
 * says which expectation did not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bespoke.h"

static const char *bundle, *state;

#define EXPECT(holds)                                                       \
  do {                                                                      \
    if (!(holds)) {                                                         \
      fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #holds);           \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

/* Whether it is an error of `kind` with all its parts; frees it. */
static int is(bespoke_error *error, int code, const char *kind) {
  int holds = error && code && error->code == code && !strcmp(error->kind, kind) && *error->subject && *error->got &&
              *error->expected && *error->next_step;
  if (!holds && error) fprintf(stderr, "%d, %s: %s: got %s\n", code, error->kind, error->subject, error->got);
  bespoke_error_free(error);
  return holds;
}

static bespoke_options plain(void) {
  bespoke_options options = {.struct_size = sizeof options, .memory_mb = -1, .threads = 1};
  return options;
}

static bespoke_model *opened(const bespoke_options *options) {
  bespoke_model *model = NULL;
  bespoke_error *error = NULL;
  if (bespoke_open(bundle, state, options, &model, &error)) fprintf(stderr, "%s: got %s\n", error->subject, error->got);
  EXPECT(model && !error);
  return model;
}

/* ---- nulls ------------------------------------------------------------------------------------------------------------------ */

static void nulls_before_a_model_is_open(void) {
  bespoke_model *model = (bespoke_model *)1;
  bespoke_error *error = NULL;
  int code = bespoke_open(NULL, state, NULL, &model, &error);
  EXPECT(!model && is(error, code, "ConfigError"));
  EXPECT(bespoke_open(bundle, NULL, NULL, &model, NULL) == 2);
  EXPECT(bespoke_open(NULL, NULL, NULL, NULL, NULL) == 2);
  code = bespoke_open(bundle, state, NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_open(bundle, NULL, NULL, &model, &error);
  EXPECT(is(error, code, "ConfigError"));
  char *report = (char *)1;
  code = bespoke_train(NULL, NULL, &report, &error);
  EXPECT(!report && is(error, code, "ConfigError"));
  code = bespoke_evaluate(NULL, "train", &report, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_verify(NULL, &report, &error);
  EXPECT(is(error, code, "ConfigError"));
  EXPECT(bespoke_train(NULL, NULL, NULL, NULL) == 2);
  EXPECT(bespoke_evaluate(NULL, NULL, NULL, NULL) == 2);
  EXPECT(bespoke_verify(NULL, NULL, NULL) == 2);
  EXPECT(!strcmp(bespoke_authenticated(NULL), "none"));
  bespoke_stop(NULL);
  bespoke_close(NULL);
  bespoke_error_free(NULL);
  bespoke_text_free(NULL);
  EXPECT(*bespoke_version() && *bespoke_instruction_set());
}

static void nulls_of_an_open_model(void) {
  bespoke_options options = plain();
  bespoke_model *model = opened(&options);
  bespoke_error *error = NULL;
  char *report = NULL;
  int code = bespoke_evaluate(model, NULL, &report, &error);
  EXPECT(!report && is(error, code, "ConfigError"));
  EXPECT(bespoke_evaluate(model, "train", NULL, NULL) == 0);
  EXPECT(bespoke_verify(model, NULL, NULL) == 0);
  bespoke_training training = {.struct_size = sizeof training, .steps = 1, .seed = -1};
  EXPECT(bespoke_train(model, &training, NULL, NULL) == 0);
  EXPECT(bespoke_train(model, NULL, NULL, &error) == 0 && !error);
  bespoke_close(model);
  EXPECT(bespoke_open(bundle, state, NULL, &model, NULL) == 0);
  bespoke_close(model);
}

/* ---- engines -------------------------------------------------------------------------------------------------------------------- */

static int destroyed, opens;

static int refuse_to_open(void *context, const void *artifact, size_t size, void *workspace, size_t workspace_size, void **program,
                          char *message, size_t message_size) {
  (void)context, (void)artifact, (void)size, (void)workspace, (void)workspace_size, (void)program;
  opens++;
  snprintf(message, message_size, "the engine of the test opens nothing");
  return 1;
}

static int refuse_to_run(void *context, void *program, const bespoke_tensor *operands, size_t operand_count,
                         const bespoke_tensor *results, size_t result_count, char *message, size_t message_size) {
  (void)context, (void)program, (void)operands, (void)operand_count, (void)results, (void)result_count, (void)message;
  (void)message_size;
  return 1;
}

static void close_nothing(void *context, void *program) { (void)context, (void)program; }
static void count_destroyed(void *context) { ++*(int *)context; }

static bespoke_engine engine_of_the_test(const char *target) {
  bespoke_engine engine = {sizeof engine, target, &destroyed, refuse_to_open, refuse_to_run, close_nothing, count_destroyed};
  return engine;
}

static void an_engine_is_copied_and_destroyed_once(void) {
  char target[] = "executorch";
  bespoke_engine engine = engine_of_the_test(target);
  bespoke_options options = plain();
  options.engine = &engine;
  bespoke_model *model = opened(&options);
  memset(target, '!', sizeof target - 1); /* what was given may go: the model has its own */
  memset(&engine, 0, sizeof engine);
  bespoke_error *error = NULL;
  int code = bespoke_evaluate(model, "train", NULL, &error);
  EXPECT(opens == 1 && is(error, code, "BundleError"));
  EXPECT(destroyed == 0);
  bespoke_close(model);
  EXPECT(destroyed == 1);
}

static void an_engine_is_destroyed_where_opening_fails(void) {
  bespoke_engine engine = engine_of_the_test("executorch");
  bespoke_options options = plain();
  options.engine = &engine;
  bespoke_model *model = NULL;
  EXPECT(bespoke_open("/nonexistent", state, &options, &model, NULL) && destroyed == 1);
  EXPECT(bespoke_open(bundle, "/dev/null/state", &options, &model, NULL) && destroyed == 2);
  EXPECT(bespoke_open(NULL, state, &options, &model, NULL) && destroyed == 3);
  EXPECT(bespoke_open(bundle, state, &options, NULL, NULL) && destroyed == 4);
  options.pin_sha256 = "";
  EXPECT(bespoke_open(bundle, state, &options, &model, NULL) && destroyed == 5);
  options.pin_sha256 = NULL;
  engine.target = NULL;
  EXPECT(bespoke_open(bundle, state, &options, &model, NULL) == 2 && destroyed == 6);
  engine = engine_of_the_test("executorch");
  engine.run = NULL;
  EXPECT(bespoke_open(bundle, state, &options, &model, NULL) == 2 && destroyed == 7);
  engine = engine_of_the_test("executorch");
  engine.struct_size--; /* then nobody knows where `destroy` is */
  EXPECT(bespoke_open(bundle, state, &options, &model, NULL) == 2 && destroyed == 7);
}

static void the_threads_of_a_process_are_set_while_one_model_is_open(void) {
  bespoke_options one = plain(), two = plain(), any = plain();
  two.threads = 2, any.threads = 0;
  bespoke_model *first = opened(&one);
  bespoke_error *error = NULL;
  bespoke_model *second = NULL;
  int code = bespoke_open(bundle, state, &two, &second, &error);
  EXPECT(!second && is(error, code, "ConfigError"));
  second = opened(&any);  /* shares them */
  bespoke_close(first);
  code = bespoke_open(bundle, state, &two, &first, &error);
  EXPECT(!first && is(error, code, "ConfigError"));
  bespoke_close(second);
  first = opened(&two);
  bespoke_close(first);
  one.threads = -1;
  code = bespoke_open(bundle, state, &one, &first, &error);
  EXPECT(is(error, code, "ConfigError"));
}

/* ---- stops ---------------------------------------------------------------------------------------------------------------------- */

static bespoke_model *training_model;

static void stop_now(void *context, int64_t step, double loss) {
  (void)context, (void)step, (void)loss;
  bespoke_stop(training_model);
}

static void a_stop_ends_the_call_that_runs_and_no_other(void) {
  bespoke_options options = plain();
  bespoke_model *model = training_model = opened(&options);
  bespoke_training training = {.struct_size = sizeof training, .steps = 2, .seed = -1};
  char *report = NULL;
  bespoke_stop(model); /* nothing runs */
  EXPECT(bespoke_train(model, &training, &report, NULL) == 0);
  EXPECT(!strstr(report, "stop_requested"));
  bespoke_text_free(report);
  training.on_step = stop_now, training.steps = 5;
  EXPECT(bespoke_train(model, &training, &report, NULL) == 0);
  EXPECT(strstr(report, "stop_requested"));
  bespoke_text_free(report);
  bespoke_stop(model); /* late */
  EXPECT(bespoke_evaluate(model, "train", &report, NULL) == 0);
  bespoke_text_free(report);
  training.on_step = NULL, training.steps = 1;
  EXPECT(bespoke_train(model, &training, &report, NULL) == 0);
  EXPECT(!strstr(report, "stop_requested"));
  bespoke_text_free(report);
  bespoke_close(model);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------ */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *data, size_t size);

static long until_failure = -1; /* allocations that still succeed; negative: all do */
static int keep_failing;
static long failed;

static int allowed(void) {
  if (until_failure < 0 || until_failure-- > 0) return 1;
  until_failure = keep_failing ? 0 : -1;
  failed++;
  return 0;
}

void *malloc(size_t size) { return allowed() ? __libc_malloc(size) : NULL; }
void *calloc(size_t count, size_t size) { return allowed() ? __libc_calloc(count, size) : NULL; }
void *realloc(void *data, size_t size) { return allowed() ? __libc_realloc(data, size) : NULL; }

/* Opens `path` with an allocation failing that comes later each time, and all after it where `keep`; how often that was. */
static long fail_everywhere(const char *path, int keep) {
  bespoke_engine engine = engine_of_the_test("executorch");
  bespoke_options options = plain();
  options.engine = &engine;
  for (long after = 0, times = 0;; after += 1 + after / 20, times++) {
    bespoke_model *model = NULL;
    bespoke_error *error = NULL;
    destroyed = 0, failed = 0, keep_failing = keep, until_failure = after;
    const int code = bespoke_open(path, state, &options, &model, &error);
    until_failure = -1;
    EXPECT(!model == !!code && !error == !code && destroyed == !!code);
    if (code) EXPECT(error->code == code && *error->kind && *error->subject && *error->got && *error->expected && *error->next_step);
    if (failed && after < 5) EXPECT(!strcmp(error->kind, "BudgetExceeded"));
    bespoke_error_free(error);
    bespoke_close(model);
    if (!failed) return times;
  }
}

static void no_memory_is_an_error_wherever_it_ends(void) {
  EXPECT(fail_everywhere("/nonexistent", 1) > 5); /* none for the error either */
  EXPECT(fail_everywhere("/nonexistent", 0) > 5);
  const long times = fail_everywhere(bundle, 0);
  EXPECT(times > 50);
  bespoke_close(opened(NULL)); /* and what was left behind is whole */
}

/* ---- trust and versions -------------------------------------------------------------------------------------------------------- */

static void a_model_says_how_its_bundle_was_authenticated(void) {
  bespoke_options options = plain();
  bespoke_model *model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "none"));
  bespoke_close(model);
  options.require_authenticated = 1;
  bespoke_error *error = NULL;
  int code = bespoke_open(bundle, state, &options, &model, &error);
  EXPECT(!model && is(error, code, "SignatureError"));
  options.pin_sha256 = getenv("PIN");
  model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "pin"));
  bespoke_close(model);
  uint8_t key[32];
  for (int i = 0; i < 32; i++) EXPECT(sscanf(getenv("KEY") + 2 * i, "%2hhx", &key[i]) == 1);
  options.public_key = key;
  model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "pin")); /* the stronger one of both */
  bespoke_close(model);
  options.pin_sha256 = NULL;
  model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "signature"));
  bespoke_close(model);
  key[0] ^= 1;
  code = bespoke_open(bundle, state, &options, &model, &error);
  EXPECT(!model && is(error, code, "SignatureError"));
}

static void options_of_the_first_version_are_taken(void) {
  bespoke_options options = plain();
  options.struct_size = offsetof(bespoke_options, require_authenticated);
  options.require_authenticated = 1; /* not there, as far as the struct says */
  bespoke_close(opened(&options));
  bespoke_model *model;
  options.struct_size--;
  EXPECT(bespoke_open(bundle, state, &options, &model, NULL) == 2);
  options.struct_size = sizeof options + 8;
  EXPECT(bespoke_open(bundle, state, &options, &model, NULL) == 2);
}

#define CHECK(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} checks[] = {
    CHECK(nulls_before_a_model_is_open),
    CHECK(nulls_of_an_open_model),
    CHECK(an_engine_is_copied_and_destroyed_once),
    CHECK(an_engine_is_destroyed_where_opening_fails),
    CHECK(the_threads_of_a_process_are_set_while_one_model_is_open),
    CHECK(a_stop_ends_the_call_that_runs_and_no_other),
    CHECK(no_memory_is_an_error_wherever_it_ends),
    CHECK(a_model_says_how_its_bundle_was_authenticated),
    CHECK(options_of_the_first_version_are_taken),
};

int main(int argc, char **argv) {
  if (argc == 1) /* their names */
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) puts(checks[i].name);
  if (argc < 4) return argc != 1;
  bundle = argv[2], state = argv[3];
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
    if (!strcmp(checks[i].name, argv[1])) return checks[i].run(), 0;
  fprintf(stderr, "no check %s\n", argv[1]);
  return 2;
}
