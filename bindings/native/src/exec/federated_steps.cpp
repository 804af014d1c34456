// SPDX-License-Identifier: Apache-2.0
// The steps of federated learning: what a machine measures along a direction of a round, and the step along it.
#include "exec/machine.h"

namespace bespoke {

namespace {

Bindings along(Bindings with, const Direction& direction) {
  with.seed = direction.seed, with.step = direction.round;
  with.scalars["direction"] = static_cast<double>(direction.number);
  with.scalars["coefficient"] = direction.c;
  with.scalars["guidance_coefficient"] = direction.c_guidance;
  with.received = direction.received;
  return with;
}

}  // namespace

bool Machine::projects() const { return plans_.front().has[static_cast<int>(Section::federated_project)]; }

std::vector<float> Machine::measure(const std::vector<Batch>& batches, const Direction& direction) {
  int64_t tokens = 0;
  for (const Batch& batch : batches) tokens += batch.tokens_trained;
  std::vector<float> sent;
  if (projects()) buffers_->begin_step();
  for (const Batch& batch : batches) {
    Bindings with = along(bindings(&batch, scalars(0, direction.round, tokens)), direction);
    programs_.use_threads(choices_.at(batch.sequence_length).threads());
    const Outcome outcome = interpreters_.at(batch.sequence_length).run(Section::federated_measure, with);
    sent.resize(outcome.sent.size());
    for (size_t i = 0; i < sent.size(); i++) sent[i] += outcome.sent[i];  // losses divide by the tokens of all batches
  }
  return sent;
}

std::vector<float> Machine::project(const Direction& direction) {
  return interpreters_.begin()->second.run(Section::federated_project, along(bindings(nullptr, {}), direction)).sent;
}

void Machine::step_along(const Direction& direction) {
  interpreters_.begin()->second.run(Section::federated_apply, along(bindings(nullptr, {}), direction));
  flip();
}

}  // namespace bespoke
