// SPDX-License-Identifier: Apache-2.0
// The C API: what it is given becomes C++, what is thrown becomes an error, nothing else happens here.
#include "bespoke.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "format/bundle/bundle.h"
#include "format/bundle/manifest_check.h"
#include "kernels/int4.h"
#include "verify/golden.h"
#include "exec/machine.h"
#include "train/training.h"
#include "state/folder.h"
#include "state/store.h"
#include "state/stored_text.h"
#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"
#endif

#ifndef BESPOKE_VERSION
#define BESPOKE_VERSION "0.0.0"
#endif

using namespace bespoke;

struct bespoke_model {
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<StateStore> store;
  std::string target;  // of the engine
  bespoke_engine engine{};
  std::optional<int64_t> limit_bytes;
  const char* authenticated = "none";
  std::atomic<bool> stop{false};

  bespoke_model() = default;
  bespoke_model(const bespoke_model&) = delete;
  ~bespoke_model() {
    store.reset();
    if (engine.destroy) engine.destroy(engine.context);
  }

  Personal personal() {
    return {*bundle, *store, limit_bytes, stop, [this](const Method& method, MemoryGuard& guard, const std::string& scratch_path) {
              return std::make_unique<Machine>(*bundle, method, engine, guard, stop, scratch_path);
            }};
  }
};

namespace {

constexpr double kMostMegabytes = 1e12;  // bytes of more are no 64-bit number

// Where there is no memory, not even for an error.
bespoke_error no_memory = {10, "BudgetExceeded", "memory", "no room for an allocation", "room within the limit that the system sets",
                           "Raise the limit or use a bundle built for a smaller budget"};

// One allocation: the record, then its texts.
bespoke_error* error_of(const Error& error) {
  const std::string* texts[] = {&error.subject, &error.got, &error.expected, &error.next_step};
  const size_t kind_size = std::strlen(name_of(error.kind)) + 1;
  size_t size = sizeof(bespoke_error) + kind_size;
  for (const std::string* text : texts) size += text->size() + 1;
  auto* record = static_cast<bespoke_error*>(std::malloc(size));
  if (!record) return &no_memory;
  record->code = code_of(error.kind);
  char* at = reinterpret_cast<char*>(record + 1);
  const auto put = [&](const char* text, size_t length) {
    const char* begin = at;
    std::memcpy(at, text, length);
    at += length;
    return begin;
  };
  record->kind = put(name_of(error.kind), kind_size);
  const char** fields[] = {&record->subject, &record->got, &record->expected, &record->next_step};
  for (size_t i = 0; i < 4; i++) *fields[i] = put(texts[i]->c_str(), texts[i]->size() + 1);
  return record;
}

// Nothing leaves it: an exception that telling of another one throws is the lack of memory.
template <class Body>
int guarded(bespoke_error** error, Body body) noexcept {
  if (error) *error = nullptr;
  const auto tell = [&](bespoke_error* record) {
    const int code = record->code;
    if (error)
      *error = record;
    else
      bespoke_error_free(record);
    return code;
  };
  try {
    try {
      body();
      return 0;
    } catch (const Error& problem) {
      return tell(error_of(problem));
    } catch (const Abandoned&) {
      return tell(error_of({Kind::Internal, "the call", "a stop before there was anything to report", "to run to its end", "Call it again"}));
    } catch (const std::bad_alloc&) {
      return tell(&no_memory);
    } catch (const std::exception& problem) {
      return tell(error_of({Kind::Internal, "the device core", problem.what(), "no such failure", "Report this together with the bundle"}));
    } catch (...) {
      return tell(
          error_of({Kind::Internal, "the device core", "an unknown failure", "no such failure", "Report this together with the bundle"}));
    }
  } catch (...) {
    return tell(&no_memory);
  }
}

void need(const void* given, const char* what, const char* expected) {
  if (!given) throw Error(Kind::Config, what, "null", expected, "Give one");
}

// Structs grow at their end. A larger one is of a later header, whose fields nobody here would heed.
void check_size(size_t got, size_t least, size_t most, const char* what) {
  if (got < least || got > most)
    throw Error(Kind::Config, what, "struct_size " + std::to_string(got), std::to_string(least) + " to " + std::to_string(most),
                "Compile the app with the header of this library");
}

void give(char** report, const std::string& text) {
  if (!report) return;
  *report = static_cast<char*>(std::malloc(text.size() + 1));
  if (!*report) throw std::bad_alloc();
  std::memcpy(*report, text.c_str(), text.size() + 1);
}

// A stop ends the call that runs: what came before it is forgotten here.
template <class Body>
int stoppable(bespoke_model* model, char** report, bespoke_error** error, Body body) {
  if (report) *report = nullptr;
  if (model) model->stop = false;
  return guarded(error, [&] {
    need(model, "model", "one that bespoke_open gave");
    give(report, body());
  });
}

bespoke_options taken(const bespoke_options* given) {
  bespoke_options options{};
  if (!given) return options;
  check_size(given->struct_size, offsetof(bespoke_options, require_authenticated), sizeof options, "bespoke_options");
  std::memcpy(&options, given, given->struct_size);
  return options;
}

// From here on the model destroys it.
void take_engine(bespoke_model& model, const bespoke_engine& given) {
  check_size(given.struct_size, sizeof given, sizeof given, "bespoke_engine");
  model.engine = given;
  need(given.target, "bespoke_engine.target", "the name of a target");
  model.target = given.target;
  model.engine.target = model.target.c_str();
  if (!given.open || !given.run || !given.close)
    throw Error(Kind::Config, "bespoke_engine", "no open, run or close", "all three of them", "Fill the table");
}

Trust trust_of(const bespoke_options& options) {
  Trust trust;
  if (options.pin_sha256) trust.pin_sha256 = options.pin_sha256;
  if (options.public_key) {
    trust.public_key.emplace();
    std::memcpy(trust.public_key->data(), options.public_key, trust.public_key->size());
  }
  trust.require = options.require_authenticated != 0;
  return trust;
}

bespoke_engine own_engine(const bespoke_options& options) {
#ifdef BESPOKE_EXECUTORCH
  return executorch_engine(options.threads);
#else
  throw Error(Kind::MissingDependency, "engine", "a core built without ExecuTorch", "an engine in bespoke_options",
              "Give one, or build the core with ExecuTorch");
#endif
}

std::vector<StateTensor> adapter_shapes(Bundle& bundle) {
  check_adapter(bundle.manifest(), bundle.tensors(bundle.manifest().adapter));
  std::vector<StateTensor> shapes;
  for (const auto& [name, tensor] : bundle.tensors(bundle.manifest().adapter)) 
    shapes.push_back({name, tensor.shape.data(), static_cast<int32_t>(tensor.shape.size()), nullptr});
  return shapes;
}

}  // namespace

