/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that compute: cancellation, progress, deadlines, limits, pace; and a bundle that lies within a file.
 */
#include "c_border.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

typedef struct {
  bespoke_cancel* cancel;
  bespoke_model* model;
  int steps, phases[4], end_at_step;
  bespoke_status from_within;
} follower;

static int32_t follow(void* context, const bespoke_progress* progress) {
  follower* one = context;
  EXPECT(progress->struct_size >= offsetof(bespoke_progress, footprint_bytes) + 8 && progress->phase >= 0 && progress->phase < 4 &&
         progress->footprint_bytes > 0);
  one->phases[progress->phase]++;
  if (progress->phase != BESPOKE_PHASE_STEP) return 0;
  EXPECT(progress->step > 0 && progress->step <= progress->steps && progress->loss > 0);
  if (one->model) one->from_within = bespoke_evaluate(one->model, text("train"), text(NULL), NULL, NULL, NULL);
  if (one->cancel) bespoke_cancel_set(one->cancel);
  return ++one->steps == one->end_at_step;
}

/* Trains by a call; whether the report has `word`. */
static int trained(bespoke_model* model, const bespoke_training* training, const bespoke_call* call, const char* word) {
  char* report = NULL;
  bespoke_error* error = NULL;
  if (bespoke_train(model, training, call, &report, &error)) fprintf(stderr, "%s: got %s\n", error->subject, error->got);
  EXPECT(report);
  const int has = strstr(report, word) != NULL;
  bespoke_free(report);
  return has;
}

static void a_token_ends_the_calls_that_have_it_and_no_others(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 5};
  follower one = {.cancel = bespoke_cancel_new()};
  bespoke_call call = {.struct_size = sizeof call, .cancel = one.cancel, .context = &one, .progress = follow};
  EXPECT(trained(model, &training, &call, "\"stop_requested\"") && one.steps == 1);
  EXPECT(trained(model, &training, &call, "\"stop_requested\"") && one.steps == 1); /* it stays set */
  bespoke_error* error = NULL;
  bespoke_status code = bespoke_evaluate(model, text("train"), text(NULL), &call, NULL, &error);
  EXPECT(is(error, code, "Cancelled") && code == BESPOKE_CANCELLED);
  code = bespoke_verify(model, &call, NULL, &error);
  EXPECT(is(error, code, "Cancelled"));
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), NULL, NULL, NULL) == 0);
  training.most_steps = 1;
  EXPECT(!trained(model, &training, NULL, "stop_requested"));
  bespoke_cancel_free(one.cancel);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void progress_tells_of_each_phase_and_may_end_the_call(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 3};
  follower all = {.end_at_step = -1}, two = {.end_at_step = 2};
  bespoke_call call = {.struct_size = sizeof call, .context = &all, .progress = follow};
  EXPECT(trained(model, &training, &call, "\"finished\""));
  EXPECT(all.steps == 3 && all.phases[BESPOKE_PHASE_OPEN] == 1 && all.phases[BESPOKE_PHASE_JUDGE] == 1 && all.phases[BESPOKE_PHASE_COMMIT]);
  call.context = &two;
  EXPECT(trained(model, &training, &call, "\"stop_requested\"") && two.steps == 2);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void a_second_call_that_computes_is_told_that_the_model_is_busy(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 1};
  follower one = {.model = model, .end_at_step = -1};
  bespoke_call call = {.struct_size = sizeof call, .context = &one, .progress = follow};
  EXPECT(trained(model, &training, &call, "\"finished\""));
  EXPECT(one.from_within == BESPOKE_BUSY);
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), NULL, NULL, NULL) == 0);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

