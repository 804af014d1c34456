/* SPDX-License-Identifier: Apache-2.0
 *
 * The C API as an app in C meets it: `c_border CHECK BUNDLE STATE`, one check a process. It ends with 0 where the check holds, else
 * says which expectation did not. `c_border fill BUNDLE STATE` adds examples to a new state.
 */
#include "c_border.h"

const char *bundle, *state;

bespoke_text text(const char* characters) {
  bespoke_text text = {characters, characters ? strlen(characters) : 0};
  return text;
}

bespoke_status open_at(const char* path, const char* folder, const bespoke_options* options, bespoke_model** model, bespoke_error** error) {
  bespoke_bundle place = {.struct_size = sizeof place, .path = text(path)};
  return bespoke_open(&place, text(folder), options, NULL, model, error);
}

int is(bespoke_error* error, bespoke_status status, const char* kind) {
  int holds = error && status && error->struct_size >= offsetof(bespoke_error, next_step) + sizeof error->next_step &&
              error->status == status && !strcmp(error->kind, kind) && *error->subject && *error->got && *error->expected &&
              *error->next_step;
  if (!holds && error) fprintf(stderr, "%d, %s: %s: got %s\n", status, error->kind, error->subject, error->got);
  bespoke_error_free(error);
  return holds;
}

bespoke_options plain(void) {
  bespoke_options options = {.struct_size = sizeof options, .memory_mb = -1, .threads = 1};
  return options;
}

bespoke_model* opened(const bespoke_options* options) {
  bespoke_model* model = NULL;
  bespoke_error* error = NULL;
  if (open_at(bundle, state, options, &model, &error)) fprintf(stderr, "%s: got %s\n", error->subject, error->got);
  EXPECT(model && !error);
  return model;
}

/* Twelve examples of token ids, for where no other program has added them. */
static void fill(void) {
  bespoke_model* model = opened(NULL);
  for (int number = 0; number < 12; number++) {
    char json[256], id[32];
    int size = snprintf(json, sizeof json, "{\"tokens\": [%d", 40 + number % 6);
    for (int place = 1; place < 7 + number % 9; place++)
      size += snprintf(json + size, sizeof json - (size_t)size, ", %d", 40 + (number + place) % 6);
    snprintf(json + size, sizeof json - (size_t)size, "]}");
    snprintf(id, sizeof id, "number-%d", number);
    const bespoke_example example = {.struct_size = sizeof example, .json = text(json), .id = text(id)};
    EXPECT(bespoke_add_example(model, &example, NULL, NULL, NULL) == 0);
  }
  EXPECT(bespoke_close(model, 0, NULL) == 0);
}

/* ---- nulls ------------------------------------------------------------------------------------------------------------------ */