void bespoke_error_free(bespoke_error* error) {
  if (error != &no_memory) std::free(error);
}
void bespoke_text_free(char* text) { std::free(text); }
const char* bespoke_version(void) { return BESPOKE_VERSION; }

const char* bespoke_instruction_set(void) { return kernels::name_of(kernels::instruction_set(kernels::best_table())); }

int bespoke_open(const char* bundle, const char* state, const bespoke_options* given, bespoke_model** model, bespoke_error** error) {
  if (model) *model = nullptr;
  return guarded(error, [&] {
    const bespoke_options options = taken(given);
    const bespoke_engine* engine = options.engine;
    const auto owned = [](const bespoke_engine* table) {
      if (table->struct_size == sizeof *table && table->destroy) table->destroy(table->context);
    };
    std::unique_ptr<const bespoke_engine, decltype(owned)> until_taken(engine, owned);
    auto opened = std::make_unique<bespoke_model>();
    until_taken.release();
    if (engine) take_engine(*opened, *engine);
    need(bundle, "bundle", "the path of a bundle");
    need(state, "state", "the path of the user's folder");
    need(model, "model", "a place for the model");
    if (options.threads < 0)
      throw Error(Kind::Config, "threads", std::to_string(options.threads), "0 or more", "Give 0 for as many as there are processors");
    if (!(options.memory_mb <= kMostMegabytes))  // what is no number is not either
      throw Error(Kind::Config, "memory_mb", repr_of(options.memory_mb), "a number of at most 1e12",
                  "Give 0 for the bundle's budget, less for none");
    check_apart(state, bundle);
    opened->bundle = Bundle::open(bundle, trust_of(options));
    opened->authenticated = options.pin_sha256 ? "pin" : options.public_key ? "signature" : "none";
    if (!engine) opened->engine = own_engine(options);
    if (options.memory_mb > 0)
      opened->limit_bytes = static_cast<int64_t>(options.memory_mb * 1e6);
    else if (options.memory_mb == 0 && opened->bundle->manifest().memory_bytes)
      opened->limit_bytes = static_cast<int64_t>(*opened->bundle->manifest().memory_bytes);
    opened->store = StateStore::open(state, opened->bundle->manifest().base_sha256, adapter_shapes(*opened->bundle));
    *model = opened.release();
  });
}

void bespoke_close(bespoke_model* model) { delete model; }

const char* bespoke_authenticated(const bespoke_model* model) { return model ? model->authenticated : "none"; }

int bespoke_train(bespoke_model* model, const bespoke_training* given, char** report, bespoke_error** error) {
  return stoppable(model, report, error, [&] {
    TrainRequest request;
    if (given) {
      check_size(given->struct_size, sizeof *given, sizeof *given, "bespoke_training");
      if (given->method) request.method = given->method;
      if (given->settings) request.settings = given->settings;
      request.steps = given->steps;
      request.seed = given->seed;
      if (given->on_step) request.on_step = [given](int64_t step, double loss) { given->on_step(given->context, step, loss); };
    }
    Personal personal = model->personal();
    return train(personal, request);
  });
}

int bespoke_evaluate(bespoke_model* model, const char* split, char** report, bespoke_error** error) {
  return stoppable(model, report, error, [&] {
    need(split, "split", "\"validation\" or \"train\"");
    Personal personal = model->personal();
    return evaluate_examples(personal, split);
  });
}

int bespoke_verify(bespoke_model* model, char** report, bespoke_error** error) {
  return stoppable(model, report, error, [&] {
    return verify(*model->bundle, model->personal().make_machine);
  });
}

void bespoke_stop(bespoke_model* model) {
  if (model) model->stop = true;
}
