// SPDX-License-Identifier: Apache-2.0
#include "api/open_model.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "format/number_text.h"

namespace bespoke {

namespace {

constexpr double kLongestWait = 1e9;  // seconds: a moment that the clock can hold

thread_local OpenModel::Call* innermost = nullptr;  // of this thread

Error closed() { return Error(Kind::State, "the model", "a handle that was closed", "one that is open", "Open the model again"); }

}  // namespace

OpenModel::Call::Call(std::shared_ptr<OpenModel> model) : model_(std::move(model)), outer_(innermost) {
  model_->check_process();
  const MutexLock held(model_->mutex_);
  if (model_->phase_ != Phase::open) throw closed();
  if (model_->closing_)
    throw Error(Kind::Busy, "the model", "a call while it is being closed", "a model that stays open", "Wait until it is closed");
  model_->running_.insert(this);
  innermost = this;
}

OpenModel::Call::~Call() {
  innermost = outer_;
  if (!model_->process_.is_this()) return;  // a callback has forked, and its fork unwinds
  const MutexLock held(model_->mutex_);
  model_->running_.erase(this);
  model_->ended_.notify_all();
  if (model_->phase_ == Phase::released && model_->can_go()) model_->free();
}

void OpenModel::interrupt() {
  check_process();
  const MutexLock held(mutex_);
  for (Call* call : running_) call->interrupted_ = true;
}

void OpenModel::close(double seconds) {
  if (seconds != seconds)
    throw Error(Kind::Config, "seconds", repr_of(seconds), "how long to wait, or less than 0 for as long as it takes", "Give a number");
  interrupt();
  MutexLock held(mutex_);
  if (is_within())
    throw Error(Kind::Busy, "the model", "its end from within one of its calls", "calls that have ended",
                "Return from the callback, which ends the call, and close the model then");
  closing_++;
  const auto is_over = [this]() REQUIRES(mutex_) { return can_go() || phase_ == Phase::closed; };
  if (seconds < 0)
    ended_.wait(held.for_condition(), is_over);
  else
    ended_.wait_for(held.for_condition(), std::chrono::duration<double>(std::min(seconds, kLongestWait)), is_over);
  closing_--;
  if (phase_ != Phase::open) throw closed();  // by another thread
  if (!running_.empty())
    throw Error(Kind::Busy, "the model", "a call that still runs after " + repr_of(seconds) + " s", "calls that have ended",
                "Close it again later: it stays open");
  free();
}

void OpenModel::release() {
  const MutexLock held(mutex_);
  if (phase_ != Phase::open) return;
  phase_ = Phase::released;
  for (Call* call : running_) call->interrupted_ = true;
  if (can_go()) free();
}

void OpenModel::check_process() const {
  if (process_.is_this()) return;
  throw Error(
      Kind::State, "the model", "a handle of process " + std::to_string(process_.number()) + " in its fork " + std::to_string(getpid()),
      "a handle that this process has opened", "Open the model after the fork, or start the process without one (in Python: spawn)");
}

bool OpenModel::still_ends() const {
  const MutexLock held(mutex_);
  return phase_ == Phase::released || phase_ == Phase::going;
}

bool OpenModel::is_within() const {
  for (const Call* call = innermost; call; call = call->outer_)
    if (call->model_.get() == this) return true;
  return false;
}

// Whoever waits hears of it when the state can be opened again.
void OpenModel::free() {
  phase_ = Phase::going;
  mutex_.unlock();
  model_.reset();
  mutex_.lock();
  phase_ = Phase::closed;
  ended_.notify_all();
}

}  // namespace bespoke
