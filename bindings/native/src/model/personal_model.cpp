// SPDX-License-Identifier: Apache-2.0
#include "model/personal_model.h"

#include "exec/machine.h"
#include "format/bundle/manifest_check.h"
#include "state/folder.h"
#include "state/stored_text.h"
#include "verify/golden.h"

namespace bespoke {
namespace {

constexpr double kMostMegabytes = 1e12;  // bytes of more are no 64-bit number

int64_t limit_of(double memory_mb, const Manifest& manifest) {
  if (!(memory_mb <= kMostMegabytes))  // what is no number is not either
    throw Error(Kind::Config, "memory_mb", repr_of(memory_mb), "a number of at most 1e12", "Give 0 for the bundle's budget, less for none");
  if (memory_mb > 0) return static_cast<int64_t>(memory_mb * 1e6);
  return memory_mb == 0 && manifest.memory_bytes ? static_cast<int64_t>(*manifest.memory_bytes) : Limits::kNone;
}

std::vector<StateTensor> adapter_shapes(Bundle& bundle) {
  check_adapter(bundle.manifest(), bundle.tensors(bundle.manifest().adapter));
  std::vector<StateTensor> shapes;
  for (const auto& [name, tensor] : bundle.tensors(bundle.manifest().adapter))
    shapes.push_back({name, tensor.shape.data(), static_cast<int32_t>(tensor.shape.size()), nullptr});
  return shapes;
}

}  // namespace

PersonalModel::PersonalModel(const BundlePlace& bundle, const std::string& state, const Trust& trust, std::unique_ptr<Engine> engine,
                             double memory_mb)
    : engine_(std::move(engine)), authenticated_(trust.pin_sha256 ? "pin" : trust.public_key ? "signature" : "none") {
  limit_of(memory_mb, {});  // before anything is read
  if (!bundle.path.empty()) check_apart(state, bundle.path);
  bundle_ = Bundle::open(bundle, trust);
  limits_.memory_bytes = limit_of(memory_mb, bundle_->manifest());
  store_ = StateStore::open(state, bundle_->manifest().base_sha256, adapter_shapes(*bundle_));
}

PersonalModel::~PersonalModel() { const std::lock_guard<std::mutex> until_none_computes(computing_); }

template <class Work>
std::string PersonalModel::compute(CallSettings settings, Work work) {
  const std::unique_lock<std::mutex> alone(computing_, std::try_to_lock);
  if (!alone)
    throw Error(Kind::Busy, "the model", "a call while another one computes", "one call that computes at a time",
                "Wait until it has ended, or cancel it");
  Control control(limits_, settings.cancel, settings.deadline_seconds, std::move(settings.listener));
  Personal personal{*bundle_, *store_, control, [&](const Method& method, MemoryGuard& guard, const std::string& scratch_path) {
                      return std::make_unique<Machine>(*bundle_, method, engine_->table(), guard, control, scratch_path);
                    }};
  return work(personal);
}

std::string PersonalModel::train(const TrainRequest& request, CallSettings settings) {
  return compute(std::move(settings), [&](Personal& personal) { return bespoke::train(personal, request); });
}

std::string PersonalModel::evaluate(const std::string& split, CallSettings settings) {
  return compute(std::move(settings), [&](Personal& personal) { return evaluate_examples(personal, split); });
}

std::string PersonalModel::verify(CallSettings settings) {
  return compute(std::move(settings), [&](Personal& personal) { return bespoke::verify(personal.bundle, personal.make_machine); });
}

void PersonalModel::set_limit(double memory_mb) { limits_.memory_bytes = limit_of(memory_mb, bundle_->manifest()); }

void PersonalModel::set_pace(double share) {
  if (!(share > 0 && share <= 1)) throw Error(Kind::Config, "pace", repr_of(share), "more than 0 and at most 1", "Change the share");
  limits_.pace = share;
}

}  // namespace bespoke
