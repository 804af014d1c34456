// SPDX-License-Identifier: Apache-2.0
// The C API: what it is given becomes C++, what is thrown becomes an error, nothing else happens here.
#include "bespoke.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "api/arguments.h"
#include "api/errors.h"
#include "api/handles.h"
#include "format/bundle/install.h"
#include "format/number_text.h"
#include "kernels/int4.h"
#include "state/stored_text.h"
#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"
#endif

#ifndef BESPOKE_VERSION
#define BESPOKE_VERSION "0.0.0"
#endif

using namespace bespoke;

struct bespoke_cancel {
  const CancelFlag flag = std::make_shared<std::atomic<bool>>(false);  // calls that have it keep it
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may set it");
};

namespace {

BundlePlace place_of(const bespoke_bundle* given) {
  need(given, "bundle", "where the bundle is");
  const auto bundle = taken(given, BESPOKE_FIRST(bespoke_bundle, reserved), "bespoke_bundle");
  const std::string path = path_of(bundle.path, "bespoke_bundle.path");
  if (!path.empty()) return path;
  if (!bundle.size) throw Error(Kind::Config, "bespoke_bundle", "neither a path nor a range of a file", "one of both", "Give one");
  return {bundle.descriptor, bundle.offset, bundle.size};
}

bespoke_options options_of(const bespoke_options* given) {
  return taken(given, BESPOKE_FIRST(bespoke_options, reserved), "bespoke_options");
}

Trust trust_of(const bespoke_options& options) {
  Trust trust;
  if (options.pin_sha256.size) trust.pin_sha256 = text_of(options.pin_sha256, "pin_sha256");
  if (options.public_key) {
    trust.public_key.emplace();
    std::memcpy(trust.public_key->data(), options.public_key, trust.public_key->size());
  }
  trust.require = options.require_authenticated != 0;
  return trust;
}

// The caller's engine, which stays the caller's until the model is open.
std::unique_ptr<Engine> engine_of(const bespoke_engine& given) {
  const auto table = taken(&given, BESPOKE_FIRST(bespoke_engine, runs_graphs), "bespoke_engine");
  need(table.target, "bespoke_engine.target", "the name of a target");
  if (!table.open || !table.run || !table.close)
    throw Error(Kind::Config, "bespoke_engine", "no open, run or close", "all three of them", "Fill the table");
  if (!table.allocate != !table.release || !table.map_weights != !table.unmap_weights || !table.read != !table.write)
    throw Error(Kind::Config, "bespoke_engine", "a function without the one that belongs to it",
                "allocate and release, read and write, map_weights and unmap_weights in pairs", "Fill the table");
  auto engine = std::make_unique<Engine>(table);
  engine->keep(false);
  return engine;
}

std::string state_folder(bespoke_text state) {
  const std::string folder = path_of(state, "state");
  if (folder.empty()) throw Error(Kind::Config, setting("state"), "an empty text", "the path of the user's folder", "Give one");
  return folder;
}

void check_threads(int threads) {
  if (threads < 0)
    throw Error(Kind::Config, setting("threads"), std::to_string(threads), "0 or more", "Give 0 for as many as suit the processor");
}

LimitCounts limit_counts_of(bespoke_limit_counts given) {
  if (given < BESPOKE_LIMIT_OF_PROCESS || given > BESPOKE_LIMIT_SINCE_CALL)
    throw Error(Kind::Config, "bespoke_options.limit_counts", std::to_string(given), "0, 1 or 2", "Say what the limit counts");
  return static_cast<LimitCounts>(given);
}

std::unique_ptr<Engine> own_engine(int threads) {
#ifdef BESPOKE_EXECUTORCH
  return std::make_unique<Engine>(executorch_engine(threads));
#else
  throw Error(Kind::MissingDependency, "engine", "a core built without ExecuTorch", "an engine in bespoke_options",
              "Give one, or build the core with ExecuTorch");
#endif
}

}  // namespace

