/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs of the store: nulls, what they give, and that they run while a call computes.
 */
#include "c_border.h"

static void verbs_refuse_nulls(void) {
  bespoke_error *error = NULL;
  char *given = (char *)1;
  int64_t count = 7;
  int32_t ended = 7;
  bespoke_status code = bespoke_count_examples(NULL, &count, &error);
  EXPECT(!count && is(error, code, "ConfigError"));
  code = bespoke_list_versions(NULL, &given, &error);
  EXPECT(!given && is(error, code, "ConfigError"));
  code = bespoke_abandon_run(NULL, &ended, &error);
  EXPECT(!ended && is(error, code, "ConfigError"));
  code = bespoke_check_training(NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_add_example(NULL, NULL, &given, &error);
  EXPECT(!given && is(error, code, "ConfigError"));
  code = bespoke_correct(NULL, text("[]"), text("better"), &given, &error);
  EXPECT(!given && is(error, code, "ConfigError"));
  code = bespoke_list_examples(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_forget_example(NULL, text("id"), &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_planned_training(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_current_run(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_rollback(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_reset(NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_export_adapter(NULL, text("folder"), text("peft"), 0, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_import_adapter(NULL, text("folder"), 0, &count, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_install(NULL, 1, text("folder"), NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_reset_for_new_base(NULL, text(state), NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  bespoke_options options = plain();
  bespoke_model *model = opened(&options);
  EXPECT(bespoke_count_examples(model, NULL, NULL) == 0);
  EXPECT(bespoke_list_versions(model, NULL, NULL) == 0);
  EXPECT(bespoke_abandon_run(model, NULL, NULL) == 0);
  EXPECT(bespoke_check_training(model, NULL, NULL) == 0);
  EXPECT(bespoke_add_example(model, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  bespoke_example example = {.struct_size = sizeof example};
  EXPECT(bespoke_add_example(model, &example, NULL, NULL) == BESPOKE_DATA_ERROR);
  example.json = text("{\"tokens\": [1, 2, 3]}");
  EXPECT(bespoke_add_example(model, &example, NULL, NULL) == 0);
  EXPECT(bespoke_correct(model, text(NULL), text(NULL), NULL, NULL) == BESPOKE_DATA_ERROR);
  EXPECT(bespoke_list_examples(model, NULL, NULL) == 0);
  EXPECT(bespoke_forget_example(model, text(NULL), NULL, NULL) == BESPOKE_DATA_ERROR);
  EXPECT(bespoke_forget_example(model, text("nobody"), NULL, NULL) == 0);
  EXPECT(bespoke_current_run(model, &given, NULL) == 0 && !strcmp(given, "null"));
  bespoke_free(given);
  EXPECT(bespoke_current_run(model, NULL, NULL) == 0);
  EXPECT(bespoke_rollback(model, NULL, NULL) == 0);
  EXPECT(bespoke_reset(model, NULL) == 0);
  EXPECT(bespoke_export_adapter(model, text(NULL), text("peft"), 1, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_export_adapter(model, text("/nowhere"), text(NULL), 1, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_import_adapter(model, text(NULL), 0, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  bespoke_close(model, -1, NULL);
}

static void what_is_for_training_only_is_never_held_out(void) {
  bespoke_options options = plain();
  bespoke_model *model = opened(&options);
  bespoke_error *error = NULL;
  bespoke_example example = {.struct_size = sizeof example, .use = text("validation")};
  bespoke_status code = bespoke_add_example(model, &example, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  example.use = text("train");
  char json[64], id[16];
  for (int number = 0; number < 20; number++) { /* of any twenty others two were held out at least */
    char *added = NULL;
    snprintf(json, sizeof json, "{\"tokens\": [1, 2, %d]}", number);
    snprintf(id, sizeof id, "only %d", number);
    example.json = text(json);
    example.id = text(id);
    EXPECT(bespoke_add_example(model, &example, &added, NULL) == 0 && strstr(added, "\"split\":\"train\""));
    bespoke_free(added);
  }
  for (int number = 0; number < 20; number++) {
    snprintf(id, sizeof id, "only %d", number);
    EXPECT(bespoke_forget_example(model, text(id), NULL, NULL) == 0);
  }
  bespoke_close(model, -1, NULL);
}

static void an_unfinished_run_is_gone_on_with_replaced_or_abandoned(void) {
  bespoke_options options = plain();
  bespoke_model *model = opened(&options);
  bespoke_error *error = NULL;
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 5000};
  bespoke_call call = {.struct_size = sizeof call, .deadline_seconds = 0.3};
  EXPECT(bespoke_train(model, &training, &call, NULL, NULL) == 0); /* and is unfinished */
  training.settings = text("{\"learning_rate\": 0.125}");
  bespoke_status code = bespoke_check_training(model, &training, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_train(model, &training, NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  training.new_run = 1;
  EXPECT(bespoke_check_training(model, &training, NULL) == 0);
  EXPECT(bespoke_train(model, &training, &call, NULL, NULL) == 0);
  training.new_run = 0;
  EXPECT(bespoke_check_training(model, &training, NULL) == 0); /* these are the settings that it has now */
  int32_t ended = 0;
  EXPECT(bespoke_abandon_run(model, &ended, NULL) == 0 && ended);
  EXPECT(bespoke_abandon_run(model, &ended, NULL) == 0 && !ended);
  training.settings = text("{\"batch_size\": 99}");
  code = bespoke_check_training(model, &training, &error);
  EXPECT(is(error, code, "ConfigError"));
  bespoke_close(model, -1, NULL);
}

/* What a thread of the app asks while another one trains. */
typedef struct {
  bespoke_model *model;
  int64_t examples;
  int asked;
} asker;

static int32_t ask_of_the_store(void *context, const bespoke_progress *progress) {
  asker *one = context;
  if (progress->phase != BESPOKE_PHASE_STEP || one->asked++) return 0;
  char *versions = NULL;
  EXPECT(bespoke_count_examples(one->model, &one->examples, NULL) == 0);
  EXPECT(bespoke_list_versions(one->model, &versions, NULL) == 0 && !strcmp(versions, "[]"));
  bespoke_free(versions);
  EXPECT(bespoke_check_training(one->model, NULL, NULL) == 0);
  EXPECT(bespoke_abandon_run(one->model, NULL, NULL) == BESPOKE_STATE_LOCKED);
  EXPECT(bespoke_rollback(one->model, NULL, NULL) == BESPOKE_STATE_LOCKED);
  EXPECT(bespoke_reset(one->model, NULL) == BESPOKE_STATE_LOCKED);
  bespoke_example example = {.struct_size = sizeof example, .json = text("{\"tokens\": [3, 2, 1]}"), .id = text("new")};
  EXPECT(bespoke_add_example(one->model, &example, NULL, NULL) == 0);
  char *forgotten = NULL;
  EXPECT(bespoke_forget_example(one->model, text("new"), &forgotten, NULL) == 0);
  EXPECT(strstr(forgotten, "\"example\":true") && strstr(forgotten, "\"run_stopped\":false"));
  bespoke_free(forgotten);
  return 0;
}

static void verbs_of_the_store_run_while_a_call_computes(void) {
  bespoke_options options = plain();
  bespoke_model *model = opened(&options);
  asker one = {.model = model};
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 2};
  bespoke_call call = {.struct_size = sizeof call, .context = &one, .progress = ask_of_the_store};
  EXPECT(bespoke_train(model, &training, &call, NULL, NULL) == 0);
  EXPECT(one.asked && one.examples > 5);
  bespoke_close(model, -1, NULL);
}

const check checks_of_verbs[] = {
    CHECK(verbs_refuse_nulls),
    CHECK(what_is_for_training_only_is_never_held_out),
    CHECK(an_unfinished_run_is_gone_on_with_replaced_or_abandoned),
    CHECK(verbs_of_the_store_run_while_a_call_computes),
    {0},
};
