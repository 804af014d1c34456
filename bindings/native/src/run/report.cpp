// SPDX-License-Identifier: Apache-2.0
#include "run/report.h"

#include <nlohmann/json.hpp>

namespace bespoke {

using Ordered = nlohmann::ordered_json;  // fields in the order of report.h

namespace {

Ordered number(std::optional<double> value) { return value ? Ordered(*value) : Ordered(); }

Ordered name_of(JudgedOn judged_on) {
  switch (judged_on) {
    case JudgedOn::validation: return "validation";
    case JudgedOn::train: return "train";
    case JudgedOn::nothing: break;
  }
  return nullptr;
}

Ordered column(const std::vector<Footprint>& peaks, int64_t Footprint::*member) {
  Ordered values = Ordered::array();
  for (const Footprint& peak : peaks) values.push_back(peak.*member);
  return values;
}

}  // namespace

std::string report_json(const TrainReport& report, const Progress& progress) {
  Ordered peaks = Ordered::array();
  for (const Footprint& peak : progress.step_peaks) peaks.push_back(peak.total());
  const Judgement& judgement = report.judgement;
  return Ordered{
      {"method", report.method},
      {"run", report.run},
      {"steps", progress.steps},
      {"total_steps", report.total_steps},
      {"tokens", progress.tokens},
      {"losses", progress.losses},
      {"rejected_steps", progress.rejected},
      {"validation_loss_before", number(judgement.before)},
      {"validation_loss", number(judgement.after)},
      {"general_loss_before", number(judgement.general_before)},
      {"general_loss", number(judgement.general_after)},
      {"judged_on", name_of(judgement.judged_on)},
      {"judged_tokens", judgement.tokens},
      {"judged_of_tokens", judgement.of_tokens},
      {"accepted", judgement.accepted},
      {"stopped_because", name_of(report.stopped_because)},
      {"memory",
       {{"idle_bytes", 0},
        {"estimate_bytes", report.estimate_bytes},
        {"peak_bytes", report.peak_bytes},
        {"limit_bytes", report.limit_bytes ? Ordered(*report.limit_bytes) : Ordered()},
        {"mapped_dirty_bytes", report.mapped_dirty_bytes},
        {"file_bytes", report.file_bytes}}},
      {"step_peak_bytes", peaks},
      {"bytes_written", report.storage.written},
      {"seconds", report.seconds},
      {"peak_bytes", report.peak_bytes},
      {"runtime", "core"},
      {"bytes_read", report.storage.read},
      {"step_seconds", progress.step_seconds},
      {"seconds_by_stage", report.seconds_by_stage},
      {"longest_instruction_seconds", report.longest_call_seconds},
      {"longest_commit_seconds", progress.longest_commit_seconds},
      {"memory_over_time", peaks},
      {"memory_columns_over_time",
       {{"anonymous", column(progress.step_peaks, &Footprint::anonymous)},
        {"shmem", column(progress.step_peaks, &Footprint::shmem)},
        {"swap", column(progress.step_peaks, &Footprint::swap)},
        {"file", column(progress.step_peaks, &Footprint::file)}}},
  }.dump();
}

std::string report_json(const Evaluation& evaluation) {
  return Ordered{{"loss", evaluation.loss},     {"perplexity", evaluation.perplexity}, {"accuracy", evaluation.accuracy},
              {"tokens", evaluation.tokens}, {"examples", evaluation.examples},     {"runtime", "core"}}.dump();
}

}  // namespace bespoke
