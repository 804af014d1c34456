/* SPDX-License-Identifier: Apache-2.0
 *
 * Closing: from within calls, from other threads, twice, before and after its time, and in a fork.
 */
#include "c_border.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG_RUN = 100000 }; /* steps: it ends because it is ended */

typedef struct {
  bespoke_model* model;
  bespoke_status status;
  char* report;
  _Atomic int began, go_on; /* the call has begun; it may go on */
  int32_t (*act)(bespoke_model* model);
} run;

static void rest(void) {
  const struct timespec moment = {0, 1000000};
  nanosleep(&moment, NULL);
}

static int32_t at_a_step(void* context, const bespoke_progress* progress) {
  run* one = context;
  if (progress->phase != BESPOKE_PHASE_STEP) return 0;
  one->began = 1;
  while (!one->go_on) rest();
  return one->act ? one->act(one->model) : 0;
}

static void* train(void* context) {
  run* one = context;
  bespoke_training training = {.struct_size = sizeof training, .run_steps = LONG_RUN};
  bespoke_call call = {.struct_size = sizeof call, .context = one, .progress = at_a_step};
  one->status = bespoke_train(one->model, &training, &call, &one->report, NULL);
  return NULL;
}

/* Trains on another thread until its first step is done. */
static pthread_t trains(run* one) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, train, one) == 0);
  while (!one->began) rest();
  return thread;
}

static int was_stopped(run* one) {
  const int stopped = one->status == BESPOKE_OK && one->report && strstr(one->report, "\"stop_requested\"") != NULL;
  bespoke_free(one->report);
  return stopped;
}

/* Every function that takes a model, with one that is not open. */
static int all_refuse(bespoke_model* model) {
  bespoke_error* error = NULL;
  bespoke_session* session = NULL;
  char* text_out = NULL;
  int64_t number = 0;
  int32_t ended = 0;
  bespoke_example example = {.struct_size = sizeof example, .json = text("{\"tokens\": [1, 2]}")};
  const bespoke_status statuses[] = {
      bespoke_interrupt(model, NULL),
      bespoke_close(model, 0, NULL),
      bespoke_set_limit(model, 1, NULL),
      bespoke_set_pace(model, 1, NULL),
      bespoke_add_example(model, &example, NULL, &text_out, NULL),
      bespoke_correct(model, text("[]"), text("a"), NULL, &text_out, NULL),
      bespoke_list_examples(model, text(NULL), 0, &text_out, NULL),
      bespoke_count_examples(model, &number, NULL),
      bespoke_forget_example(model, text("a"), NULL, &text_out, NULL),
      bespoke_planned_training(model, &text_out, NULL),
      bespoke_current_run(model, &text_out, NULL),
      bespoke_list_versions(model, &text_out, NULL),
      bespoke_abandon_run(model, NULL, &ended, NULL),
      bespoke_rollback(model, NULL, &text_out, NULL),
      bespoke_reset(model, NULL, NULL),
      bespoke_export_adapter(model, text("x"), text("peft"), 1, NULL, NULL),
      bespoke_import_adapter(model, text("x"), 0, NULL, &number, NULL),
      bespoke_train(model, NULL, NULL, &text_out, NULL),
      bespoke_check_training(model, NULL, NULL),
      bespoke_evaluate(model, text("train"), text(NULL), NULL, &text_out, NULL),
      bespoke_verify(model, NULL, &text_out, NULL),
      bespoke_federation_join(model, NULL, NULL),
      bespoke_federation_leave(model, NULL, NULL),
      bespoke_federation_status(model, &text_out, NULL),
      bespoke_federation_request(model, &text_out, NULL),
      bespoke_federation_respond(model, text("{}"), text("{}"), NULL, NULL),
      bespoke_federation_take_part(model, NULL, &text_out, NULL),
      bespoke_federation_adopt(model, NULL, &text_out, NULL),
      bespoke_session_open(model, NULL, &session, NULL),
      bespoke_score(model, text("[1]"), text("[[2]]"), NULL, &text_out, NULL),
      bespoke_classify(model, text("[1]"), text("[\"a\"]"), NULL, &text_out, NULL),
  };
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    if (statuses[i] != BESPOKE_STATE_ERROR) return fprintf(stderr, "call %zu gave %d\n", i, statuses[i]), 0;
  if (session || text_out || strcmp(bespoke_authenticated(model), "none")) return 0;
  bespoke_status code = bespoke_count_examples(model, &number, &error);
  return is(error, code, "StateError");
}