static void nulls_before_a_model_is_open(void) {
  EXPECT(bespoke_api_version() == (BESPOKE_API_MAJOR << 16 | BESPOKE_API_MINOR));
  bespoke_model* model = (bespoke_model*)1;
  bespoke_error* error = NULL;
  bespoke_status code = bespoke_open(NULL, text(state), NULL, NULL, &model, &error);
  EXPECT(!model && is(error, code, "ConfigError"));
  EXPECT(open_at(NULL, state, NULL, &model, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(open_at(bundle, NULL, NULL, &model, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_open(NULL, text(NULL), NULL, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  bespoke_text nowhere = {NULL, 3};
  bespoke_bundle place = {.struct_size = sizeof place, .path = text(bundle)};
  EXPECT(bespoke_open(&place, nowhere, NULL, NULL, &model, NULL) == BESPOKE_CONFIG_ERROR);
  code = open_at(bundle, state, NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = open_at(bundle, NULL, NULL, &model, &error);
  EXPECT(is(error, code, "ConfigError"));
  char* report = (char*)1;
  code = bespoke_train(NULL, NULL, NULL, &report, &error);
  EXPECT(!report && is(error, code, "ConfigError"));
  code = bespoke_evaluate(NULL, text("train"), text(NULL), NULL, &report, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_verify(NULL, NULL, &report, &error);
  EXPECT(is(error, code, "ConfigError"));
  EXPECT(bespoke_train(NULL, NULL, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_evaluate(NULL, text(NULL), text(NULL), NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_verify(NULL, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_set_limit(NULL, 0, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_set_pace(NULL, 1, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(!strcmp(bespoke_authenticated(NULL), "none"));
  bespoke_cancel_set(NULL);
  bespoke_cancel_free(NULL);
  bespoke_cancel_free(bespoke_cancel_new());
  EXPECT(bespoke_interrupt(NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_close(NULL, -1, NULL) == BESPOKE_OK);
  bespoke_release(NULL);
  bespoke_error_free(NULL);
  bespoke_free(NULL);
  bespoke_set_log(NULL, NULL);
  EXPECT(*bespoke_version() && *bespoke_instruction_set());
}

static void nulls_of_an_open_model(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_error* error = NULL;
  char* report = NULL;
  bespoke_status code = bespoke_evaluate(model, text(NULL), text(NULL), NULL, &report, &error);
  EXPECT(!report && is(error, code, "ConfigError"));
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), NULL, NULL, NULL) == 0);
  EXPECT(bespoke_verify(model, NULL, NULL, NULL) == 0);
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 1};
  EXPECT(bespoke_train(model, &training, NULL, NULL, NULL) == 0);
  EXPECT(bespoke_train(model, NULL, NULL, NULL, &error) == 0 && !error);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  EXPECT(open_at(bundle, state, NULL, &model, NULL) == 0);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

/* ---- engines -------------------------------------------------------------------------------------------------------------------- */

static int destroyed, opens, refusal = 1;

static int refuse_to_open(void* context, const bespoke_artifact* artifact, void** program, char* message, size_t message_size) {
  (void)context, (void)artifact, (void)program;
  opens++;
  snprintf(message, message_size, "%0600d the engine of the test opens nothing", 0); /* as long as a system's words of libraries */
  return refusal;
}

static int refuse_to_run(void* context, void* program, const bespoke_tensor* const* operands, size_t operand_count,
                         const bespoke_tensor* const* results, size_t result_count, char* message, size_t message_size) {
  (void)context, (void)program, (void)operands, (void)operand_count, (void)results, (void)result_count, (void)message;
  (void)message_size;
  return 1;
}

static void close_nothing(void* context, void* program) { (void)context, (void)program; }
static void count_destroyed(void* context) { ++*(int*)context; }

static bespoke_engine engine_of_the_test(const char* target) {
  bespoke_engine engine = {.struct_size = sizeof engine,
                           .target = target,
                           .context = &destroyed,
                           .open = refuse_to_open,
                           .run = refuse_to_run,
                           .close = close_nothing,
                           .destroy = count_destroyed};
  return engine;
}

static void an_engine_is_copied_and_destroyed_once(void) {
  char target[] = "executorch";
  bespoke_engine engine = engine_of_the_test(target);
  bespoke_options options = plain();
  options.engine = &engine;
  bespoke_model* model = opened(&options);
  memset(target, '!', sizeof target - 1); /* what was given may go: the model has its own */
  memset(&engine, 0, sizeof engine);
  bespoke_error* error = NULL;
  bespoke_status code = bespoke_evaluate(model, text("train"), text(NULL), NULL, NULL, &error);
  EXPECT(opens == 1 && is(error, code, "BundleError"));
  EXPECT(destroyed == 0);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  EXPECT(destroyed == 1);
}

static void what_the_device_lacks_is_not_the_bundles_fault(void) {
  const struct {
    int code;
    const char* kind;
  } known[] = {{1, "BundleError"},
               {BESPOKE_ENGINE_OTHER_SIGNATURE, "BundleError"},
               {BESPOKE_ENGINE_NO_MEMORY, "BudgetExceeded"},
               {BESPOKE_ENGINE_DISK_FULL, "DiskFull"},
               {BESPOKE_ENGINE_MISSING_DEPENDENCY, "MissingDependency"},
               {BESPOKE_ENGINE_UNAVAILABLE, "Unavailable"},
               {1000, "BundleError"}};
  bespoke_engine engine = engine_of_the_test("executorch");
  bespoke_options options = plain();
  options.engine = &engine;
  bespoke_model* model = opened(&options);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    bespoke_error* error = NULL;
    refusal = known[i].code;
    const bespoke_status code = bespoke_evaluate(model, text("train"), text(NULL), NULL, NULL, &error);
    EXPECT(error && strstr(error->got, "opens nothing"));                                    /* whole */
    if (known[i].code == BESPOKE_ENGINE_UNAVAILABLE) EXPECT(strstr(error->expected, "soc")); /* options say what it was built for */
    EXPECT(is(error, code, known[i].kind));
  }
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void an_engine_is_left_to_its_caller_where_opening_fails(void) {
  bespoke_engine engine = engine_of_the_test("executorch");
  bespoke_options options = plain();
  options.engine = &engine;
  bespoke_model* model = NULL;
  EXPECT(open_at("/nonexistent", state, &options, &model, NULL) && !destroyed);
  EXPECT(open_at(bundle, "/dev/null/state", &options, &model, NULL) && !destroyed);
  EXPECT(open_at(NULL, state, &options, &model, NULL) && !destroyed);
  EXPECT(open_at(bundle, state, &options, NULL, NULL) && !destroyed);
  options.pin_sha256 = text("no hash");
  EXPECT(open_at(bundle, state, &options, &model, NULL) && !destroyed);
  options.pin_sha256 = text(NULL);
  engine.target = NULL;
  EXPECT(open_at(bundle, state, &options, &model, NULL) == BESPOKE_CONFIG_ERROR && !destroyed);
  engine = engine_of_the_test("executorch");
  engine.run = NULL;
  EXPECT(open_at(bundle, state, &options, &model, NULL) == BESPOKE_CONFIG_ERROR && !destroyed);
  engine = engine_of_the_test("executorch");
  engine.unmap_weights = close_nothing; /* and no map_weights */
  EXPECT(open_at(bundle, state, &options, &model, NULL) == BESPOKE_CONFIG_ERROR && !destroyed);
  engine = engine_of_the_test("executorch");
  engine.struct_size = offsetof(bespoke_engine, destroy); /* then nobody knows where `destroy` is */
  EXPECT(open_at(bundle, state, &options, &model, NULL) == BESPOKE_CONFIG_ERROR && !destroyed);
}

static bespoke_status evaluated(bespoke_model* model, bespoke_error** error) {
  return bespoke_evaluate(model, text("train"), text(NULL), NULL, NULL, error);
}

static void the_threads_of_a_process_are_set_while_a_model_that_has_computed_is_open(void) {
  bespoke_options one = plain(), two = plain(), any = plain();
  two.threads = 2, any.threads = 0;
  bespoke_model *first = opened(&one), *other = opened(&two);
  EXPECT(evaluated(first, NULL) == 0);
  bespoke_error* error = NULL;
  bespoke_status code = evaluated(other, &error);
  EXPECT(is(error, code, "ConfigError"));
  bespoke_model* second = opened(&any);
  EXPECT(evaluated(second, NULL) == 0); /* shares them */
  EXPECT(bespoke_close(first, -1, NULL) == 0);
  code = evaluated(other, &error);
  EXPECT(is(error, code, "ConfigError"));
  EXPECT(bespoke_close(second, -1, NULL) == 0);
  EXPECT(evaluated(other, NULL) == 0);
  EXPECT(bespoke_close(other, -1, NULL) == 0);
  one.threads = -1;
  code = open_at(bundle, state, &one, &first, &error);
  EXPECT(is(error, code, "ConfigError"));
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------ */

#ifndef BESPOKE_SANITIZED /* a sanitizer has its own malloc */

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* data, size_t size);

static long until_failure = -1; /* allocations that still succeed; negative: all do */
static int keep_failing;
static long failed;

static int allowed(void) {
  if (until_failure < 0 || until_failure-- > 0) return 1;
  until_failure = keep_failing ? 0 : -1;
  failed++;
  return 0;
}

void* malloc(size_t size) { return allowed() ? __libc_malloc(size) : NULL; }
void* calloc(size_t count, size_t size) { return allowed() ? __libc_calloc(count, size) : NULL; }
void* realloc(void* data, size_t size) { return allowed() ? __libc_realloc(data, size) : NULL; }

/* Opens `path` with an allocation failing that comes later each time, and all after it where `keep`; how often that was. */
static long fail_everywhere(const char* path, int keep) {
  bespoke_engine engine = engine_of_the_test("executorch");
  bespoke_options options = plain();
  options.engine = &engine;
  for (long after = 0, times = 0;; after += 1 + after / 20, times++) {
    bespoke_model* model = NULL;
    bespoke_error* error = NULL;
    destroyed = 0, failed = 0, keep_failing = keep, until_failure = after;
    const bespoke_status code = open_at(path, state, &options, &model, &error);
    until_failure = -1;
    EXPECT(!model == !!code && !error == !code && !destroyed);
    if (code) EXPECT(error->status == code && *error->kind && *error->subject && *error->got && *error->expected && *error->next_step);
    if (failed && after < 5) EXPECT(!strcmp(error->kind, "BudgetExceeded"));
    bespoke_error_free(error);
    EXPECT(bespoke_close(model, -1, NULL) == 0 && destroyed == !code);
    if (!failed) return times;
  }
}

static void no_memory_is_an_error_wherever_it_ends(void) {
  EXPECT(fail_everywhere("/nonexistent", 1) > 5); /* none for the error either */
  EXPECT(fail_everywhere("/nonexistent", 0) > 5);
  const long times = fail_everywhere(bundle, 0);
  EXPECT(times > 50);
  EXPECT(bespoke_close(opened(NULL), -1, NULL) == 0); /* and what was left behind is whole */
}
#endif

/* ---- trust and versions -------------------------------------------------------------------------------------------------------- */

static void a_model_says_how_its_bundle_was_authenticated(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "none"));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  options.require_authenticated = 1;
  bespoke_error* error = NULL;
  bespoke_status code = open_at(bundle, state, &options, &model, &error);
  EXPECT(!model && is(error, code, "SignatureError"));
  options.pin_sha256 = text(getenv("PIN"));
  model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "pin"));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  uint8_t key[32];
  for (int i = 0; i < 32; i++) EXPECT(sscanf(getenv("KEY") + 2 * i, "%2hhx", &key[i]) == 1);
  options.public_key = key;
  model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "pin")); /* the stronger one of both */
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  options.pin_sha256 = text(NULL);
  model = opened(&options);
  EXPECT(!strcmp(bespoke_authenticated(model), "signature"));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  key[0] ^= 1;
  code = open_at(bundle, state, &options, &model, &error);
  EXPECT(!model && is(error, code, "SignatureError"));
}

/* What a client of a later header has: more fields at the end of a struct. */
static void structs_of_later_headers_are_taken_where_what_is_new_is_zero(void) {
  struct {
    bespoke_options known;
    uint64_t later[4]; /* the tests of borders between builds grow a library by two */
  } options = {.known = plain()};
  options.known.struct_size = sizeof options;
  EXPECT(bespoke_close(opened(&options.known), -1, NULL) == 0);
  options.later[3] = 1;
  bespoke_model* model = NULL;
  bespoke_error* error = NULL;
  bespoke_status code = open_at(bundle, state, &options.known, &model, &error);
  EXPECT(!model && is(error, code, "ConfigError"));
  options.later[3] = 0, options.known.reserved = 1;
  code = open_at(bundle, state, &options.known, &model, &error);
  EXPECT(!model && is(error, code, "ConfigError"));
  options.known.reserved = 0, options.known.struct_size = offsetof(bespoke_options, require_authenticated);
  EXPECT(open_at(bundle, state, &options.known, &model, NULL) == BESPOKE_CONFIG_ERROR);
  options.known.struct_size = (size_t)-1;
  EXPECT(open_at(bundle, state, &options.known, &model, NULL) == BESPOKE_CONFIG_ERROR);
}

/* What was in the memory of a struct before its fields were set is no field, in this library and in later ones. */
static void structs_have_no_bytes_that_are_not_fields(void) {
  bespoke_options options;
  bespoke_bundle place;
  memset(&options, 0xa5, sizeof options), memset(&place, 0xa5, sizeof place);
  options.struct_size = offsetof(bespoke_options, reserved) + sizeof options.reserved;
  options.memory_mb = -1, options.pin_sha256 = text(NULL), options.public_key = NULL, options.engine = NULL, options.threads = 1;
  options.require_authenticated = 0, options.cache = text(NULL), options.limit_counts = BESPOKE_LIMIT_OF_PROCESS, options.reserved = 0;
  place.struct_size = offsetof(bespoke_bundle, reserved) + sizeof place.reserved;
  place.path = text(bundle), place.offset = place.size = 0, place.descriptor = 0, place.reserved = 0;
  bespoke_model* model = NULL;
  EXPECT(bespoke_open(&place, text(state), &options, NULL, &model, NULL) == 0);
  bespoke_generation generation;
  memset(&generation, 0xa5, sizeof generation);
  generation.struct_size = offsetof(bespoke_generation, reserved) + sizeof generation.reserved;
  generation.max_tokens = 1, generation.temperature = 0, generation.top_p = 0, generation.top_k = 0, generation.seed = 0;
  generation.stop_texts = text(NULL), generation.notes = 0, generation.reserved = 0;
  bespoke_session* session = NULL;
  EXPECT(bespoke_session_open(model, &generation, &session, NULL) == 0);
  bespoke_session_close(session);
  EXPECT(bespoke_close(model, 0, NULL) == 0);
}

static const check checks[] = {
    CHECK(structs_have_no_bytes_that_are_not_fields),
    CHECK(nulls_before_a_model_is_open),
    CHECK(nulls_of_an_open_model),
    CHECK(an_engine_is_copied_and_destroyed_once),
    CHECK(what_the_device_lacks_is_not_the_bundles_fault),
    CHECK(an_engine_is_left_to_its_caller_where_opening_fails),
    CHECK(the_threads_of_a_process_are_set_while_a_model_that_has_computed_is_open),
#ifndef BESPOKE_SANITIZED
    CHECK(no_memory_is_an_error_wherever_it_ends),
#endif
    CHECK(a_model_says_how_its_bundle_was_authenticated),
    CHECK(structs_of_later_headers_are_taken_where_what_is_new_is_zero),
    {0},
};

int main(int argc, char** argv) {
  const check* const tables[] = {checks, checks_of_calls, checks_of_closing, checks_of_verbs, checks_of_sessions};
  if (argc < 4) return 2;
  bundle = argv[2], state = argv[3];
  if (!strcmp(argv[1], "fill")) return fill(), 0;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    for (const check* one = tables[i]; one->name; one++)
      if (!strcmp(one->name, argv[1])) return one->run(), 0;
  fprintf(stderr, "no check %s\n", argv[1]);
  return 2;
}
