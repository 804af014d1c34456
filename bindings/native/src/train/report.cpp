// SPDX-License-Identifier: Apache-2.0
#include "train/report.h"

#include "format/json.h"

namespace bespoke {

using Ordered = nlohmann::ordered_json;

namespace {

Ordered column(const std::vector<Footprint>& peaks, int64_t Footprint::* member) {
  Ordered values = Ordered::array();
  for (const Footprint& peak : peaks) values.push_back(peak.*member);
  return values;
}

Ordered document_of(const MemoryReport& memory) {
  Ordered document;
#define BESPOKE_FIELD(name) document[#name] = json_of<Ordered>(memory.name);
#include "../../../schema/memory_report.inc"
#undef BESPOKE_FIELD
  return document;
}

}  // namespace

std::string report_json(const TrainReport& report, const Trained& trained) {
  const Judgement& judgement = report.judgement;
  const std::vector<Footprint>& peaks = trained.step_peaks;
  // A local for each field of the SDK's report.
  const auto& method = report.method;
  const auto& trains = report.trains;
  const auto& run = report.run;
  const auto& steps = trained.steps;
  const auto& total_steps = report.total_steps;
  const auto& tokens = trained.tokens;
  const auto& losses = trained.losses;
  const auto& rejected_steps = trained.rejected;
  const auto& validation_loss_before = judgement.before;
  const auto& validation_loss = judgement.after;
  const auto& general_loss_before = judgement.general_before;
  const auto& general_loss = judgement.general_after;
  const auto& judged_on = judgement.judged_on;
  const auto& judged_tokens = judgement.tokens;
  const auto& judged_of_tokens = judgement.of_tokens;
  const auto& judged_examples = judgement.examples;
  const auto& least_gain = judgement.least_gain;
  const auto& useful_gain = judgement.useful_gain;
  Ordered judgements = Ordered::array();
  for (const JudgedStep& one : report.judgements) judgements.push_back({{"step", one.step}, {"loss", one.loss}});
  const auto& best_step = report.best_step;
  const auto& accepted = judgement.accepted;
  std::optional<double> gain;
  if (judgement.before && judgement.after) gain = *judgement.before - *judgement.after;
  const auto& refused_because = judgement.refused_because;
  const auto& longest_instruction_seconds = report.longest_call_seconds;
  const auto& longest_commit_seconds = trained.longest_commit_seconds;
  const auto& behaviour_loss_base = judgement.behaviour_base;
  const auto& behaviour_loss = judgement.behaviour;
  const auto& behaviour_tokens = judgement.behaviour_tokens;
  const auto& adapter_scale = judgement.scale;
  const auto& checked_answers = judgement.answers.count;
  const auto& answer_tokens = judgement.answers.tokens;
  const auto& base_answer_tokens = judgement.answers.base_tokens;
  const auto& first_tokens_kept = judgement.answers.first_tokens_kept;
  const auto& answers_unchecked_because = judgement.answers.unchecked_because;
  const auto& stopped_because = report.stopped_because;
  const auto& peak_bytes = report.memory.peak_bytes;
  const Ordered memory = document_of(report.memory);
  Ordered step_peak_bytes = Ordered::array();
  for (const Footprint& peak : peaks) step_peak_bytes.push_back(peak.total());
  const auto& bytes_written = report.storage.written;
  const auto& run_bytes_written = report.run_bytes_written;
  const auto& bytes_read = report.storage.read;
  const auto& seconds = report.seconds;
  const char* const runtime = "core";
  const auto& step_seconds = trained.step_seconds;
  Ordered seconds_by_stage;
  for (const char* stage : kStageNames) {  // all of them, also where no step was taken
    const auto spent = report.seconds_by_stage.find(stage);
    seconds_by_stage[stage] = spent == report.seconds_by_stage.end() ? 0.0 : spent->second;
  }
  const Ordered memory_columns = {{"anonymous", column(peaks, &Footprint::anonymous)},
                                  {"shmem", column(peaks, &Footprint::shmem)},
                                  {"swap", column(peaks, &Footprint::swap)},
                                  {"file", column(peaks, &Footprint::file)}};
  Ordered document;
#define BESPOKE_FIELD(name) document[#name] = json_of<Ordered>(name);
#include "../../../schema/train_report.inc"
#undef BESPOKE_FIELD
  return document.dump();
}

std::string report_json(const Evaluation& evaluation) {
  Ordered document;
#define BESPOKE_FIELD(name) document[#name] = json_of<Ordered>(evaluation.name);
#include "../../../schema/evaluation.inc"
#undef BESPOKE_FIELD
  return document.dump();
}

}  // namespace bespoke