static void a_handle_that_is_closed_or_was_never_given_is_refused_everywhere(void) {
  bespoke_options options = plain();
  bespoke_model *model = opened(&options), *other = opened(&options);
  bespoke_session* session = NULL;
  EXPECT(bespoke_session_open(model, NULL, &session, NULL) == 0);
  EXPECT(bespoke_session_feed(session, text("[1, 2]"), NULL) == 0);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  EXPECT(all_refuse(model)); /* its session lives */
  EXPECT(bespoke_session_feed(session, text("[1, 2]"), NULL) == BESPOKE_STATE_ERROR);
  EXPECT(bespoke_session_next(session, NULL, NULL, NULL) == BESPOKE_STATE_ERROR);
  bespoke_session_close(session);
  bespoke_session_close(session);
  EXPECT(bespoke_session_next(session, NULL, NULL, NULL) == BESPOKE_STATE_ERROR);
  EXPECT(all_refuse(model));
  bespoke_release(model);
  EXPECT(all_refuse((bespoke_model*)1) && all_refuse((bespoke_model*)session) && all_refuse((bespoke_model*)&options));
  EXPECT(bespoke_session_feed((bespoke_session*)other, text("[1]"), NULL) == BESPOKE_STATE_ERROR);
  bespoke_session_close((bespoke_session*)other);
  EXPECT(bespoke_count_examples(other, NULL, NULL) == 0);
  bespoke_release(other);
  EXPECT(all_refuse(other));
  bespoke_release(NULL);
  EXPECT(bespoke_close(NULL, 0, NULL) == 0);
}

static bespoke_status from_within;

static int32_t close_it(bespoke_model* model) {
  bespoke_error* error = NULL;
  from_within = bespoke_close(model, -1, &error);
  EXPECT(is(error, from_within, "Busy"));
  return 0;
}

static void a_call_that_closes_its_own_model_is_ended_and_the_model_stays_open(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options), .go_on = 1, .act = close_it};
  train(&one);
  EXPECT(from_within == BESPOKE_BUSY && was_stopped(&one));
  EXPECT(bespoke_count_examples(one.model, NULL, NULL) == 0);
  EXPECT(bespoke_close(one.model, 0, NULL) == 0);
}

static int32_t release_it(bespoke_model* model) {
  bespoke_model* again = NULL;
  bespoke_error* error = NULL;
  bespoke_release(model);
  EXPECT(all_refuse(model));
  bespoke_options options = plain();
  from_within = open_at(bundle, state, &options, &again, &error);
  EXPECT(!again && is(error, from_within, "Busy"));
  return 0;
}

static void a_call_that_releases_its_own_model_frees_it_at_its_end(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options), .go_on = 1, .act = release_it};
  train(&one);
  EXPECT(from_within == BESPOKE_BUSY && was_stopped(&one));
  EXPECT(bespoke_close(opened(&options), 0, NULL) == 0);
}

static void closing_ends_a_call_of_another_thread_and_waits_for_it(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options), .go_on = 1};
  const pthread_t thread = trains(&one);
  EXPECT(bespoke_close(one.model, -1, NULL) == 0);
  EXPECT(bespoke_close(opened(&options), 0, NULL) == 0); /* its state is free */
  pthread_join(thread, NULL);
  EXPECT(was_stopped(&one) && all_refuse(one.model));
}

static void a_call_that_does_not_end_in_time_leaves_the_model_open(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options)};
  const pthread_t thread = trains(&one); /* its progress waits */
  bespoke_error* error = NULL;
  bespoke_status code = bespoke_close(one.model, 0, &error);
  EXPECT(is(error, code, "Busy"));
  code = bespoke_close(one.model, 0.01, &error);
  EXPECT(is(error, code, "Busy") && bespoke_count_examples(one.model, NULL, NULL) == 0);
  const double wrong = 0 * strtod("inf", NULL);
  code = bespoke_close(one.model, wrong, &error);
  EXPECT(is(error, code, "ConfigError"));
  one.go_on = 1;
  EXPECT(bespoke_close(one.model, 60, NULL) == 0);
  pthread_join(thread, NULL);
  EXPECT(was_stopped(&one));
}

static void a_model_that_is_released_while_another_thread_trains_goes_with_its_call(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options)};
  const pthread_t thread = trains(&one);
  bespoke_release(one.model);
  EXPECT(all_refuse(one.model));
  bespoke_model* again = NULL;
  EXPECT(open_at(bundle, state, &options, &again, NULL) == BESPOKE_BUSY);
  one.go_on = 1;
  pthread_join(thread, NULL);
  EXPECT(was_stopped(&one));
  EXPECT(bespoke_close(opened(&options), 0, NULL) == 0);
}

static void an_interrupt_ends_the_calls_that_run_and_no_later_ones(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options), .go_on = 1};
  EXPECT(bespoke_interrupt(one.model, NULL) == 0); /* nothing runs */
  const pthread_t thread = trains(&one);
  EXPECT(bespoke_interrupt(one.model, NULL) == 0);
  pthread_join(thread, NULL);
  EXPECT(was_stopped(&one));
  EXPECT(bespoke_evaluate(one.model, text("train"), text(NULL), NULL, NULL, NULL) == 0);
  EXPECT(bespoke_close(one.model, 0, NULL) == 0);
}

static void* closes(void* model) { return (void*)(intptr_t)bespoke_close(model, -1, NULL); }

static void of_two_threads_that_close_a_model_one_does(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options)};
  const pthread_t thread = trains(&one);
  pthread_t closers[2];
  void* statuses[2];
  for (int i = 0; i < 2; i++) EXPECT(pthread_create(&closers[i], NULL, closes, one.model) == 0);
  one.go_on = 1;
  for (int i = 0; i < 2; i++) pthread_join(closers[i], &statuses[i]);
  pthread_join(thread, NULL);
  EXPECT(was_stopped(&one));
  EXPECT((intptr_t)statuses[0] + (intptr_t)statuses[1] == BESPOKE_STATE_ERROR);
}

