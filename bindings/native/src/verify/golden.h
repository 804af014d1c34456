// SPDX-License-Identifier: Apache-2.0
// A device proves itself: its plans, graphs and weights against the bundle's golden vectors (sdk/bespoke/golden/prover.py).
//
// Every section of every plan is run, and every golden text is tokenized. Texts of a bundle of format 1.0, whose tokenizer the core
// cannot read, are counted as skipped.
#pragma once

#include <functional>

#include "exec/machine.h"
#include "verify/golden_document.h"
#include "train/training.h"

namespace bespoke {

using MakeAnswering = std::function<std::unique_ptr<Machine>(const PlanRecord& plan, MemoryGuard& guard)>;

struct Check {  // something that held: `compared` numbers or files, the worst of them at this share of its tolerance
  std::string what;
  std::optional<std::string> method;
  std::optional<int64_t> sequence_length;
  int64_t compared;
  double worst;
};

// Hashes of all files, then the golden vectors on this machine; `on_check` is told each check as it passes. The report, as JSON.
// BundleError for a file that is damaged, GoldenMismatch naming method, sequence length and tensor for a number that is not what the
// reference has, Abandoned where a stop was asked for.
std::string verify(Bundle& bundle, const MakeMachine& make_machine, const MakeAnswering& make_answering,
                   const std::function<void(const Check&)>& on_check = {});

}  // namespace bespoke
