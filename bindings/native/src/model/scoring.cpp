// SPDX-License-Identifier: Apache-2.0
#include "model/scoring.h"

#include "exec/fitting_plans.h"
#include "format/json.h"
#include "model/answering.h"
#include "model/records_json.h"

namespace bespoke {

namespace {

constexpr size_t kMostTextBytes = size_t{16} << 20, kMostTextLevels = 3, kMostTexts = 10'000'000;

OwnedJson listed(const std::string& json, const char* what) {
  const JsonRules rules = {what, Kind::Data, "Give a list of texts", kMostTextBytes, kMostTextLevels, kMostTexts};
  OwnedJson list = parse_json(bytes_of(json), rules);
  if (!list->is_array() || list->empty())
    throw Error(Kind::Data, what, list->is_array() ? "an empty list" : kind_of(*list), "a list of at least one text", "Give one");
  return list;
}

// `what` names each of them in errors: "labels[3]".
std::vector<Candidate> candidates_of(PersonalModel& model, const std::string& prompt, const Json& answers, const std::string& what) {
  plan_for_answers(model.manifest(), Limits());
  const ExampleEncoder& encoder = model.text().encoder();
  const Prompt asked = model.text().read_prompt(prompt);
  const auto context = static_cast<size_t>(model.manifest().context_length);
  std::vector<Candidate> candidates;
  for (const Json& answer : answers) {
    const std::string subject = what + "[" + std::to_string(candidates.size()) + "]";
    const AnsweredPrompt both = encoder.answered(asked, answer, subject);
    const size_t length = both.tokens.size() - both.begin;
    if (both.begin == 0 || length == 0 || both.tokens.size() > context)
      throw Error(
          Kind::Generation, subject, std::to_string(both.begin) + " tokens of the prompt and " + std::to_string(length) + " of the answer",
          "at least one of each, and together at most the context of " + std::to_string(context), "Shorten the prompt, or give more of it");
    candidates.push_back({{both.tokens.begin(), both.tokens.end()}, both.begin});
  }
  return candidates;
}

// `judge` by the adapter that answers now.
template <class Judge>
std::string judged(PersonalModel& model, CallSettings settings, Judge judge) {
  std::string found;
  model.answer(std::move(settings), [&](Answering& answering) {
    std::optional<int64_t> version;
    found = judge([&](const std::vector<int64_t>& tokens) { return answering.next_logits(tokens, version); });
    answering.end_answer();
  });
  return found;
}

}  // namespace

std::string score(PersonalModel& model, const std::string& prompt, const std::string& answers, CallSettings settings) {
  const OwnedJson list = listed(answers, "answers");
  const std::vector<Candidate> candidates = candidates_of(model, prompt, *list, "answers");
  return judged(model, std::move(settings), [&](const NextLogits& next_logits) {
    const std::vector<double> found = log_probabilities(candidates, next_logits);
    std::vector<Score> scores;
    for (size_t i = 0; i < found.size(); i++)
      scores.push_back({found[i], static_cast<int64_t>(candidates[i].tokens.size() - candidates[i].begin)});
    return record_json(scores);
  });
}

std::string classify(PersonalModel& model, const std::string& prompt, const std::string& labels, CallSettings settings) {
  const OwnedJson list = listed(labels, "labels");
  for (const Json& label : *list)
    if (!label.is_string()) throw Error(Kind::Data, setting("labels"), kind_of(label), "texts", "Give each as one string");
  const std::vector<Candidate> candidates = candidates_of(model, prompt, *list, "labels");
  return judged(model, std::move(settings), [&](const NextLogits& next_logits) {
    const Likeliest found = likeliest(candidates, next_logits);
    return record_json(Classification{(*list)[found.candidate].get<std::string>(), found.log_probability});
  });
}

}  // namespace bespoke
