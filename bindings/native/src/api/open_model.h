// SPDX-License-Identifier: Apache-2.0
// A model behind its handle, and the calls that run on it. Closing ends the calls, from any thread and also from within one of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <set>
#include <string>

#include "locks.h"
#include "model/personal_model.h"
#include "platform/fork.h"

namespace bespoke {

class OpenModel {
 public:
  // A call on a model, which stays open until the call ends. StateError after the model was closed and in a fork; Busy while it closes.
  class Call {
   public:
    explicit Call(std::shared_ptr<OpenModel> model);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    PersonalModel& model() const { return *model_->model_; }
    const std::atomic<bool>& interrupted() const { return interrupted_; }

   private:
    friend class OpenModel;
    const std::shared_ptr<OpenModel> model_;
    std::atomic<bool> interrupted_{false};
    Call* const outer_;  // of this thread: the one whose callback makes this one
  };

  OpenModel(std::unique_ptr<PersonalModel> model, std::string state) : model_(std::move(model)), state_(std::move(state)) {}

  void interrupt();  // the calls that run end at their next instruction
  // Interrupts the calls, waits for them and frees the model. Busy, and the model stays open, where they still run after `seconds`
  // (negative: however long it takes) or where this thread is within one of them.
  void close(double seconds);
  void release();  // the same without waiting: the last call frees the model where it ends

  void check_process() const;
  bool is_of_this_process() const { return process_.is_this(); }
  const std::string& state() const { return state_; }
  bool still_ends() const;  // released, and a call still runs

 private:
  enum class Phase { open, released, going, closed };

  bool is_within() const;
  bool can_go() const REQUIRES(mutex_) { return running_.empty() && (phase_ == Phase::open || phase_ == Phase::released); }
  void free() REQUIRES(mutex_);

  std::unique_ptr<PersonalModel> model_;  // null once it is closed
  const std::string state_;
  const OwnProcess process_;
  mutable Mutex mutex_;
  std::condition_variable ended_;
  std::set<Call*> running_ GUARDED_BY(mutex_);
  int closing_ GUARDED_BY(mutex_) = 0;  // threads that wait to close it
  Phase phase_ GUARDED_BY(mutex_) = Phase::open;
};

}  // namespace bespoke
