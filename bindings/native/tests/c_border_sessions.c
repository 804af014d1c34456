/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: nulls, settings, what is asked too early, ends, calls that are ended, and who outlives whom.
 */
#include "c_border.h"

#include <math.h>

static bespoke_session* session_of(bespoke_model* model, int64_t max_tokens) {
  bespoke_generation generation = {.struct_size = sizeof generation, .max_tokens = max_tokens};
  bespoke_session* session = NULL;
  EXPECT(bespoke_session_open(model, &generation, &session, NULL) == 0 && session);
  return session;
}

/* Whether the next piece of an answer is its token number `tokens`, and ends it so. */
static int said(bespoke_session* session, int64_t tokens, bespoke_answer_end ended) {
  const bespoke_piece* piece = NULL;
  EXPECT(bespoke_session_next(session, NULL, &piece, NULL) == 0 && piece);
  EXPECT(piece->struct_size >= offsetof(bespoke_piece, reserved) + sizeof piece->reserved && !piece->reserved && piece->text.data &&
         piece->text.data[piece->text.size] == 0);
  return piece->tokens == tokens && piece->token >= 0 && piece->ended == ended;
}

static void sessions_refuse_nulls_and_settings_out_of_range(void) {
  bespoke_error* error = NULL;
  bespoke_session* session = (bespoke_session*)1;
  char* scores = (char*)1;
  const bespoke_piece* piece = (const bespoke_piece*)1;
  bespoke_status code = bespoke_session_open(NULL, NULL, &session, &error);
  EXPECT(!session && is(error, code, "ConfigError"));
  code = bespoke_session_feed(NULL, text("[1]"), &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_session_next(NULL, NULL, &piece, &error);
  EXPECT(!piece && is(error, code, "ConfigError"));
  bespoke_session_close(NULL);
  code = bespoke_score(NULL, text("[1]"), text("[[2]]"), NULL, &scores, &error);
  EXPECT(!scores && is(error, code, "ConfigError"));
  scores = (char*)1;
  code = bespoke_classify(NULL, text("[1]"), text("[\"a\"]"), NULL, &scores, &error);
  EXPECT(!scores && is(error, code, "ConfigError"));

  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  EXPECT(bespoke_session_open(model, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  const bespoke_generation wrong[] = {
      {.temperature = -1},
      {.temperature = HUGE_VAL},
      {.top_p = 1.5},
      {.top_p = -0.5},
      {.top_k = -1},
      {.max_tokens = -1},
      {.stop_texts = text("{")},
      {.stop_texts = text("{\"a\": \"b\"}")},
      {.stop_texts = text("[1]")},
      {.stop_texts = text("[\"\"]")},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    bespoke_generation generation = wrong[i];
    generation.struct_size = sizeof generation;
    code = bespoke_session_open(model, &generation, &session, &error);
    EXPECT(!session && is(error, code, "GenerationError"));
  }
  EXPECT(bespoke_session_open(model, NULL, &session, NULL) == 0 && session);
  EXPECT(bespoke_session_feed(session, text("[1, 2]"), NULL) == 0);
  EXPECT(bespoke_session_next(session, NULL, NULL, NULL) == 0);
  bespoke_session_close(session);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void an_answer_is_asked_for_between_what_is_fed_and_its_end(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_session* session = session_of(model, 2);
  bespoke_error* error = NULL;
  bespoke_status code = bespoke_session_next(session, NULL, NULL, &error);
  EXPECT(is(error, code, "GenerationError"));
  const char* const wrong[] = {"",    "[", "[1.5]", "[-1]", "[1000000]", "{}", "\"words\"", "[{\"role\": \"user\", \"content\": \"a\"}]",
                               "null"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    code = bespoke_session_feed(session, text(wrong[i]), &error);
    EXPECT(is(error, code, "DataError"));
  }
  EXPECT(bespoke_session_next(session, NULL, NULL, NULL) == BESPOKE_GENERATION_ERROR);
  for (int turn = 0; turn < 2; turn++) {
    EXPECT(bespoke_session_feed(session, text("[1, 2, 3]"), NULL) == 0);
    EXPECT(said(session, 1, BESPOKE_GOES_ON));
    EXPECT(said(session, 2, BESPOKE_END_MAX_TOKENS));
    EXPECT(bespoke_session_next(session, NULL, NULL, NULL) == BESPOKE_GENERATION_ERROR);
  }
  bespoke_session_close(session);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static int32_t count_and_end(void* context, const bespoke_progress* progress) {
  EXPECT(progress->phase == BESPOKE_PHASE_DECODE && progress->step < progress->steps && progress->footprint_bytes > 0);
  return ++*(int*)context == 1;
}

static void a_call_that_is_ended_says_nothing_and_is_asked_again(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_session* session = session_of(model, 3);
  bespoke_error* error = NULL;
  EXPECT(bespoke_session_feed(session, text("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]"), NULL) == 0);
  int told = 0;
  bespoke_call call = {.struct_size = sizeof call, .context = &told, .progress = count_and_end};
  bespoke_status code = bespoke_session_next(session, &call, NULL, &error);
  EXPECT(told == 1 && is(error, code, "Cancelled"));
  bespoke_cancel* cancel = bespoke_cancel_new();
  bespoke_cancel_set(cancel);
  bespoke_call cancelled = {.struct_size = sizeof cancelled, .cancel = cancel};
  EXPECT(bespoke_session_next(session, &cancelled, NULL, NULL) == BESPOKE_CANCELLED);
  bespoke_call late = {.struct_size = sizeof late, .deadline_seconds = 1e-9};
  EXPECT(bespoke_session_next(session, &late, NULL, NULL) == BESPOKE_CANCELLED);
  EXPECT(said(session, 1, BESPOKE_GOES_ON));
  EXPECT(bespoke_session_next(session, &cancelled, NULL, NULL) == BESPOKE_CANCELLED);
  EXPECT(said(session, 2, BESPOKE_GOES_ON));
  bespoke_cancel_free(cancel);
  bespoke_session_close(session);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void a_session_ends_with_its_model(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_session* session = session_of(model, 3);
  EXPECT(bespoke_session_feed(session, text("[1, 2, 3]"), NULL) == 0);
  EXPECT(said(session, 1, BESPOKE_GOES_ON));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
  EXPECT(bespoke_session_next(session, NULL, NULL, NULL) == BESPOKE_STATE_ERROR);
  EXPECT(bespoke_close(opened(&options), -1, NULL) == 0);
  bespoke_session_close(session);
}

static bespoke_session* to_be_asked;

static int32_t ask_it(void* context, const bespoke_progress* progress) {
  if (progress->phase != BESPOKE_PHASE_STEP) return 0;
  *(int*)context += bespoke_session_next(to_be_asked, NULL, NULL, NULL) == BESPOKE_BUSY;
  return 0;
}

static void a_session_is_told_that_its_model_trains_and_goes_on_afterwards(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  to_be_asked = session_of(model, 3);
  EXPECT(bespoke_session_feed(to_be_asked, text("[1, 2, 3]"), NULL) == 0);
  EXPECT(said(to_be_asked, 1, BESPOKE_GOES_ON));
  int busy = 0;
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 2};
  bespoke_call call = {.struct_size = sizeof call, .context = &busy, .progress = ask_it};
  EXPECT(bespoke_train(model, &training, &call, NULL, NULL) == 0 && busy == 2);
  EXPECT(said(to_be_asked, 2, BESPOKE_GOES_ON));
  bespoke_session_close(to_be_asked);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

const check checks_of_sessions[] = {
    CHECK(sessions_refuse_nulls_and_settings_out_of_range),
    CHECK(an_answer_is_asked_for_between_what_is_fed_and_its_end),
    CHECK(a_call_that_is_ended_says_nothing_and_is_asked_again),
    CHECK(a_session_ends_with_its_model),
    CHECK(a_session_is_told_that_its_model_trains_and_goes_on_afterwards),
    {0},
};
