// SPDX-License-Identifier: Apache-2.0
// One bundle and one user's state, opened once: what a handle of the C API stands for. Its functions may be called from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bespoke.h"
#include "exec/control.h"
#include "format/bundle/bundle.h"
#include "format/bundle/source.h"
#include "state/store.h"
#include "train/training.h"

namespace bespoke {

struct CallSettings {  // of one call that computes
  const std::atomic<bool>* cancel = nullptr;
  std::optional<double> deadline_seconds;
  Control::Listener listener;
};

class Engine {  // the table of an engine, and its end
 public:
  Engine() = default;
  explicit Engine(const bespoke_engine& table) : table_(table), target_(table.target ? table.target : "") { table_.target = target_.c_str(); }
  Engine(const Engine&) = delete;
  ~Engine() {
    if (table_.destroy) table_.destroy(table_.context);
  }
  const bespoke_engine& table() const { return table_; }

 private:
  bespoke_engine table_{};
  std::string target_;
};

class PersonalModel {
 public:
  // `memory_mb` as in bespoke_options. ConfigError where the state lies in the bundle or holds it.
  PersonalModel(const BundlePlace& bundle, const std::string& state, const Trust& trust, std::unique_ptr<Engine> engine, double memory_mb);
  ~PersonalModel();  // waits for the call that computes

  // Each throws Busy while another one runs.
  std::string train(const TrainRequest& request, CallSettings settings);
  std::string evaluate(const std::string& split, CallSettings settings);
  std::string verify(CallSettings settings);

  void set_limit(double memory_mb);
  void set_pace(double share);

  const char* authenticated() const { return authenticated_; }

 private:
  template <class Work>
  std::string compute(CallSettings settings, Work work);

  std::unique_ptr<Engine> engine_;  // goes last
  std::unique_ptr<Bundle> bundle_;
  std::unique_ptr<StateStore> store_;  // of the call that computes
  const char* authenticated_;
  Limits limits_;
  std::mutex computing_;
};

}  // namespace bespoke
