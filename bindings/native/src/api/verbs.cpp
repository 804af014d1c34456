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

std::string folder_of(bespoke_text given) {
  const std::string folder = path_of(given, "folder");
  if (folder.empty()) throw Error(Kind::Config, "folder", "an empty text", "the path of an adapter's folder", "Give one");
  return folder;
}

}  // namespace

bespoke_status bespoke_add_example(bespoke_model* model, const bespoke_example* given, char** added, bespoke_error** error) {
  return stored(model, added, error, [&](PersonalModel& model) {
    need(given, "example", "one to add");
    const auto example = taken(given, BESPOKE_FIRST(bespoke_example, use), "bespoke_example");
    const std::string use = text_of(example.use, "bespoke_example.use");
    if (!use.empty() && use != "train")
      throw Error(Kind::Config, "bespoke_example.use", in_quotes(use), "'train', or an empty text", "Leave it out");
    std::string id = text_of(example.id, "bespoke_example.id");
    return model.add_example(text_of(example.json, "bespoke_example.json"), id.empty() ? std::nullopt : std::optional(std::move(id)),
                             use.empty() ? Use::any : Use::train);
  });
}

bespoke_status bespoke_correct(bespoke_model* model, bespoke_text answer, bespoke_text better, char** added, bespoke_error** error) {
  return stored(model, added, error, [&](PersonalModel& model) { return model.correct(text_of(answer, "answer"), text_of(better, "better")); });
}

bespoke_status bespoke_list_examples(bespoke_model* model, char** examples, bespoke_error** error) {
  return stored(model, examples, error, [](PersonalModel& model) { return model.list_examples(); });
}

bespoke_status bespoke_forget_example(bespoke_model* model, bespoke_text id, char** forgotten, bespoke_error** error) {
  return stored(model, forgotten, error, [&](PersonalModel& model) { return model.forget_example(text_of(id, "id")); });
}

bespoke_status bespoke_planned_training(bespoke_model* model, char** planned, bespoke_error** error) {
  return stored(model, planned, error, [](PersonalModel& model) { return model.planned_training(); });
}

bespoke_status bespoke_current_run(bespoke_model* model, char** run, bespoke_error** error) {
  return stored(model, run, error, [](PersonalModel& model) { return model.current_run(); });
}

bespoke_status bespoke_count_examples(bespoke_model* model, int64_t* count, bespoke_error** error) {
  set<int64_t>(count, 0);
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    set(count, call.model().count_examples());
  });
}

bespoke_status bespoke_check_training(bespoke_model* model, const bespoke_training* training, bespoke_error** error) {
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    call.model().check_training(request_of(training));
  });
}

bespoke_status bespoke_abandon_run(bespoke_model* model, int32_t* ended, bespoke_error** error) {
  set(ended, 0);
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    set<int32_t>(ended, call.model().abandon_run());
  });
}

bespoke_status bespoke_list_versions(bespoke_model* model, char** versions, bespoke_error** error) {
  return stored(model, versions, error, [](PersonalModel& model) { return model.list_versions(); });
}

bespoke_status bespoke_rollback(bespoke_model* model, char** version, bespoke_error** error) {
  return stored(model, version, error, [](PersonalModel& model) { return model.rollback(); });
}

bespoke_status bespoke_reset(bespoke_model* model, bespoke_error** error) {
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    call.model().reset();
  });
}

bespoke_status bespoke_export_adapter(bespoke_model* model, bespoke_text folder, bespoke_text format, int32_t base, bespoke_error** error) {
  return guarded(error, [&] {
    const std::string name = text_of(format, "format");
    const std::optional<AdapterFormat> known = value_named<AdapterFormat>(name);
    if (!known) throw Error(Kind::Config, setting("format"), in_quotes(name), "'peft', 'mlx' or 'gguf'", "Name one of these");
    const OpenModel::Call call(found(model));
    call.model().export_adapter(folder_of(folder), *known, base != 0);
  });
}

bespoke_status bespoke_import_adapter(bespoke_model* model, bespoke_text folder, int32_t trust_base, int64_t* version, bespoke_error** error) {
  set<int64_t>(version, 0);
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    set(version, call.model().import_adapter(folder_of(folder), trust_base != 0));
  });
}
