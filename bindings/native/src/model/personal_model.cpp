// SPDX-License-Identifier: Apache-2.0
#include "model/personal_model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "exec/fitting_plans.h"
#include "exec/machine.h"
#include "exec/memory_guard.h"
#include "format/adapter/gguf.h"
#include "format/adapter/mlx.h"
#include "format/adapter/peft.h"
#include "format/adapter/read_adapter.h"
#include "format/bundle/manifest_check.h"
#include "format/number_text.h"
#include "generate/conversation.h"
#include "model/answering.h"
#include "model/computing.h"
#include "model/records_json.h"
#include "state/database.h"
#include "state/folder.h"
#include "state/stored_text.h"
#include "text/corrections.h"
#include "verify/golden.h"

namespace bespoke {
namespace {

constexpr const char* kHashesFile = "hashes";
constexpr const char* kPackedFolder = "packed";
constexpr double kMostMegabytes = 1e12;  // bytes of more are no 64-bit number

void check_limit(double memory_mb) {
  if (!(memory_mb <= kMostMegabytes))  // what is no number is not either
    throw Error(Kind::Config, setting("memory_mb"), repr_of(memory_mb), "a number of at most 1e12",
                "Give 0 for the bundle's budget, less for none");
}

int64_t most_added(double memory_mb, const Manifest& manifest) {
  if (memory_mb > 0) return static_cast<int64_t>(memory_mb * 1e6);
  return memory_mb == 0 && manifest.memory_bytes ? static_cast<int64_t>(*manifest.memory_bytes) : Limits::kNone;
}

// Of the pieces that are trained: what a state keeps of an adapter.
std::vector<StateTensor> adapter_shapes(Bundle& bundle) {
  check_adapter(bundle.manifest(), bundle.tensors(bundle.manifest().adapter));
  std::vector<StateTensor> shapes;
  for (const auto& [name, tensor] : bundle.tensors(bundle.manifest().adapter))
    if (bundle.manifest().trains(name)) shapes.push_back({name, tensor.shape.data(), static_cast<int32_t>(tensor.shape.size()), nullptr});
  return shapes;
}

}  // namespace

PersonalModel::PersonalModel(const BundlePlace& bundle, const std::string& state, const Trust& trust, std::unique_ptr<Engine> engine,
                             MakeEngine make_engine, double memory_mb, LimitCounts limit_counts)
    : engine_(std::move(engine)), make_engine_(std::move(make_engine)), state_(state), authenticated_(trust.pin_sha256   ? "pin"
                                                                                                      : trust.public_key ? "signature"
                                                                                                                         : "none"),
      limit_counts_(limit_counts) {
  check_limit(memory_mb);  // before anything is read
  if (limit_counts != LimitCounts::process) {
    release_free_memory();
    limits_.idle_bytes = footprint_now();
  }
  if (!bundle.path.empty()) check_apart(state, bundle.path);
  bundle_ = Bundle::open(bundle, trust);
  text_ = std::make_unique<BundleText>(*bundle_);
  limits_.added_bytes = most_added(memory_mb, bundle_->manifest());
  store_ = open_store();
  hashes_ = std::make_unique<KnownHashes>(store_->folder() + "/" + kHashesFile);
  bundle_->remember(*hashes_);
}

PersonalModel::~PersonalModel() { hashes_->save(); }

void PersonalModel::reset_for_new_base(const BundlePlace& place, const std::string& state, const Trust& trust) {
  if (!place.path.empty()) check_apart(state, place.path);
  const std::unique_ptr<Bundle> bundle = Bundle::open(place, trust);
  for (const auto& [name, record] : bundle->manifest().files) bundle->file(name);
  BundleText bundle_text(*bundle);
  StateStore::reset_for_new_base(state, bundle->manifest().base_sha256, adapter_shapes(*bundle), bundle_text.rules(),
                                 [&](const std::string& json) { return bundle_text.encode(json, "example").rows; });
}

std::unique_ptr<StateStore> PersonalModel::open_store() {
  auto store = StateStore::open(state_, bundle_->manifest().base_sha256, adapter_shapes(*bundle_));
  store->use_text_rules(text_->rules(), [&](const std::string& json) { return text_->encode(json, "example").rows; });
  return store;
}

// Of the weights of this base model, for engines that lay them out anew. Those of another base are of no use any more.
std::string PersonalModel::packed_folder() const {
  const std::string folder = store_->folder() + "/" + kPackedFolder, name = bundle_->manifest().base_sha256.substr(0, 16);
  std::error_code ignored;  // what cannot be removed stays
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().filename() != name) std::filesystem::remove_all(entry.path(), ignored);
  return folder + "/" + name;
}

// What a call adds, its limit counts from here: after what it has no use for has gone, which would else be taken for the app's.
void PersonalModel::count_from_here() {
  if (limit_counts_ == LimitCounts::added_since_call) limits_.idle_bytes = columns_.read().total();
}

