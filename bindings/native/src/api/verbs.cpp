// SPDX-License-Identifier: Apache-2.0
// The verbs of the store in the C API.
#include "api/errors.h"
#include "api/handles.h"

using namespace bespoke;

namespace {

template <class Number>
void set(Number* place, Number value) {
  if (place) *place = value;
}

std::string adapter_folder(bespoke_text given) {
  const std::string folder = path_of(given, "folder");
  if (folder.empty()) throw Error(Kind::Config, "folder", "an empty text", "the path of an adapter's folder", "Give one");
  return folder;
}

GivenExample example_of(const bespoke_example* given) {
  need(given, "example", "one to add");
  const auto example = taken(given, BESPOKE_FIRST(bespoke_example, use), "bespoke_example");
  const std::string use = text_of(example.use, "bespoke_example.use");
  if (!use.empty() && use != "train")
    throw Error(Kind::Config, "bespoke_example.use", in_quotes(use), "'train', or an empty text", "Leave it out");
  std::string id = text_of(example.id, "bespoke_example.id");
  return {text_of(example.json, "bespoke_example.json"), id.empty() ? std::nullopt : std::optional(std::move(id)),
          use.empty() ? Use::any : Use::train};
}

}  // namespace

bespoke_status bespoke_add_example(bespoke_model* model, const bespoke_example* example, const bespoke_call* call, char** added,
                                   bespoke_error** error) {
  return giving(model, call, added, error, [&](PersonalModel& model) { return model.add_example(example_of(example)); });
}

bespoke_status bespoke_add_examples(bespoke_model* model, const bespoke_example* const* examples, size_t count, const bespoke_call* call,
                                    char** added, bespoke_error** error) {
  return giving(model, call, added, error, [&](PersonalModel& model) {
    if (count) need(examples, "examples", "those to add");
    std::vector<GivenExample> given;
    for (size_t i = 0; i < count; i++) given.push_back(example_of(examples[i]));
    return model.add_examples(std::move(given));
  });
}

bespoke_status bespoke_correct(bespoke_model* model, bespoke_text answer, bespoke_text better, const bespoke_call* call, char** added,
                               bespoke_error** error) {
  return giving(model, call, added, error,
                [&](PersonalModel& model) { return model.correct(text_of(answer, "answer"), text_of(better, "better")); });
}

bespoke_status bespoke_list_examples(bespoke_model* model, bespoke_text after, int64_t most, char** examples, bespoke_error** error) {
  return giving(model, nullptr, examples, error, [&](PersonalModel& model) { return model.list_examples(text_of(after, "after"), most); });
}

bespoke_status bespoke_forget_example(bespoke_model* model, bespoke_text id, const bespoke_call* call, char** forgotten,
                                      bespoke_error** error) {
  return giving(model, call, forgotten, error, [&](PersonalModel& model) { return model.forget_example(text_of(id, "id")); });
}

bespoke_status bespoke_planned_training(bespoke_model* model, char** planned, bespoke_error** error) {
  return giving(model, nullptr, planned, error, [](PersonalModel& model) { return model.planned_training(); });
}

bespoke_status bespoke_current_run(bespoke_model* model, char** run, bespoke_error** error) {
  return giving(model, nullptr, run, error, [](PersonalModel& model) { return model.current_run(); });
}

bespoke_status bespoke_count_examples(bespoke_model* model, int64_t* count, bespoke_error** error) {
  set<int64_t>(count, 0);
  return stored(model, nullptr, error, [&](PersonalModel& model) { set(count, model.count_examples()); });
}

bespoke_status bespoke_check_training(bespoke_model* model, const bespoke_training* training, bespoke_error** error) {
  return stored(model, nullptr, error, [&](PersonalModel& model) { model.check_training(request_of(training)); });
}

bespoke_status bespoke_abandon_run(bespoke_model* model, const bespoke_call* call, int32_t* ended, bespoke_error** error) {
  set(ended, 0);
  return stored(model, call, error, [&](PersonalModel& model) { set<int32_t>(ended, model.abandon_run()); });
}

bespoke_status bespoke_list_versions(bespoke_model* model, char** versions, bespoke_error** error) {
  return giving(model, nullptr, versions, error, [](PersonalModel& model) { return model.list_versions(); });
}

bespoke_status bespoke_rollback(bespoke_model* model, const bespoke_call* call, char** version, bespoke_error** error) {
  return giving(model, call, version, error, [](PersonalModel& model) { return model.rollback(); });
}

bespoke_status bespoke_reset(bespoke_model* model, const bespoke_call* call, bespoke_error** error) {
  return stored(model, call, error, [](PersonalModel& model) { model.reset(); });
}

bespoke_status bespoke_export_adapter(bespoke_model* model, bespoke_text folder, bespoke_text format, int32_t base,
                                      const bespoke_call* call, bespoke_error** error) {
  return stored(model, call, error, [&](PersonalModel& model) {
    const std::string name = text_of(format, "format");
    const std::optional<AdapterFormat> known = value_named<AdapterFormat>(name);
    if (!known) throw Error(Kind::Config, setting("format"), in_quotes(name), "'peft', 'mlx' or 'gguf'", "Name one of these");
    model.export_adapter(adapter_folder(folder), *known, base != 0);
  });
}

bespoke_status bespoke_import_adapter(bespoke_model* model, bespoke_text folder, int32_t trust_base, const bespoke_call* call,
                                      int64_t* version, bespoke_error** error) {
  set<int64_t>(version, 0);
  return stored(model, call, error,
                [&](PersonalModel& model) { set(version, model.import_adapter(adapter_folder(folder), trust_base != 0)); });
}

bespoke_status bespoke_describe(bespoke_model* model, char** description, bespoke_error** error) {
  return giving(model, nullptr, description, error, [](PersonalModel& model) { return model.describe(); });
}

bespoke_status bespoke_count_tokens(bespoke_model* model, bespoke_text prompt, int64_t* tokens, bespoke_error** error) {
  set<int64_t>(tokens, 0);
  return stored(model, nullptr, error, [&](PersonalModel& model) { set(tokens, model.count_tokens(text_of(prompt, "prompt"))); });
}

bespoke_status bespoke_trim(bespoke_model* model, bespoke_error** error) {
  return stored(model, nullptr, error, [](PersonalModel& model) { model.trim(); });
}
