// SPDX-License-Identifier: Apache-2.0
#include "verify/golden.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "format/hash.h"
#include "format/json.h"
#include "train/run_length.h"
#include "train/schedule.h"
#include "verify/golden_texts.h"
#include "this_call.h"

namespace bespoke {

namespace {

constexpr double kRateTolerance = 1e-6;  // relative: schedules are a few operations in double
using Passed = std::function<void(Check)>;
using Ordered = nlohmann::ordered_json;
using ByName = std::map<std::string, NamedTensor>;

std::string text_of(double value, int digits = 8) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

// Of the tolerance, how much was used.
double share(double difference, double tolerance) {
  if (difference == 0) return 0;
  return tolerance == 0 ? std::numeric_limits<double>::infinity() : std::fabs(difference) / tolerance;
}

ByName by_name(std::vector<NamedTensor> tensors) {
  ByName found;
  for (NamedTensor& tensor : tensors) found.emplace(tensor.name, std::move(tensor));
  return found;
}

std::string bits_of(const NamedTensor& tensor) {
  return sha256_hex({reinterpret_cast<const uint8_t*>(tensor.data), static_cast<size_t>(tensor.elements()) * sizeof(float)});
}

// Norm of minuend - subtrahend, either of which may be null.
double norm_of(const float* minuend, const float* subtrahend, int64_t count, double divisor = 1) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const double difference = (static_cast<double>(minuend[i]) - (subtrahend ? static_cast<double>(subtrahend[i]) : 0.0)) / divisor;
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

class Held {  // what a plan computed, held against what is known
 public:
  Held(std::string where, std::string plan, int64_t length, const Passed& passed)
      : length_(length), where_(std::move(where)), plan_(std::move(plan)), passed_(passed) {}

  void hold(const std::string& what, const std::vector<Known>& wanted, const std::vector<double>& got) {
    if (got.size() != wanted.size()) throw mismatch(what, std::to_string(got.size()) + " values", std::to_string(wanted.size()));
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++) {
      if (!wanted[i].holds(got[i]))
        throw mismatch(wanted.size() > 1 ? what + ", value " + std::to_string(i + 1) : what, text_of(got[i]),
                       text_of(wanted[i].value) + " within " + text_of(wanted[i].tolerance, 3));
      worst = std::max(worst, share(got[i] - wanted[i].value, wanted[i].tolerance));
    }
    pass(what, static_cast<int64_t>(wanted.size()), worst);
  }

  void pass(const std::string& what, int64_t compared, double worst) { passed_({what, plan_, length_, compared, worst}); }

  Error mismatch(const std::string& what, const std::string& got, const std::string& expected) const {
    return Error(Kind::Golden, where_ + ", " + what, got, expected,
                 "Build the bundle again; if that changes nothing, this runtime computes something else: report it");
  }

 protected:
  const int64_t length_;

 private:
  const std::string where_, plan_;
  const Passed& passed_;
};

class MethodRun : private Held {  // one method at one sequence length
 public:
  // `of`: by which plans, where they are not those for the bundle's budget.
  MethodRun(const Golden& golden, const GoldenAdapter& adapter, const Method& method, const std::string& of, Steps& machine, int64_t length,
            const Passed& passed)
      : Held("Method '" + method.name + "' at sequence length " + std::to_string(length) + of, method.name, length, passed),
        golden_(golden), adapter_(adapter), method_(method), machine_(machine) {
    pad_batch();
  }

  void evaluate() {
    const auto [loss_sum, correct] = machine_.evaluate_batch(batches_[0], &adapter_.view());
    hold("evaluation loss", {golden_.loss}, {loss_sum / static_cast<double>(batches_[0].tokens_trained)});
  }