void PersonalModel::answer(CallSettings settings, const std::function<void(Answering&)>& work) {
  compute(std::move(settings), [&] {
    const PlanRecord& plan = plan_for_answers(bundle_->manifest(), limits_);
    if (answering_ && &answering_->plan() != &plan) answering_.reset();  // the limit has changed; sessions have their words
    if (!answering_) release_free_memory();                              // not for each token: it walks through all of the app's heap
    count_from_here();
    if (!answering_) answering_ = std::make_unique<Answering>(*bundle_, plan, *computing_store_, *engine_, control_);
    work(*answering_);
  });
}

std::string PersonalModel::train(const TrainRequest& request, CallSettings settings) {
  return compute_by_method(std::move(settings), [&](Personal& personal) { return bespoke::train(personal, request); });
}

std::string PersonalModel::evaluate(const std::string& split, const std::string& examples, CallSettings settings) {
  return compute_by_method(std::move(settings), [&](Personal& personal) {
    if (examples.empty()) return evaluate_split(personal, split);
    std::vector<TokenRow> rows;
    std::vector<EncodedExample> encoded = text_->encode_all(examples);
    for (EncodedExample& example : encoded) std::move(example.rows.begin(), example.rows.end(), std::back_inserter(rows));
    return evaluate_rows(personal, std::move(rows), static_cast<int64_t>(encoded.size()));
  });
}

std::string PersonalModel::verify(CallSettings settings) {
  return compute_by_method(settings, [&](Personal& personal) {
    const ThisCall hashes(settings, false);  // files are read between instructions: this looks at the call's end then
    int64_t checks = 0;
    return bespoke::verify(
        personal.bundle, personal.make_machine,
        [&](const PlanRecord& plan, MemoryGuard& guard) { return std::make_unique<Machine>(*bundle_, plan, *engine_, guard, control_); },
        [&](const Check&) { control_.tell(Phase::judge, ++checks); });
  });
}

std::string PersonalModel::add_example(GivenExample given) {
  std::vector<TokenizedExample> one;
  one.push_back(read(std::move(given)));
  return record_json(add(one).front());
}

std::string PersonalModel::add_examples(std::vector<GivenExample> given) {
  std::vector<TokenizedExample> examples;
  for (GivenExample& one : given) {
    ThisCall::tell(static_cast<int64_t>(examples.size()), static_cast<int64_t>(given.size()));
    try {
      examples.push_back(read(std::move(one)));
    } catch (const Error& error) {
      throw Error(error.kind, "example " + std::to_string(examples.size()) + " of the list, " + error.subject, error.got, error.expected,
                  error.next_step);
    }
  }
  return record_json(add(examples));
}

PersonalModel::TokenizedExample PersonalModel::read(GivenExample given) {
  Identified example = StateStore::identified(given.json, std::move(given.id));  // before the work of tokenizing
  EncodedExample encoded = text_->encode(example.json, "example");
  return {std::move(example), std::move(encoded), given.use};
}

std::vector<Added> PersonalModel::add(const std::vector<TokenizedExample>& examples) {
  std::vector<NewExample> stored;
  for (const TokenizedExample& one : examples) stored.push_back({&one.example, &one.encoded.rows, one.use});
  const auto alone = storing_.turn(kHoweverLong);
  const std::vector<AddedExample> added = store_->add_examples(stored);
  std::vector<Added> answers;
  for (size_t i = 0; i < added.size(); i++) {
    const EncodedExample& encoded = examples[i].encoded;
    answers.push_back({added[i], static_cast<int64_t>(encoded.truncated_tokens), static_cast<int64_t>(encoded.truncated_trained_tokens),
                       encoded.unused_keys});
  }
  return answers;
}

std::string PersonalModel::correct(const std::string& answer, const std::string& better) {
  if (better.size() > Database::kMostValueBytes)  // before it is copied
    throw Error(Kind::Data, "better", std::to_string(better.size()) + " bytes", "at most " + std::to_string(Database::kMostValueBytes),
                "Give a shorter answer");
  return add_example({correction_json(text_->read_prompt(answer), better), std::nullopt, Use::any});
}

std::string PersonalModel::list_examples(const std::string& after, int64_t most) {
  if (most < 0) throw Error(Kind::Config, "most", std::to_string(most), "0 for all, or more", "Change the number");
  const auto alone = storing_.turn(kHoweverLong);
  return record_json(store_->examples(after, most));
}

std::string PersonalModel::forget_example(const std::string& id) {
  const auto alone = storing_.turn(kHoweverLong);
  return record_json(store_->forget(id));
}

std::string PersonalModel::describe() const {
  const Manifest& known = manifest();
  Description description{known.model_name,
                          known.licence,
                          known.context_length,
                          {},
                          {},
                          known.text.tokenizer_bin.has_value(),
                          known.text.turns.has_value(),
                          known.generation.has_value(),
                          std::nullopt};
  for (const Method& method : known.methods) description.methods.push_back(method.name);
  for (const Target& target : known.targets) description.targets.push_back(target.name);
  if (known.memory_bytes) description.memory_bytes = static_cast<int64_t>(*known.memory_bytes);
  return record_json(description);
}

