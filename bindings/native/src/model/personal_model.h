// SPDX-License-Identifier: Apache-2.0
// One bundle and one user's state, opened once: what a handle of the C API stands for. Its functions may be called from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "exec/control.h"
#include "exec/engine.h"
#include "format/bundle/bundle.h"
#include "format/bundle/source.h"
#include "format/known_hashes.h"
#include "model/bundle_text.h"
#include "model/call_queue.h"
#include "model/records_json.h"
#include "state/store.h"
#include "text/examples.h"
#include "train/training.h"

namespace bespoke {

class Answering;

enum class LimitCounts { process, added_since_open, added_since_call };

struct GivenExample {  // `id` none: the sha256 of its canonical JSON
  std::string json;
  std::optional<std::string> id;
  Use use = Use::any;
};

class PersonalModel {
 public:
  using MakeEngine = std::function<std::unique_ptr<Engine>()>;

  // `memory_mb` as in bespoke_options. Without an `engine`, the first call that computes makes one. ConfigError where the state lies in
  // the bundle or holds it.
  PersonalModel(const BundlePlace& bundle, const std::string& state, const Trust& trust, std::unique_ptr<Engine> engine,
                MakeEngine make_engine, double memory_mb, LimitCounts limit_counts);
  ~PersonalModel();

  // Moves a state to a bundle of another base: adapters go, examples are kept and tokenized again. All files of the bundle are read and
  // their hashes checked before anything is deleted.
  static void reset_for_new_base(const BundlePlace& bundle, const std::string& state, const Trust& trust);

  // The store's verbs: any thread, also while a call computes, one at a time. Records are JSON, of the fields in bindings/schema. What
  // they were told about the call is ThisCall's.
  std::string add_example(GivenExample given);
  std::string add_examples(std::vector<GivenExample> given);  // all of them, or none
  std::string correct(const std::string& answer, const std::string& better);
  std::string list_examples(const std::string& after, int64_t most);
  int64_t count_examples();
  std::vector<Note> nearest_notes(const std::string& question, size_t most);
  std::string forget_example(const std::string& id);
  std::string describe() const;
  int64_t count_tokens(const std::string& prompt);
  void trim();
  std::string planned_training() const;
  std::string current_run();  // or null
  bool abandon_run();
  std::string list_versions();
  std::string rollback();  // the version that answers now, or null
  void reset();
  // AdapterError where the base answers; `base` takes the bundle's initial adapter then, which changes nothing.
  void export_adapter(const std::string& folder, AdapterFormat format, bool base);
  // A PEFT folder becomes the adapter that answers: its version. `trust_base` takes one that does not say which base it was trained on.
  int64_t import_adapter(const std::string& folder, bool trust_base);
  void check_training(const TrainRequest& request);  // the error that `train` would give for these settings

  // Each waits for its turn as long as its settings say, then throws Busy.
  std::string train(const TrainRequest& request, CallSettings settings);
  // On the user's examples of `split`, or on `examples`, a JSON array, where there is one.
  std::string evaluate(const std::string& split, const std::string& examples, CallSettings settings);
  std::string verify(CallSettings settings);

  // Federated learning (federated/requests.h, federated/taking_part.h): verbs of the store, and two calls that compute.
  void join_federation();
  void leave_federation();
  std::string federation_status();
  std::string federation_request();
  void federation_respond(const std::string& request, Bytes response);
  std::string federation_take_part(CallSettings settings);
  std::string federation_adopt(CallSettings settings);

  // For sessions. Throws Busy like the others.
  void answer(CallSettings settings, const std::function<void(Answering&)>& work);
  std::string packed_folder() const;
  const std::string& state_folder() const { return store_->folder(); }
  const Manifest& manifest() const { return bundle_->manifest(); }
  BundleText& text() { return *text_; }

  void set_limit(double memory_mb);
  void set_pace(double share);

  const char* authenticated() const { return authenticated_; }

 private:
  struct TokenizedExample {
    Identified example;
    EncodedExample encoded;
    Use use;
  };
  TokenizedExample read(GivenExample given);
  std::vector<Added> add(const std::vector<TokenizedExample>& examples);

  void count_from_here();
  template <class Work>
  auto compute(CallSettings settings, Work work);
  template <class Work>
  std::string compute_by_method(CallSettings settings, Work work);
  std::unique_ptr<StateStore> open_store();

  std::unique_ptr<Engine> engine_;  // goes last
  MakeEngine make_engine_;
  std::unique_ptr<KnownHashes> hashes_;  // of the bundle's files, in the state folder
  std::unique_ptr<Bundle> bundle_;
  std::unique_ptr<BundleText> text_;
  std::string state_;
  std::unique_ptr<StateStore> store_;            // of the store's verbs, under `storing_`
  std::unique_ptr<StateStore> computing_store_;  // of the call that computes, under `computing_`; opened by the first
  const char* authenticated_;
  const LimitCounts limit_counts_;
  MemoryColumns columns_;
  Limits limits_;
  Control control_{limits_};              // of the call that computes
  std::unique_ptr<Answering> answering_;  // between the calls of sessions too
  CallQueue storing_{"uses the store"}, computing_{"computes"};
};

}  // namespace bespoke
