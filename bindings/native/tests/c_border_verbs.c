/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs of the store: nulls, what they give, and that they run while a call computes.
 */
#include "c_border.h"

static void verbs_refuse_nulls(void) {
  bespoke_error* error = NULL;
  char* given = (char*)1;
  int64_t count = 7;
  int32_t ended = 7;
  bespoke_status code = bespoke_count_examples(NULL, &count, &error);
  EXPECT(!count && is(error, code, "ConfigError"));
  code = bespoke_list_versions(NULL, &given, &error);
  EXPECT(!given && is(error, code, "ConfigError"));
  code = bespoke_abandon_run(NULL, NULL, &ended, &error);
  EXPECT(!ended && is(error, code, "ConfigError"));
  code = bespoke_check_training(NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_add_example(NULL, NULL, NULL, &given, &error);
  EXPECT(!given && is(error, code, "ConfigError"));
  code = bespoke_add_examples(NULL, NULL, 0, NULL, &given, &error);
  EXPECT(!given && is(error, code, "ConfigError"));
  code = bespoke_describe(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_count_tokens(NULL, text("[1]"), &count, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_trim(NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_correct(NULL, text("[]"), text("better"), NULL, &given, &error);
  EXPECT(!given && is(error, code, "ConfigError"));
  code = bespoke_list_examples(NULL, text(NULL), 0, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_forget_example(NULL, text("id"), NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_planned_training(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_current_run(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_rollback(NULL, NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_reset(NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_export_adapter(NULL, text("folder"), text("peft"), 0, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_import_adapter(NULL, text("folder"), 0, NULL, &count, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_install(NULL, 1, text("folder"), NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_reset_for_new_base(NULL, text(state), NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_federation_join(NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_federation_leave(NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_federation_status(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_federation_request(NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_federation_respond(NULL, text("{}"), text("{}"), NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_federation_take_part(NULL, NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  code = bespoke_federation_adopt(NULL, NULL, &given, &error);
  EXPECT(is(error, code, "ConfigError"));
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  EXPECT(bespoke_federation_status(model, &given, NULL) == 0 && strstr(given, "\"task\":null"));
  bespoke_free(given);
  EXPECT(bespoke_federation_join(model, NULL, NULL) == BESPOKE_CONFIG_ERROR); /* the bundle has none */
  EXPECT(bespoke_federation_leave(model, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_federation_request(model, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_federation_respond(model, text(NULL), text(NULL), NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_federation_take_part(model, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_federation_adopt(model, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_count_examples(model, NULL, NULL) == 0);
  EXPECT(bespoke_list_versions(model, NULL, NULL) == 0);
  EXPECT(bespoke_abandon_run(model, NULL, NULL, NULL) == 0);
  EXPECT(bespoke_check_training(model, NULL, NULL) == 0);
  EXPECT(bespoke_add_example(model, NULL, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  bespoke_example example = {.struct_size = sizeof example};
  EXPECT(bespoke_add_example(model, &example, NULL, NULL, NULL) == BESPOKE_DATA_ERROR);
  example.json = text("{\"tokens\": [1, 2, 3]}");
  EXPECT(bespoke_add_example(model, &example, NULL, NULL, NULL) == 0);
  const bespoke_example* nothing = NULL;
  EXPECT(bespoke_add_examples(model, NULL, 0, NULL, NULL, NULL) == 0);
  EXPECT(bespoke_add_examples(model, NULL, 1, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_add_examples(model, &nothing, 1, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_describe(model, NULL, NULL) == 0);
  EXPECT(bespoke_count_tokens(model, text("[1, 2]"), NULL, NULL) == 0);
  EXPECT(bespoke_count_tokens(model, text(NULL), NULL, NULL) == BESPOKE_DATA_ERROR);
  EXPECT(bespoke_trim(model, NULL) == 0);
  EXPECT(bespoke_correct(model, text(NULL), text(NULL), NULL, NULL, NULL) == BESPOKE_DATA_ERROR);
  EXPECT(bespoke_list_examples(model, text(NULL), 0, NULL, NULL) == 0);
  EXPECT(bespoke_forget_example(model, text(NULL), NULL, NULL, NULL) == BESPOKE_DATA_ERROR);
  EXPECT(bespoke_forget_example(model, text("nobody"), NULL, NULL, NULL) == 0);
  EXPECT(bespoke_list_examples(model, text("nobody"), 1, NULL, NULL) == BESPOKE_DATA_ERROR);
  EXPECT(bespoke_list_examples(model, text(NULL), -1, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_current_run(model, &given, NULL) == 0 && !strcmp(given, "null"));
  bespoke_free(given);
  EXPECT(bespoke_current_run(model, NULL, NULL) == 0);
  EXPECT(bespoke_rollback(model, NULL, NULL, NULL) == 0);
  EXPECT(bespoke_reset(model, NULL, NULL) == 0);
  EXPECT(bespoke_export_adapter(model, text(NULL), text("peft"), 1, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_export_adapter(model, text("/nowhere"), text(NULL), 1, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_import_adapter(model, text(NULL), 0, NULL, NULL, NULL) == BESPOKE_CONFIG_ERROR);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

/* Whether the ids in a list of examples are those of `wanted`, in this order. */
static int has_ids(const char* list, const char* const* wanted, size_t count) {
  size_t at = 0;
  for (const char* id = strstr(list, "{\"id\":\""); id; id = strstr(id + 1, "{\"id\":\""), at++) {
    const char* begin = id + strlen("{\"id\":\"");
    if (at >= count || strncmp(begin, wanted[at], strlen(wanted[at])) || begin[strlen(wanted[at])] != '"') return 0;
  }
  return at == count;
}

static void several_examples_are_added_together_or_not_at_all(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  int64_t before = 0, after = 0;
  EXPECT(bespoke_count_examples(model, &before, NULL) == 0);
  bespoke_example one = {.struct_size = sizeof one, .json = text("{\"tokens\": [5, 6, 7]}"), .id = text("one")};
  bespoke_example two = {.struct_size = sizeof two, .json = text("{\"tokens\": [8, 9]}"), .id = text("two")};
  bespoke_example wrong = {.struct_size = sizeof wrong, .json = text("{\"tokens\": \"none\"}"), .id = text("wrong")};
  const bespoke_example *with_a_wrong_one[] = {&one, &wrong}, *both[] = {&one, &two};
  bespoke_error* error = NULL;
  char* given = NULL;
  bespoke_status code = bespoke_add_examples(model, with_a_wrong_one, 2, NULL, &given, &error);
  EXPECT(code && !given && strstr(error->subject, "example 1 of the list"));
  EXPECT(is(error, code, "DataError"));
  EXPECT(bespoke_count_examples(model, &after, NULL) == 0 && after == before);
  EXPECT(bespoke_add_examples(model, both, 2, NULL, &given, NULL) == 0);
  EXPECT(has_ids(given, (const char*[]){"one", "two"}, 2));
  bespoke_free(given);
  EXPECT(bespoke_count_examples(model, &after, NULL) == 0 && after == before + 2);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void examples_are_listed_page_by_page(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  EXPECT(bespoke_reset(model, NULL, NULL) == 0);
  static const char* const ids[] = {"p", "q", "r"};
  for (int i = 0; i < 3; i++) {
    bespoke_example example = {.struct_size = sizeof example, .json = text("{\"tokens\": [5, 6, 7]}"), .id = text(ids[i])};
    EXPECT(bespoke_add_example(model, &example, NULL, NULL, NULL) == 0);
  }
  char* page = NULL;
  EXPECT(bespoke_list_examples(model, text("p"), 1, &page, NULL) == 0 && has_ids(page, ids + 1, 1));
  bespoke_free(page);
  EXPECT(bespoke_list_examples(model, text("p"), 0, &page, NULL) == 0 && has_ids(page, ids + 1, 2));
  bespoke_free(page);
  EXPECT(bespoke_list_examples(model, text("r"), 1, &page, NULL) == 0 && !strcmp(page, "[]"));
  bespoke_free(page);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void what_is_for_training_only_is_never_held_out(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_error* error = NULL;
  bespoke_example example = {.struct_size = sizeof example, .use = text("validation")};
  bespoke_status code = bespoke_add_example(model, &example, NULL, NULL, &error);
  EXPECT(is(error, code, "ConfigError"));
  example.use = text("train");
  char json[64], id[16];
  for (int number = 0; number < 20; number++) { /* of any twenty others two were held out at least */
    char* added = NULL;
    snprintf(json, sizeof json, "{\"tokens\": [1, 2, %d]}", number);
    snprintf(id, sizeof id, "only %d", number);
    example.json = text(json);
    example.id = text(id);
    EXPECT(bespoke_add_example(model, &example, NULL, &added, NULL) == 0 && strstr(added, "\"split\":\"train\""));
    bespoke_free(added);
  }
  for (int number = 0; number < 20; number++) {
    snprintf(id, sizeof id, "only %d", number);
    EXPECT(bespoke_forget_example(model, text(id), NULL, NULL, NULL) == 0);
  }
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

static void an_unfinished_run_is_gone_on_with_replaced_or_abandoned(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  bespoke_error* error = NULL;
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
  EXPECT(bespoke_abandon_run(model, NULL, &ended, NULL) == 0 && ended);
  EXPECT(bespoke_abandon_run(model, NULL, &ended, NULL) == 0 && !ended);
  training.settings = text("{\"batch_size\": 99}");
  code = bespoke_check_training(model, &training, &error);
  EXPECT(is(error, code, "ConfigError"));
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

/* What a thread of the app asks while another one trains. */
typedef struct {
  bespoke_model* model;
  int64_t examples;
  int asked;
} asker;

static int32_t ask_of_the_store(void* context, const bespoke_progress* progress) {
  asker* one = context;
  if (progress->phase != BESPOKE_PHASE_STEP || one->asked++) return 0;
  char* versions = NULL;
  EXPECT(bespoke_count_examples(one->model, &one->examples, NULL) == 0);
  EXPECT(bespoke_list_versions(one->model, &versions, NULL) == 0 && !strcmp(versions, "[]"));
  bespoke_free(versions);
  EXPECT(bespoke_check_training(one->model, NULL, NULL) == 0);
  EXPECT(bespoke_abandon_run(one->model, NULL, NULL, NULL) == BESPOKE_STATE_LOCKED);
  EXPECT(bespoke_rollback(one->model, NULL, NULL, NULL) == BESPOKE_STATE_LOCKED);
  EXPECT(bespoke_reset(one->model, NULL, NULL) == BESPOKE_STATE_LOCKED);
  bespoke_example example = {.struct_size = sizeof example, .json = text("{\"tokens\": [3, 2, 1]}"), .id = text("new")};
  EXPECT(bespoke_add_example(one->model, &example, NULL, NULL, NULL) == 0);
  char* forgotten = NULL;
  EXPECT(bespoke_forget_example(one->model, text("new"), NULL, &forgotten, NULL) == 0);
  EXPECT(strstr(forgotten, "\"example\":true") && strstr(forgotten, "\"run_stopped\":false"));
  bespoke_free(forgotten);
  return 0;
}

static void verbs_of_the_store_run_while_a_call_computes(void) {
  bespoke_options options = plain();
  bespoke_model* model = opened(&options);
  asker one = {.model = model};
  bespoke_training training = {.struct_size = sizeof training, .run_steps = 2};
  bespoke_call call = {.struct_size = sizeof call, .context = &one, .progress = ask_of_the_store};
  EXPECT(bespoke_train(model, &training, &call, NULL, NULL) == 0);
  EXPECT(one.asked && one.examples > 5);
  EXPECT(bespoke_close(model, -1, NULL) == 0);
}

const check checks_of_verbs[] = {
    CHECK(verbs_refuse_nulls),
    CHECK(several_examples_are_added_together_or_not_at_all),
    CHECK(examples_are_listed_page_by_page),
    CHECK(what_is_for_training_only_is_never_held_out),
    CHECK(an_unfinished_run_is_gone_on_with_replaced_or_abandoned),
    CHECK(verbs_of_the_store_run_while_a_call_computes),
    {0},
};