int64_t PersonalModel::count_tokens(const std::string& prompt) {
  return static_cast<int64_t>(Conversation(text_->encoder()).with(text_->read_prompt(prompt)).tokens().size());
}

void PersonalModel::trim() {
  const auto alone = computing_.turn(0);
  answering_.reset();
  release_free_memory();
}

std::string PersonalModel::planned_training() const {
  const auto size = [](uint64_t bytes) { return static_cast<int64_t>(bytes); };
  std::vector<PlannedTraining> planned;
  for (const Method& method : manifest().methods) {
    const std::optional<uint64_t>& whole = manifest().memory_bytes;
    planned.push_back({method.name, whole ? std::optional(size(*whole)) : std::nullopt, size(peak_of(method.plans)), method.replayable});
    for (const SmallerPlans& smaller : method.smaller)
      planned.push_back({method.name, size(smaller.memory_bytes), size(peak_of(smaller.plans)), method.replayable});
  }
  return record_json(planned);
}

std::string PersonalModel::current_run() {
  const auto alone = storing_.turn(kHoweverLong);
  const std::optional<Run> run = store_->current_run();
  return run ? record_json(StoredRun{*run, store_->run_example_ids(run->id)}) : "null";
}

std::vector<Note> PersonalModel::nearest_notes(const std::string& question, size_t most) {
  const auto alone = storing_.turn(kHoweverLong);
  return store_->nearest_notes(question, most);
}

int64_t PersonalModel::count_examples() {
  const auto alone = storing_.turn(kHoweverLong);
  return store_->example_count();
}

void PersonalModel::check_training(const TrainRequest& request) {
  const auto alone = storing_.turn(kHoweverLong);
  choose_run(bundle_->manifest(), *store_, request);
}

bool PersonalModel::abandon_run() {
  const auto alone = storing_.turn(kHoweverLong);
  const auto lock = store_->trainer_lock("abandoning a run");
  const std::optional<Run> run = store_->current_run();
  return run && store_->end_run(run->id, "abandoned");
}

std::string PersonalModel::list_versions() {
  const auto alone = storing_.turn(kHoweverLong);
  return record_json(store_->accepted());
}

std::string PersonalModel::rollback() {
  const auto alone = storing_.turn(kHoweverLong);
  const auto lock = store_->trainer_lock("rolling back");
  return record_json(store_->rollback());
}

void PersonalModel::reset() {
  const auto alone = storing_.turn(kHoweverLong);
  const auto lock = store_->trainer_lock("resetting");
  store_->reset();
}

void PersonalModel::export_adapter(const std::string& folder, AdapterFormat format, bool base) {
  std::optional<MappedTensors> answering;
  {
    const auto alone = storing_.turn(kHoweverLong);
    answering = store_->answering();
  }
  if (!answering && !base)
    throw Error(Kind::Adapter, "the adapter to export", "none: no training was accepted, so the base model answers", "an accepted adapter",
                "Train first, or ask for the base, an adapter that changes nothing");
  const Tensors& initial = bundle_->tensors(bundle_->manifest().adapter);
  Tensors adapter;
  if (answering)
    for (const StateTensor& tensor : answering->all())
      adapter.emplace(tensor.name, Tensor{DType::float32,
                                          {tensor.shape, tensor.shape + tensor.rank},
                                          reinterpret_cast<const uint8_t*>(tensor.data),
                                          sizeof(float) * static_cast<size_t>(tensor.elements())});
  for (const auto& [name, tensor] : initial)
    if (!bundle_->manifest().trains(name)) adapter.emplace(name, tensor);
  const auto write = format == AdapterFormat::peft ? write_peft : format == AdapterFormat::mlx ? write_mlx : write_gguf;
  write(folder, answering ? adapter : initial, bundle_->manifest(), initial);
}

int64_t PersonalModel::import_adapter(const std::string& folder, bool trust_base) {
  const auto alone = storing_.turn(kHoweverLong);
  const auto lock = store_->trainer_lock("importing an adapter");
  const auto numbers = read_adapter(folder, bundle_->manifest(), bundle_->tensors(bundle_->manifest().adapter), trust_base);
  std::vector<StateTensor> tensors = adapter_shapes(*bundle_);
  for (StateTensor& tensor : tensors) tensor.data = numbers.at(std::string(tensor.name)).data();
  return store_->import_version(tensors, std::filesystem::path(folder + "/.").parent_path().filename().string());
}

void PersonalModel::set_limit(double memory_mb) {
  check_limit(memory_mb);
  limits_.added_bytes = most_added(memory_mb, bundle_->manifest());
}

void PersonalModel::set_pace(double share) {
  if (!(share > 0 && share <= 1))
    throw Error(Kind::Config, setting("pace"), repr_of(share), "more than 0 and at most 1", "Change the share");
  limits_.pace = share;
}

}  // namespace bespoke