  // Steps from the golden adapter with fresh optimizer state: losses, recorded values, gradients, how far pieces move.
  void train(const MethodGolden& known) {
    rates(known);
    machine_.fill(adapter_.view());
    const int64_t micro_batches = machine_.accumulates() ? method_.training.accumulation : 1;
    if (known.micro_batches > micro_batches)
      throw Error(Kind::Golden, "Golden vectors of method '" + method_.name + "', micro_batches", std::to_string(known.micro_batches),
                  "at most " + std::to_string(micro_batches) + ", as its training says", "Build the bundle again");
    batches_.resize(static_cast<size_t>(known.micro_batches), batches_[0]);
    const bool apart = known.gradient && known.gradient->kind == GradientKind::difference;
    if (apart) {
      step(1, known.gradient->divisor);
      gradients(known);
    }
    const size_t steps = length_ == machine_.sequence_lengths().front() ? known.learning_rates.size() : 1;
    for (size_t at = 0; at < steps; at++) {
      const int64_t number = static_cast<int64_t>(at) + 1;
      const Outcome outcome = step(number, known.learning_rates[at]);
      const std::string of = " of step " + std::to_string(number);
      if (at < known.recorded.size()) {
        const auto first = outcome.recorded.begin();
        const size_t count = std::min(known.recorded[at].size(), outcome.recorded.size());
        hold("recorded values" + of, known.recorded[at], {first, first + static_cast<ptrdiff_t>(count)});
      }
      if (at < known.losses.size()) {
        const auto loss = outcome.metrics.find("loss");
        hold("loss" + of, {known.losses[at]}, {loss == outcome.metrics.end() ? std::numeric_limits<double>::quiet_NaN() : loss->second});
      }
      if (at == 0 && known.gradient && !apart) gradients(known);
      if (at == 0 && machine_.replayable())
        replay(outcome.recorded, known.learning_rates[at]);
      else
        machine_.flip();
      if (at < known.moved.size()) moved(known, at);
    }
  }

 private:
  // The golden rows, padded on the right and with empty rows.
  void pad_batch() {
    const int64_t size = method_.training.batch_size, positions = golden_.row_tokens - 1;
    if (golden_.rows > size || positions > length_)
      throw Error(Kind::Golden, "Golden batch for method '" + method_.name + "'",
                  std::to_string(golden_.rows) + " rows of " + std::to_string(positions) + " positions",
                  "at most " + std::to_string(size) + " of " + std::to_string(length_) + ", as its plan takes", "Build the bundle again");
    Batch batch;
    batch.clear_to(size, length_);
    batch.source = Source::general;
    for (int64_t row = 0; row < golden_.rows; row++) {
      batch.row_numbers.push_back(row);
      for (int64_t t = 0; t < positions; t++) {
        const int64_t from = row * golden_.row_tokens + t;
        const size_t to = static_cast<size_t>(row * length_ + t);
        batch.tokens[to] = golden_.tokens[from];
        batch.targets[to] = golden_.tokens[from + 1];
        batch.mask[to] = golden_.mask[from + 1];
        batch.tokens_trained += golden_.mask[from + 1] != 0;
      }
    }
    for (const auto& [name, array] : golden_.arrays) {
      BatchArray& padded = batch.arrays[name];
      if (array.tokens) padded.tokens.assign(batch.tokens.size(), 0);
      if (array.numbers) padded.numbers.assign(batch.tokens.size(), 0.0f);
      for (int64_t row = 0; row < golden_.rows; row++)
        for (int64_t t = 0; t < positions; t++) {
          const size_t from = static_cast<size_t>(row * positions + t), to = static_cast<size_t>(row * length_ + t);
          if (array.tokens) padded.tokens[to] = array.tokens[from];
          if (array.numbers) padded.numbers[to] = array.numbers[from];
        }
    }
    batches_.push_back(std::move(batch));
  }

  Outcome step(int64_t number, double rate) { return machine_.train_step(batches_, rate, number, golden_.seed); }

  void rates(const MethodGolden& known) {
    const Training& training = method_.training;
    std::vector<Known> wanted;
    std::vector<double> got;
    for (double rate : known.learning_rates) {
      wanted.push_back({rate, rate * kRateTolerance});
      got.push_back(learning_rate_at(static_cast<int64_t>(wanted.size()), training.learning_rate, training.schedule, training.warmup_steps,
                                     training.steps.value_or(kLeastSteps)));
    }
    hold("learning rates of the schedule", wanted, got);
  }