static bespoke_session* to_be_closed;
static bespoke_cancel* to_be_freed;

static int32_t close_the_session(void* context, const bespoke_progress* progress) {
  (void)progress;
  ++*(int*)context;
  bespoke_session_close(to_be_closed);
  return 0;
}

static void a_session_that_its_own_call_closes_says_nothing_more(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  EXPECT(bespoke_session_open(model, NULL, &to_be_closed, NULL) == 0);
  EXPECT(bespoke_session_feed(to_be_closed, text("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]"), NULL) == 0);
  int called = 0;
  bespoke_call call = {.struct_size = sizeof call, .context = &called, .progress = close_the_session};
  EXPECT(bespoke_session_next(to_be_closed, &call, NULL, NULL) == BESPOKE_CANCELLED && called == 1);
  EXPECT(bespoke_session_next(to_be_closed, NULL, NULL, NULL) == BESPOKE_STATE_ERROR);
  EXPECT(bespoke_close(model, 0, NULL) == 0);
}

static int32_t free_the_token(void* context, const bespoke_progress* progress) {
  if (progress->phase == BESPOKE_PHASE_STEP && ++*(int*)context == 1) bespoke_cancel_free(to_be_freed);
  return 0;
}

static void a_token_may_be_freed_while_a_call_has_it(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  to_be_freed = bespoke_cancel_new();
  int steps = 0;
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 3};
  bespoke_call call = {.struct_size = sizeof call, .cancel = to_be_freed, .context = &steps, .progress = free_the_token};
  EXPECT(bespoke_train(model, &training, &call, NULL, NULL) == 0 && steps == 3);
  EXPECT(bespoke_close(model, 0, NULL) == 0);
}

static int open_nothing(void* context, const bespoke_artifact* artifact, void** program, char* message, size_t message_size) {
  (void)context, (void)artifact, (void)program, (void)message, (void)message_size;
  return 1;
}
static int run_nothing(void* context, void* program, const bespoke_tensor* const* operands, size_t operand_count,
                       const bespoke_tensor* const* results, size_t result_count, char* message, size_t message_size) {
  (void)context, (void)program, (void)operands, (void)operand_count, (void)results, (void)result_count, (void)message, (void)message_size;
  return 1;
}
static void close_nothing(void* context, void* program) { (void)context, (void)program; }
static void end_a_fork(void* parent) {
  if (getpid() != *(pid_t*)parent) _exit(7);
}

static void a_fork_is_refused_and_closes_nothing_of_its_parents(void) {
  bespoke_options options = plain();
  run one = {.model = opened(&options)};
  pid_t parent = getpid();
  const bespoke_engine engine = {.struct_size = sizeof engine,
                                 .target = "executorch",
                                 .context = &parent,
                                 .open = open_nothing,
                                 .run = run_nothing,
                                 .close = close_nothing,
                                 .destroy = end_a_fork};
  options.engine = &engine;
  bespoke_model* other = opened(&options);
  bespoke_session* session = NULL;
  EXPECT(bespoke_session_open(one.model, NULL, &session, NULL) == 0);
  const pthread_t thread = trains(&one); /* a call runs while it forks */
  const pid_t child = fork();
  if (!child) {
    EXPECT(all_refuse(one.model));
    EXPECT(bespoke_session_feed(session, text("[1]"), NULL) == BESPOKE_STATE_ERROR);
    bespoke_session_close(session);
    bespoke_release(one.model);
    bespoke_release(other);
    exit(0);
  }
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(bespoke_session_feed(session, text("[1]"), NULL) == 0);
  one.go_on = 1;
  EXPECT(bespoke_close(one.model, -1, NULL) == 0);
  pthread_join(thread, NULL);
  EXPECT(was_stopped(&one));
  EXPECT(bespoke_close(other, 0, NULL) == 0);
  bespoke_session_close(session);
}

const check checks_of_closing[] = {
    CHECK(a_handle_that_is_closed_or_was_never_given_is_refused_everywhere),
    CHECK(a_call_that_closes_its_own_model_is_ended_and_the_model_stays_open),
    CHECK(a_call_that_releases_its_own_model_frees_it_at_its_end),
    CHECK(closing_ends_a_call_of_another_thread_and_waits_for_it),
    CHECK(a_call_that_does_not_end_in_time_leaves_the_model_open),
    CHECK(a_model_that_is_released_while_another_thread_trains_goes_with_its_call),
    CHECK(an_interrupt_ends_the_calls_that_run_and_no_later_ones),
    CHECK(of_two_threads_that_close_a_model_one_does),
    CHECK(a_session_that_its_own_call_closes_says_nothing_more),
    CHECK(a_token_may_be_freed_while_a_call_has_it),
    CHECK(a_fork_is_refused_and_closes_nothing_of_its_parents),
    {0},
};
