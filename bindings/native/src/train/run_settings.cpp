// SPDX-License-Identifier: Apache-2.0
#include "train/run_settings.h"

#include <nlohmann/json.hpp>

#include "format/json_schema.h"
#include "format/number_text.h"
#include "state/stored_text.h"

namespace bespoke {

namespace {

constexpr const char* kSharedRound = "shared_round";
constexpr int64_t kLongestRun = 10'000'000;  // as of `Training.steps` in sdk/bespoke/config.py

void check_steps(const std::string& name, int64_t steps, const char* none) {
  if (steps < 0 || steps > kLongestRun)
    throw Error(Kind::Config, setting("train." + name), std::to_string(steps), "1 to " + std::to_string(kLongestRun) + ", or 0 for " + none,
                "Change " + setting(name));
}

Json overrides_of(const TrainRequest& request) {
  if (request.settings.empty()) return Json::object();
  if (request.settings.size() > kMostTrainingBytes)  // before it is read
    throw Error(Kind::Config, setting("train"), std::to_string(request.settings.size()) + " bytes of JSON",
                "at most " + std::to_string(kMostTrainingBytes), "Change the settings");
  Json overrides = Json::parse(request.settings, nullptr, false);
  if (!overrides.is_object())
    throw Error(Kind::Config, setting("train"), "settings that are no JSON object, which has no word for NaN and infinity",
                "an object of Training fields", "Change the settings");
  if (const auto steps = overrides.find("steps"); steps != overrides.end())  // it does not say whether the run or this call is meant
    throw Error(Kind::Config, setting("train.steps"), shown(*steps),
                setting("run_steps") + ", the length of a new run, or " + setting("most_steps") + ", the most steps of this call",
                "Give one of the two");
  return overrides;
}

Error damaged_run(const std::string& subject, const std::string& got, const std::string& expected) {
  return Error(Kind::State, subject, got, expected, "The state is damaged; abandon the run");
}

std::string listed(const std::vector<int64_t>& lengths) {  // as JSON has it
  std::string text;
  for (int64_t length : lengths) text += (text.empty() ? "" : ", ") + std::to_string(length);
  return "[" + text + "]";
}

// Batch size, lengths and accumulation or not are in the plans.
void refuse_what_is_compiled(const Training& built, const Training& asked, const std::string& subject = "train", Kind kind = Kind::Config,
                             const char* next_step = "Build a bundle with the other value") {
  const auto named = [&](const char* name) { return subject == "train" ? setting(subject + "." + name) : Wording(subject + "." + name); };
  const auto hold = [&](const char* name, const std::string& was, const std::string& now) {
    if (was != now) throw Error(kind, named(name), now, was + ", which the bundle was built for", next_step);
  };
  const auto norm = [](const Training& training) { return training.clip_norm ? repr_of(*training.clip_norm) : "null"; };
  hold("batch_size", std::to_string(built.batch_size), std::to_string(asked.batch_size));
  hold("sequence_lengths", listed(built.sequence_lengths), listed(asked.sequence_lengths));
  hold("clip_norm", norm(built), norm(asked));
  hold("packing", built.packing ? "true" : "false", asked.packing ? "true" : "false");
  if (built.accumulates() != asked.accumulates())
    throw Error(kind, named("accumulation"), std::to_string(asked.accumulation),
                std::to_string(built.accumulation) + ", or another number above 1 if that is", next_step);
}

// What a run has recorded was made with its options, and means something else under others. Bundles change under a run; runs that
// were started before options were kept have none to compare.
void refuse_other_options(const Run& run, const Json& settings, const Method& method) {
  const auto kept = settings.find("options");
  if (kept == settings.end() || kept->dump() == method.options) return;
  throw Error(Kind::Config, "run " + std::to_string(run.id), "options " + method.options + " of '" + method.name + "' in the bundle",
              kept->dump() + ", which the unfinished run was started with",
              "Open the bundle that it was started with, or " + to_call(Verb::abandon_run) + " and train again");
}

// Settings that an unfinished run was started with, of its method's bundle.
Training settings_of(const Run& run, const Method& method) {
  const Training& built = method.training;
  const std::string subject = "settings of run " + std::to_string(run.id);
  const Json settings = Json::parse(run.settings, nullptr, false);
  if (!settings.is_object() || !settings.contains("training"))
    throw damaged_run(subject, "no training settings", "those it was started with");
  const Training kept = training_from_json(settings["training"].dump(), subject);
  refuse_what_is_compiled(built, kept, subject, Kind::State, "The state is damaged; abandon the run");
  refuse_other_options(run, settings, method);
  if (run.seed < 0) throw damaged_run(subject + ".seed", std::to_string(run.seed), "0 or more");
  return kept;
}

void refuse_other_settings(const Run& run, const Training& kept, const Json& overrides, const TrainRequest& request) {
  const Training asked = overrides.empty() ? kept : override_training(kept, overrides.dump());
  const bool same_length = request.run_steps == 0 || request.run_steps == run.steps;
  if (training_json(asked) == training_json(kept) && same_length && (!request.seed || *request.seed == run.seed)) return;
  Wording names;
  const auto name = [&](const std::string& one) { names = names + (names.empty() ? "" : ", ") + setting(one); };
  for (const auto& entry : overrides.items()) name(entry.key());
  if (request.run_steps) name("run_steps");
  if (request.seed) name("seed");
  throw Error(Kind::Config, "run " + std::to_string(run.id), "other settings (" + names + ") for an unfinished run",
              "the settings it was started with", "Continue it without them, or " + to_call(Verb::abandon_run) + " and train again");
}

}  // namespace

std::string settings_json(const Method& method) {
  return "{\"options\":" + method.options + ",\"training\":" + training_json(method.training) + "}";
}

std::string settings_of_shared(const Method& method, int64_t round) {
  return "{\"options\":" + method.options + ",\"" + kSharedRound + "\":" + std::to_string(round) +
         ",\"training\":" + training_json(method.training) + "}";
}

bool judges_shared(const Run& run) {
  const Json settings = Json::parse(run.settings, nullptr, false);
  return settings.is_object() && settings.contains(kSharedRound);
}

ChosenRun choose_run(const Manifest& manifest, StateStore& store, const TrainRequest& request) {
  check_steps("run_steps", request.run_steps, "as many as the bundle's settings say");
  check_steps("most_steps", request.most_steps, "all that the run has left");
  if (request.seed && *request.seed < 0)
    throw Error(Kind::Config, setting("train.seed"), std::to_string(*request.seed), "0 or more", "Change " + setting("seed"));
  Json overrides = overrides_of(request);
  ChosenRun chosen;
  chosen.unfinished = store.current_run();
  const auto& run = chosen.unfinished;
  chosen.goes_on = run && !judges_shared(*run) && !request.new_run && (request.method.empty() || request.method == run->method);
  chosen.method = manifest.method(chosen.goes_on ? run->method : request.method);
  if (chosen.goes_on) {
    chosen.method.training = settings_of(*run, chosen.method);
    refuse_other_settings(*run, chosen.method.training, overrides, request);
    return chosen;
  }
  if (request.run_steps) overrides["steps"] = request.run_steps;
  const Training built = chosen.method.training;
  chosen.method.training = override_training(built, overrides.dump());
  refuse_what_is_compiled(built, chosen.method.training);
  return chosen;
}

}  // namespace bespoke
