// SPDX-License-Identifier: Apache-2.0
// How the calls of a model compute, one at a time: for the files that implement PersonalModel.
#pragma once

#include "exec/machine.h"
#include "model/answering.h"
#include "model/personal_model.h"

namespace bespoke {

constexpr double kHoweverLong = -1;  // a verb of the store waits for its turn, which comes in a moment

struct SaveAtEnd {
  ~SaveAtEnd() { hashes.save(); }  // where it cannot, the next process computes them again
  KnownHashes& hashes;
};

template <class Work>
auto PersonalModel::compute(CallSettings settings, Work work) {
  const ThisCall this_call(settings, true);
  const auto alone = computing_.turn(settings.wait_seconds);
  const SaveAtEnd what_was_hashed{*hashes_};
  if (!engine_) {
    engine_ = make_engine_();
    if (engine_->cache.empty()) engine_->cache = packed_folder();
  }
  if (!computing_store_) computing_store_ = open_store();
  control_.begin(std::move(settings));
  return work();
}

template <class Work>
std::string PersonalModel::compute_by_method(CallSettings settings, Work work) {
  return compute(std::move(settings), [&] {
    answering_.reset();  // its memory is wanted; sessions have their words
    release_free_memory();
    count_from_here();
    Personal personal{*bundle_, *computing_store_, control_,
                      [&](const Method& method, MemoryGuard& guard, const std::string& scratch_path) {
                        return std::make_unique<Machine>(*bundle_, method, *engine_, guard, control_, scratch_path);
                      },
                      [&](const PlanRecord& plan, MemoryGuard& guard) {
                        return std::make_unique<GateAnswers>(*bundle_, plan, *engine_, guard, control_);
                      }};
    return work(personal);
  });
}

}  // namespace bespoke