CallOf::CallOf(const bespoke_call* given, const std::atomic<bool>* interrupted) {
  const auto call = taken(given, BESPOKE_FIRST(bespoke_call, busy_seconds), "bespoke_call");
  if (call.cancel) {
    cancel = call.cancel->flag;
    settings.cancels.push_back(cancel.get());
  }
  if (interrupted) settings.cancels.push_back(interrupted);
  if (!(call.deadline_seconds >= 0))  // what is no number is not either
    throw Error(Kind::Config, "deadline_seconds", repr_of(call.deadline_seconds), "0 for none, or more", "Change the deadline");
  if (call.deadline_seconds > 0) settings.deadline = CallSettings::after(call.deadline_seconds);
  for (const auto& [name, seconds] : {std::pair("wait_seconds", call.wait_seconds), std::pair("busy_seconds", call.busy_seconds)})
    if (seconds != seconds)
      throw Error(Kind::Config, name, repr_of(seconds), "a number of seconds, or less than 0 for as long as it takes", "Change it");
  settings.wait_seconds = call.wait_seconds;
  if (call.busy_seconds != 0) settings.busy_seconds = call.busy_seconds;
  static_assert(BESPOKE_PHASE_OPEN == static_cast<int>(Phase::open) && BESPOKE_PHASE_JUDGE == static_cast<int>(Phase::judge) &&
                BESPOKE_PHASE_STEP == static_cast<int>(Phase::step) && BESPOKE_PHASE_COMMIT == static_cast<int>(Phase::commit) &&
                BESPOKE_PHASE_DECODE == static_cast<int>(Phase::decode) && BESPOKE_PHASE_STORE == static_cast<int>(Phase::store));
  if (call.progress)
    settings.listener = [call](const Told& told) {
      const bespoke_progress progress = {
          sizeof(bespoke_progress), static_cast<bespoke_phase>(told.phase), 0, told.step, told.steps, told.loss, told.footprint_bytes};
      return call.progress(call.context, &progress) != 0;
    };
}

OwnCall::OwnCall(const bespoke_call* given, const std::atomic<bool>* interrupted)
    : call(given, interrupted), this_call(call.settings, false) {
  ThisCall::check();
}

TrainRequest bespoke::request_of(const bespoke_training* given) {
  const auto training = taken(given, BESPOKE_FIRST(bespoke_training, new_run), "bespoke_training");
  TrainRequest request;
  request.method = text_of(training.method, "bespoke_training.method");
  request.run_steps = training.run_steps;
  request.most_steps = training.most_steps;
  if (training.has_seed) request.seed = training.seed;
  request.settings = text_of(training.settings, "bespoke_training.settings");
  request.new_run = training.new_run != 0;
  return request;
}

void bespoke_free(char* text) { std::free(text); }
const char* bespoke_version(void) { return BESPOKE_VERSION; }
uint32_t bespoke_api_version(void) { return BESPOKE_API_MAJOR << 16 | BESPOKE_API_MINOR; }
const char* bespoke_instruction_set(void) { return kernels::name_of(kernels::instruction_set(kernels::best_table())); }

bespoke_status bespoke_open(const bespoke_bundle* bundle, bespoke_text state, const bespoke_options* given, const bespoke_call* call,
                            bespoke_model** model, bespoke_error** error) {
  if (model) *model = nullptr;
  return guarded(error, [&] {
    const OwnCall own(call);
    const bespoke_options options = options_of(given);
    std::unique_ptr<Engine> engine;
    if (options.engine) engine = engine_of(*options.engine);
    const BundlePlace place = place_of(bundle);
    const std::string folder = state_folder(state);
    need(model, "model", "a place for the model");
    const std::string cache = path_of(options.cache, "bespoke_options.cache");
    if (engine) engine->cache = cache;
    check_threads(options.threads);
    const auto make_engine = [threads = options.threads, cache] {
      auto made = own_engine(threads);
      made->cache = cache;
      return made;
    };
    check_none_ends(folder);
    Engine* const lent = engine.get();
    auto opened = std::make_unique<PersonalModel>(place, folder, trust_of(options), std::move(engine), make_engine, options.memory_mb,
                                                  limit_counts_of(options.limit_counts));
    const std::string opened_state = opened->state_folder();
    auto open_model = std::make_shared<OpenModel>(std::move(opened), opened_state);
    *model = handle_of(std::move(open_model));
    if (lent) lent->keep(true);
  });
}