  void gradients(const MethodGolden& known) {
    const GradientSource& source = *known.gradient;
    const ByName current = by_name(machine_.state()), following = by_name(machine_.following()), sums = by_name(machine_.sums());
    const bool apart = source.kind == GradientKind::difference;
    const ByName& held = apart ? current : source.kind == GradientKind::accumulator ? sums : following;
    double worst = 0;
    int64_t compared = 0;
    for (const PieceGolden& piece : golden_.pieces) {
      if (std::find(known.trained.begin(), known.trained.end(), piece.name) == known.trained.end()) continue;
      const std::string where = piece.name + (apart ? "" : source.suffix);
      const auto found = held.find(where);
      const bool fits = found != held.end() && found->second.elements() == piece.elements;
      if (!fits) throw mismatch("gradient of " + piece.name, "a plan without '" + where + "'", "a plan that keeps it");
      const NamedTensor& tensor = found->second;
      const float* less = apart ? following.at(piece.name).data : nullptr;
      const double norm = norm_of(tensor.data, less, tensor.elements(), source.divisor);
      const float* elements = golden_.gradients.at(piece.name);
      const std::vector<int64_t> picked = places(piece, tensor.elements(), golden_.seed);
      double sum = 0, largest = -1, largest_got = 0;
      size_t at = 0;
      for (size_t j = 0; j < picked.size(); j++) {
        const int64_t i = picked[j];
        const double got = (static_cast<double>(tensor.data[i]) - (less ? static_cast<double>(less[i]) : 0.0)) / source.divisor;
        const double off = std::fabs(got - static_cast<double>(elements[j]));
        sum += off * off;
        if (off > largest) largest = off, largest_got = got, at = j;
      }
      const double distance = std::sqrt(sum);
      if (!piece.norm->holds(norm) || !(distance <= piece.elements_tolerance))
        throw mismatch("gradient of " + piece.name,
                       "norm " + text_of(norm) + ", " + std::to_string(picked.size()) + " elements " + text_of(distance, 3) +
                           " away (number " + std::to_string(at) + ": " + text_of(largest_got) + ")",
                       "norm " + text_of(piece.norm->value) + " within " + text_of(piece.norm->tolerance, 3) + ", elements within " +
                           text_of(piece.elements_tolerance, 3) + " (number " + std::to_string(at) + ": " + text_of(elements[at]) + ")");
      worst = std::max({worst, share(norm - piece.norm->value, piece.norm->tolerance), share(distance, piece.elements_tolerance)});
      compared += 1 + static_cast<int64_t>(picked.size());
    }
    pass("gradients", compared, worst);
  }

  void moved(const MethodGolden& known, size_t at) {
    const ByName current = by_name(machine_.adapter());
    const std::string after = " after step " + std::to_string(at + 1);
    double worst = 0;
    for (size_t i = 0; i < known.trained.size(); i++) {
      const std::string& name = known.trained[i];
      const Known& wanted = known.moved[at][i];
      const auto found = current.find(name);
      if (found == current.end() || found->second.elements() != elements_of(name))
        throw mismatch(name + after, "a plan without it", "a plan that trains it");
      const double got = norm_of(found->second.data, adapter_.view().at(name).data, found->second.elements());
      if (!wanted.holds(got))
        throw mismatch(name + after, "a distance of " + text_of(got) + " from its start",
                       text_of(wanted.value) + " within " + text_of(wanted.tolerance, 3));
      worst = std::max(worst, share(got - wanted.value, wanted.tolerance));
    }
    pass("updates" + after, static_cast<int64_t>(known.trained.size()), worst);
  }

  // The journal must give the very bits that the step stored. Hashes stand for them: no copy of the state.
  void replay(const std::vector<float>& recorded, double rate) {
    std::map<std::string, std::string> stored;
    for (const NamedTensor& tensor : machine_.following()) stored[tensor.name] = bits_of(tensor);
    machine_.replay_step(recorded, rate, 1, golden_.seed);
    for (const NamedTensor& tensor : machine_.state())
      if (stored[tensor.name] != bits_of(tensor))
        throw mismatch(tensor.name + " replayed from the journal", "other bits", "those that the step stored");
    pass("replay of step 1", static_cast<int64_t>(stored.size()), 0);
  }

  int64_t elements_of(const std::string& name) const {
    for (const PieceGolden& piece : golden_.pieces)
      if (piece.name == name) return piece.elements;
    return -1;
  }

  const Golden& golden_;
  const GoldenAdapter& adapter_;
  const Method& method_;
  Steps& machine_;
  std::vector<Batch> batches_;  // the same one, as often as a step takes it
};

constexpr double kRounded = 100;  // times the tolerance of exact products, for a prompt whose products are rounded to 16 bits

// The last token of the first row, from a prefill of those before it and one decode, and from one decode of the last ones together. Also
// from a prefill that is rounded, as in an answer.
void prove_answer(Machine& machine, const Golden& golden, const GoldenAdapter& adapter, const Passed& passed) {
  const std::vector<int64_t> prompt(golden.tokens, golden.tokens + golden.row_tokens - 1);
  const int64_t target = golden.tokens[golden.row_tokens - 1];
  Held held("The plan for answers", "generation", machine.chunk(), passed);
  const auto hold = [&](const std::string& what, const std::vector<float>& logits, double more = 1) {
    if (static_cast<int64_t>(logits.size()) <= target)
      throw held.mismatch(what, std::to_string(logits.size()) + " logits", "one for each token");
    const double highest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
    const Known wanted = {golden.next_token_loss.value, golden.next_token_loss.tolerance * more};
    held.hold(what, {wanted}, {highest + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(target)])});
  };
  const auto exact = kernels::Precision::Exact, rounded = kernels::Precision::Rounded;
  hold("next-token loss of prefill and decode", machine.next_token_logits(prompt, adapter.view(), exact));
  hold("next-token loss of a rounded prefill and decode", machine.next_token_logits(prompt, adapter.view(), rounded), kRounded);
  if (!machine.has_room_for_rows(0)) return;
  const auto last = std::min<ptrdiff_t>(machine.rows(), static_cast<ptrdiff_t>(prompt.size()));
  const auto first = prompt.end() - last;
  machine.prefill({prompt.begin(), first}, 0, adapter.view(), exact);
  machine.decode_rows({first, prompt.end()}, first - prompt.begin(), adapter.view());
  hold("next-token loss of prefill and decode_rows", machine.row_logits(last - 1));
}

