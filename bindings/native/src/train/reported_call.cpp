// SPDX-License-Identifier: Apache-2.0
#include "train/reported_call.h"

#include <algorithm>

namespace bespoke {

ReportedCall::ReportedCall() : began_(std::chrono::steady_clock::now()), storage_(storage_bytes()) {}

TrainReport ReportedCall::begun(const Personal& personal, const Run& run, const Fitting& fitting) const {
  TrainReport report;
  report.method = run.method;
  report.trains = personal.bundle.manifest().lora_trains_a ? "both" : "B";
  report.run = run.id;
  report.total_steps = run.step;
  report.memory.estimate_bytes = static_cast<int64_t>(peak_of(fitting.method.plans));
  const std::optional<uint64_t> planned_for = fitting.memory_bytes ? fitting.memory_bytes : personal.bundle.manifest().memory_bytes;
  if (planned_for) report.memory.planned_for_bytes = static_cast<int64_t>(*planned_for);
  return report;
}

std::string ReportedCall::finished(TrainReport& report, const Trained& trained, Personal& personal, MemoryGuard& guard,
                                   const Steps* machine) const {
  if (machine) report.longest_call_seconds = machine->longest_call_seconds();
  guard.observe();
  if (const int64_t limit = personal.control.limits().memory_bytes(); limit >= 0) report.memory.limit_bytes = limit;
  report.memory.idle_bytes = personal.control.limits().idle_bytes;
  report.memory.peak_bytes = guard.peak();
  report.memory.mapped_dirty_bytes = dirty_mapped_bytes();
  report.memory.file_bytes = guard.columns().read().file;
  const Storage now = storage_bytes();
  report.storage = {now.read - storage_.read, now.written - storage_.written};
  report.run_bytes_written = personal.store.bytes_written(report.run);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  return report_json(report, trained);
}

void refuse_what_cannot_fit(const Fitting& fitting, const Limits& limits, MemoryGuard& guard) {
  const auto estimate = static_cast<int64_t>(peak_of(fitting.method.plans));
  // The estimate is of a process of the model's own, which holds some of it already. What malloc held of earlier work was given back.
  guard.ask(std::max<int64_t>(0, limits.idle_bytes + estimate - footprint_now()),
            "Training with '" + fitting.method.name + "' (estimated peak " + megabytes(estimate) + ")");
}

}  // namespace bespoke
