// SPDX-License-Identifier: Apache-2.0
#include "train/best_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "train/stored_losses.h"
#include "train/tensor_views.h"

namespace bespoke {

namespace {

// In floating-point operations, by the plans' estimates.
class Work {
 public:
  explicit Work(const Method& method) : batch_size_(method.training.batch_size) {
    for (const PlanRecord& plan : method.plans) of_step_[plan.sequence_length] = static_cast<double>(plan.estimate.work_flops);
  }
  double of_step(int64_t tokens) const { return of_step_.at(length_for(tokens)); }
  // Of looking at rows once, in the batches in which they are. A step takes at least two forward passes, so half of it is an upper bound.
  double of_judging(const std::vector<RowPlace>& rows) const {
    std::map<int64_t, int64_t> by_length;
    for (const RowPlace& row : rows) by_length[length_for(row.length)]++;
    double work = 0;
    for (const auto& [length, count] : by_length)
      work += static_cast<double>((count + batch_size_ - 1) / batch_size_) * of_step_.at(length) / 2;
    return work;
  }
  // Of a step on rows drawn from these, at least: a batch is as long as its longest row.
  double mean_step(const RowSource& rows) const {
    double sum = 0;
    for (size_t row = 0; row < rows.size(); row++) sum += of_step(static_cast<int64_t>(rows.length(row)));
    return sum / static_cast<double>(rows.size());
  }

 private:
  int64_t length_for(int64_t tokens) const {
    const auto found = of_step_.lower_bound(tokens - 1);
    return found == of_step_.end() ? of_step_.rbegin()->first : found->first;  // too long a row is refused when it is read
  }

  int64_t batch_size_;
  std::map<int64_t, double> of_step_;  // by sequence length
};

std::vector<int64_t> multiples(int64_t steps, int64_t every) {  // of `every` tenths, back from the last step
  std::vector<int64_t> found;
  for (int64_t tenth = kTenths; tenth > 0; tenth -= every) found.push_back((steps * tenth + kTenths - 1) / kTenths);
  std::reverse(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace

Choosing choosing_of(const Method& method, int64_t run_steps, const std::vector<RowPlace>& held_out, const RowSource& user,
                     const RowSource& general) {
  if (held_out.empty() || user.size() == 0) return {};
  const Training& training = method.training;
  const Work work(method);
  const double share = general.size() ? training.general_share : 0;
  const double mean = (1 - share) * work.mean_step(user) + (share > 0 ? share * work.mean_step(general) : 0);
  const double allowed = kJudgingShare * static_cast<double>(run_steps * training.accumulation) * mean;
  Choosing choosing;
  for (const RowPlace& row : held_out) {
    choosing.rows.push_back(row);
    if (choosing.rows.size() == 1 || work.of_judging(choosing.rows) * kLeastJudgements <= allowed) continue;
    choosing.rows.pop_back();
    break;
  }
  const double one = work.of_judging(choosing.rows);
  for (int64_t every = 1; every < kTenths && choosing.steps.empty(); every++) {
    std::vector<int64_t> steps = multiples(run_steps, every);
    if (static_cast<double>(steps.size()) * one <= allowed) choosing.steps = std::move(steps);
  }
  if (choosing.steps.size() < 2) return {};  // nothing to choose from
  return choosing;
}

BestStepSearch::BestStepSearch(Steps& machine, StateStore& store, const Run& run, Choosing choosing, EvaluationRules rules)
    : machine_(machine), store_(store), run_(run.id), run_steps_(run.steps), steps_(std::move(choosing.steps)),
      rows_(user_rows(store, std::move(choosing.rows))), rules_(rules), judged_(store.judged_steps(run.id)) {}

bool BestStepSearch::look(int64_t step) {
  const bool is_due = std::binary_search(steps_.begin(), steps_.end(), step);
  const bool is_known = std::any_of(judged_.begin(), judged_.end(), [&](const JudgedStep& one) { return one.step == step; });
  if (!is_due || is_known) return true;
  machine_.control().tell(Phase::judge, step, run_steps_);
  StoredLosses known(store_, -run_, step);
  const double loss = loss_on(machine_, *rows_, nullptr, rules_, known).value_or(std::nan(""));
  const JudgedStep judged{step, std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss};
  const bool is_best = std::isfinite(judged.loss) &&
                       std::all_of(judged_.begin(), judged_.end(), [&](const JudgedStep& one) { return judged.loss < one.loss; });
  const std::vector<NamedTensor> adapter = machine_.adapter();
  const std::vector<StateTensor> tensors = state_tensors(adapter);
  if (!store_.keep_judged_step(run_, judged, is_best ? &tensors : nullptr)) return false;
  judged_.push_back(judged);
  return true;
}

bool BestStepSearch::given_up(int64_t step) const {
  double best = std::numeric_limits<double>::infinity();
  int64_t since = 0;
  for (const JudgedStep& one : judged_) {
    if (one.step > step) break;
    since = one.loss < best ? 0 : since + 1;
    best = std::min(best, one.loss);
  }
  return since >= kPatience;
}

std::optional<int64_t> BestStepSearch::best() const {
  const auto found = std::min_element(judged_.begin(), judged_.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
  if (found == judged_.end() || !std::isfinite(found->loss)) return std::nullopt;
  return found->step;
}

}  // namespace bespoke