/* Nothing of a call happens whose token was set before it. */
static void a_token_that_is_set_before_a_call_starts_nothing(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_cancel* cancel = bespoke_cancel_new();
  bespoke_cancel_set(cancel);
  const bespoke_call call = {.struct_size = sizeof call, .cancel = cancel};
  int64_t before = 0, after = 0;
  EXPECT(bespoke_count_examples(model, &before, NULL) == 0);
  const bespoke_example example = {.struct_size = sizeof example, .json = text("{\"tokens\": [1, 2, 3]}"), .id = text("late")};
  bespoke_error* error = NULL;
  char* given = NULL;
  bespoke_status code = bespoke_train(model, NULL, &call, &given, &error);
  EXPECT(!given && is(error, code, "Cancelled"));
  EXPECT(bespoke_current_run(model, &given, NULL) == 0 && !strcmp(given, "null"));
  bespoke_free(given);
  EXPECT(bespoke_add_example(model, &example, &call, NULL, NULL) == BESPOKE_CANCELLED);
  EXPECT(bespoke_count_examples(model, &after, NULL) == 0 && after == before);
  EXPECT(bespoke_export_adapter(model, text("never"), text("peft"), 1, &call, NULL) == BESPOKE_CANCELLED);
  EXPECT(bespoke_reset(model, &call, NULL) == BESPOKE_CANCELLED);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  const bespoke_bundle place = {.struct_size = sizeof place, .path = text(bundle)};
  EXPECT(bespoke_open(&place, text(state), &options, &call, &model, NULL) == BESPOKE_CANCELLED && !model);
  bespoke_cancel_free(cancel);
}

static void* trains_twenty_steps(void* model) {
  const bespoke_training training = {.struct_size = sizeof training, .run_steps = 20};
  const bespoke_call call = {.struct_size = sizeof call, .wait_seconds = -1};
  return (void*)(intptr_t)bespoke_train(model, &training, &call, NULL, NULL);
}

static void a_call_waits_for_its_turn_as_long_as_it_says(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  EXPECT(bespoke_set_pace(model, 0.2, NULL) == 0); /* so that there is time to meet */
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, trains_twenty_steps, model) == 0);
  const struct timespec moment = {0, 1000000};
  while (bespoke_evaluate(model, text("train"), text(NULL), NULL, NULL, NULL) == 0) nanosleep(&moment, NULL); /* until it trains */
  bespoke_call call = {.struct_size = sizeof call, .wait_seconds = 0.01};
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), &call, NULL, NULL) == BESPOKE_BUSY);
  call.wait_seconds = -1, call.deadline_seconds = 0.01;
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), &call, NULL, NULL) == BESPOKE_CANCELLED);
  EXPECT(bespoke_trim(model, NULL) == BESPOKE_BUSY);
  call.deadline_seconds = 0;
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), &call, NULL, NULL) == 0); /* after the training */
  void* code = NULL;
  EXPECT(pthread_join(thread, &code) == 0 && !code);
  EXPECT(bespoke_trim(model, NULL) == 0);
  call.wait_seconds = 0.0 / 0.0;
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), &call, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static int32_t waits_for_itself(void* context, const bespoke_progress* progress) {
  follower* one = context;
  const bespoke_call forever = {.struct_size = sizeof forever, .wait_seconds = -1};
  if (progress->phase == BESPOKE_PHASE_STEP)
    one->from_within = bespoke_evaluate(one->model, text("train"), text(NULL), &forever, NULL, NULL);
  return 0;
}