void prove(Bundle& bundle, const Golden& golden, const MakeMachine& make_machine, const MakeAnswering& make_answering,
           const Passed& passed) {
  const GoldenAdapter adapter(bundle.tensors(bundle.manifest().adapter), golden);
  const Limits no_limits;
  const auto prove_method = [&](const Method& method, const std::string& of) {
    MemoryGuard guard(no_limits);
    const std::unique_ptr<Steps> machine = make_machine(method, guard, "");
    const auto known =
        std::find_if(golden.methods.begin(), golden.methods.end(), [&](const MethodGolden& one) { return one.name == method.name; });
    for (int64_t length : machine->sequence_lengths()) {
      MethodRun run(golden, adapter, method, of, *machine, length, passed);
      run.evaluate();
      if (known != golden.methods.end() && !known->learning_rates.empty()) run.train(*known);
    }
  };
  for (const Method& method : bundle.manifest().methods) {
    prove_method(method, "");
    for (const SmallerPlans& smaller : method.smaller)
      prove_method(method.by(smaller), ", planned for " + megabytes(static_cast<int64_t>(smaller.memory_bytes)));
  }
  const auto prove_answers = [&](const PlanRecord& plan) {
    MemoryGuard guard(no_limits);
    prove_answer(*make_answering(plan, guard), golden, adapter, passed);
  };
  if (bundle.manifest().generation) prove_answers(*bundle.manifest().generation);
  for (const SmallerPlans& smaller : bundle.manifest().smaller_generation) prove_answers(smaller.plans.front());
}

Ordered document_of(const Check& check) {
  Ordered document;
#define BESPOKE_FIELD(name) document[#name] = json_of<Ordered>(check.name);
#include "../../../schema/passed_check.inc"
#undef BESPOKE_FIELD
  return document;
}

}  // namespace

std::string verify(Bundle& bundle, const MakeMachine& make_machine, const MakeAnswering& make_answering,
                   const std::function<void(const Check&)>& on_check) {
  const auto began = std::chrono::steady_clock::now();
  Ordered checks = Ordered::array();
  const Passed passed = [&](const Check& check) {
    checks.push_back(document_of(check));
    if (on_check) on_check(check);
  };
  int64_t files = 0, done = 0, all = 0;
  for (const auto& [name, record] : bundle.manifest().files) all += static_cast<int64_t>(record.size);
  for (const auto& [name, record] : bundle.manifest().files) {
    ThisCall::tell(done, all);
    bundle.hash_again(name);
    done += static_cast<int64_t>(record.size);
    files++;
  }
  passed({"files", std::nullopt, std::nullopt, files, 0});
  adapter_of(bundle);  // its types
  size_t texts_skipped = 0;
  const std::optional<std::string>& name = bundle.manifest().golden;
  if (name) {
    const Manifest& manifest = bundle.manifest();
    Golden known = read_golden(bundle.tensors(*name), *name, bundle.tensors(manifest.adapter), manifest.vocab_size);
    const size_t held = hold_texts(bundle, known.texts);
    texts_skipped = known.texts.size() - held;
    known.texts = {};
    if (held) passed({"texts", std::nullopt, std::nullopt, static_cast<int64_t>(held), 0});
    prove(bundle, known, make_machine, make_answering, passed);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const bool golden = name.has_value();
  const char* const runtime = "core";
  Ordered document;
#define BESPOKE_FIELD(name) document[#name] = json_of<Ordered>(name);
#include "../../../schema/verify_report.inc"
#undef BESPOKE_FIELD
  return document.dump();
}

}  // namespace bespoke