bespoke_status bespoke_interrupt(bespoke_model* model, bespoke_error** error) {
  return guarded(error, [&] { found(model)->interrupt(); });
}

bespoke_status bespoke_close(bespoke_model* model, double seconds, bespoke_error** error) {
  if (!model) {
    if (error) *error = nullptr;
    return BESPOKE_OK;
  }
  return guarded(error, [&] {
    found(model)->close(seconds);
    taken_out(model);
  });
}

void bespoke_release(bespoke_model* model) {
  guarded(nullptr, [&] {
    const std::shared_ptr<OpenModel> opened = found(model);
    opened->check_process();  // a fork leaves alone what is its parent's
    note_released(opened);
    if (taken_out(model)) opened->release();
  });
}

bespoke_status bespoke_reset_for_new_base(const bespoke_bundle* bundle, bespoke_text state, const bespoke_options* options,
                                          const bespoke_call* call, bespoke_error** error) {
  return guarded(error, [&] {
    const OwnCall own(call);
    const BundlePlace place = place_of(bundle);
    PersonalModel::reset_for_new_base(place, state_folder(state), trust_of(options_of(options)));
  });
}

bespoke_status bespoke_install(const bespoke_text* archives, size_t count, bespoke_text folder, const bespoke_options* options,
                               const bespoke_call* call, bespoke_error** error) {
  return guarded(error, [&] {
    const OwnCall own(call);
    if (count) need(archives, "archives", "the paths of a bundle's zips");
    std::vector<std::string> paths;
    for (size_t i = 0; i < count; i++) paths.push_back(path_of(archives[i], "archives"));
    install_bundle(paths, path_of(folder, "folder"), trust_of(options_of(options)));
  });
}

const char* bespoke_authenticated(const bespoke_model* model) {
  const char* known_by = "none";
  guarded(nullptr, [&] {
    const OpenModel::Call call(found(const_cast<bespoke_model*>(model)));
    known_by = call.model().authenticated();
  });
  return known_by;
}

bespoke_status bespoke_set_limit(bespoke_model* model, double memory_mb, bespoke_error** error) {
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    call.model().set_limit(memory_mb);
  });
}

bespoke_status bespoke_set_pace(bespoke_model* model, double share, bespoke_error** error) {
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    call.model().set_pace(share);
  });
}

bespoke_cancel* bespoke_cancel_new(void) {
  try {
    return new bespoke_cancel;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void bespoke_cancel_set(bespoke_cancel* cancel) {
  if (cancel) *cancel->flag = true;
}
void bespoke_cancel_free(bespoke_cancel* cancel) { delete cancel; }

bespoke_status bespoke_train(bespoke_model* model, const bespoke_training* training, const bespoke_call* call, char** report,
                             bespoke_error** error) {
  return computed(model, call, report, error,
                  [&](PersonalModel& model, CallSettings settings) { return model.train(request_of(training), std::move(settings)); });
}

bespoke_status bespoke_evaluate(bespoke_model* model, bespoke_text split, bespoke_text examples, const bespoke_call* call, char** report,
                                bespoke_error** error) {
  return computed(model, call, report, error, [&](PersonalModel& model, CallSettings settings) {
    return model.evaluate(text_of(split, "split"), text_of(examples, "examples"), std::move(settings));
  });
}

bespoke_status bespoke_verify(bespoke_model* model, const bespoke_call* call, char** report, bespoke_error** error) {
  return computed(model, call, report, error,
                  [&](PersonalModel& model, CallSettings settings) { return model.verify(std::move(settings)); });
}