static void a_callback_that_would_wait_for_its_own_call_is_busy(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  const bespoke_training training = {.struct_size = sizeof training, .run_steps = 1};
  follower one = {.model = model};
  const bespoke_call call = {.struct_size = sizeof call, .context = &one, .progress = waits_for_itself};
  EXPECT(trained(model, &training, &call, "\"finished\"") && one.from_within == BESPOKE_BUSY);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static int32_t counts_phases(void* context, const bespoke_progress* progress) {
  ((int*)context)[progress->phase]++;
  return 0;
}

static void evaluating_and_verifying_tell_how_far_they_are(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  int phases[6] = {0};
  const bespoke_call call = {.struct_size = sizeof call, .context = phases, .progress = counts_phases};
  EXPECT(bespoke_evaluate(model, text("train"), text(NULL), &call, NULL, NULL) == 0 && phases[BESPOKE_PHASE_JUDGE] > 0);
  memset(phases, 0, sizeof phases);
  EXPECT(bespoke_verify(model, &call, NULL, NULL) == 0 && phases[BESPOKE_PHASE_STORE] > 1 && phases[BESPOKE_PHASE_JUDGE] > 0);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void a_call_ends_at_its_deadline(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 5000};
  bespoke_call call = {.struct_size = sizeof call, .deadline_seconds = 0.5};
  EXPECT(trained(model, &training, &call, "\"deadline\""));
  call.deadline_seconds = 1e-9; /* before anything: the run is there, and goes on with the next call */
  EXPECT(trained(model, NULL, &call, "\"deadline\""));
  bespoke_error* error = NULL;
  bespoke_status code = bespoke_evaluate(model, text("train"), text(NULL), &call, NULL, &error);
  EXPECT(is(error, code, "Cancelled"));
  call.deadline_seconds = -1;
  code = bespoke_train(model, NULL, &call, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void the_limit_of_an_open_model_changes(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 1};
  bespoke_error* error = NULL;
  EXPECT(bespoke_set_limit(model, 1, NULL) == 0);
  bespoke_status code = bespoke_train(model, &training, NULL, NULL, &error);
  EXPECT(is(error, code, "BudgetExceeded"));
  EXPECT(bespoke_set_limit(model, -1, NULL) == 0 && trained(model, &training, NULL, "\"finished\""));
  code = bespoke_set_limit(model, 1e300, &error);
  EXPECT(is(error, code, "ConfigError"));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static double seconds_of(bespoke_model* model, double pace) {
  const clock_t processor = clock();
  struct timespec begin, end;
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 20};
  EXPECT(bespoke_set_pace(model, pace, NULL) == 0);
  clock_gettime(CLOCK_MONOTONIC, &begin);
  EXPECT(trained(model, &training, NULL, "\"finished\""));
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double wall = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  return wall / ((double)(clock() - processor) / CLOCKS_PER_SEC); /* for each second of the processor */
}

static void a_slow_pace_rests_between_instructions(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  EXPECT(seconds_of(model, 0.2) > 2);
  bespoke_error* error = NULL;
  for (double wrong = -1; wrong < 3; wrong += 1) {
    if (wrong == 1) continue;
    bespoke_status code = bespoke_set_pace(model, wrong, &error);
    EXPECT(is(error, code, "ConfigError"));
  }
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

/* A bundle within a file, as an asset lies in an APK. */
static void a_bundle_is_opened_by_a_range_of_a_file(void) {
  FILE *zip = fopen(getenv("ZIP"), "rb"), *apk = tmpfile();
  EXPECT(zip && apk);
  char piece[4096] = {0};
  uint64_t size = 0;
  EXPECT(fwrite(piece, 1, 192, apk) == 192);
  for (size_t got; (got = fread(piece, 1, sizeof piece, zip)) > 0; size += got) EXPECT(fwrite(piece, 1, got, apk) == got);
  EXPECT(fwrite("what comes after it", 1, 19, apk) == 19 && !fflush(apk));
  bespoke_bundle place = {.struct_size = sizeof place, .descriptor = fileno(apk), .offset = 192, .size = size};
  bespoke_options options = plain();
  bespoke_model* model = NULL;
  bespoke_error* error = NULL;
  if (bespoke_open(&place, text(state), &options, NULL, &model, &error)) fprintf(stderr, "%s: got %s\n", error->subject, error->got);
  EXPECT(model);
  fclose(apk);
  EXPECT(bespoke_verify(model, NULL, NULL, NULL) == 0);
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 2};
  EXPECT(trained(model, &training, NULL, "\"finished\""));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  place.descriptor = fileno(zip);
  const struct {
    uint64_t offset, size;
  } wrong[] = {{0, size + 1}, {0, size - 1}, {64, size - 64}, {1, size - 1}, {UINT64_MAX - 63, size}, {0, 21}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    place.offset = wrong[i].offset, place.size = wrong[i].size;
    bespoke_status code = bespoke_open(&place, text(state), &options, NULL, &model, &error);
    EXPECT(!model && is(error, code, "BundleError"));
  }
  fclose(zip);
}

const check checks_of_calls[] = {
    CHECK(a_token_ends_the_calls_that_have_it_and_no_others),
    CHECK(progress_tells_of_each_phase_and_may_end_the_call),
    CHECK(a_second_call_that_computes_is_told_that_the_model_is_busy),
    CHECK(a_token_that_is_set_before_a_call_starts_nothing),
    CHECK(a_call_waits_for_its_turn_as_long_as_it_says),
    CHECK(a_callback_that_would_wait_for_its_own_call_is_busy),
    CHECK(evaluating_and_verifying_tell_how_far_they_are),
    CHECK(a_call_ends_at_its_deadline),
    CHECK(the_limit_of_an_open_model_changes),
    CHECK(a_slow_pace_rests_between_instructions),
    CHECK(a_bundle_is_opened_by_a_range_of_a_file),
    {0},
};
