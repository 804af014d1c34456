// SPDX-License-Identifier: Apache-2.0
#include "generate/scoring.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "error.h"

namespace bespoke {

namespace {

using Tokens = std::vector<int64_t>;

// Candidates that begin with the same tokens, and how likely these are behind the prompt.
struct Beginning {
  Tokens tokens;
  double log_probability;
  std::vector<size_t> candidates;  // in their order
};

// ln of the sum of e^logit, which a logit is to be held against.
double log_sum(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double found = largest + std::log(sum);
  if (std::isfinite(found)) return found;
  throw Error(Kind::Generation, "logits", std::to_string(found), "finite numbers",
              "Check the adapter: training may have diverged; roll back to an earlier one");
}

// By prompt: a template may set messages before one answer apart from those before another.
std::vector<Beginning> prompts_of(const std::vector<Candidate>& candidates) {
  std::map<Tokens, std::vector<size_t>> by_prompt;
  for (size_t i = 0; i < candidates.size(); i++) {
    const Tokens& tokens = candidates[i].tokens;
    by_prompt[{tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(candidates[i].begin)}].push_back(i);
  }
  std::vector<Beginning> prompts;
  for (const auto& [tokens, which] : by_prompt) prompts.push_back({tokens, 0, which});
  return prompts;
}

// Of those that go on: one token further.
std::vector<Beginning> longer(const Beginning& beginning, const std::vector<Candidate>& candidates, const NextLogits& next_logits) {
  std::map<int64_t, std::vector<size_t>> by_token;
  for (const size_t i : beginning.candidates)
    if (candidates[i].tokens.size() > beginning.tokens.size()) by_token[candidates[i].tokens[beginning.tokens.size()]].push_back(i);
  std::vector<Beginning> found;
  if (by_token.empty()) return found;
  const std::vector<float> logits = next_logits(beginning.tokens);
  const double sum = log_sum(logits);
  for (const auto& [token, which] : by_token) {
    Tokens tokens = beginning.tokens;
    tokens.push_back(token);
    found.push_back({std::move(tokens), beginning.log_probability + logits.at(static_cast<size_t>(token)) - sum, which});
  }
  return found;
}

void fill(const Beginning& beginning, const std::vector<Candidate>& candidates, const NextLogits& next_logits, std::vector<double>& found) {
  for (const size_t i : beginning.candidates)
    if (candidates[i].tokens.size() == beginning.tokens.size()) found[i] = beginning.log_probability;
  for (const Beginning& next : longer(beginning, candidates, next_logits)) fill(next, candidates, next_logits, found);
}

// The likeliest candidate behind a beginning, where it is likelier than `best`. A branch is read to its end before the next one: what it
// shares with the one before is in the cache then.
void search(const Beginning& beginning, const std::vector<Candidate>& candidates, const NextLogits& next_logits,
            std::optional<Likeliest>& best) {
  for (const size_t i : beginning.candidates) {
    if (candidates[i].tokens.size() != beginning.tokens.size()) continue;
    const Likeliest found = {i, beginning.log_probability};
    if (!best || found.log_probability > best->log_probability ||
        (found.log_probability == best->log_probability && found.candidate < best->candidate))
      best = found;
  }
  std::vector<Beginning> branches = longer(beginning, candidates, next_logits);
  std::stable_sort(branches.begin(), branches.end(),
                   [](const Beginning& a, const Beginning& b) { return a.log_probability > b.log_probability; });
  for (const Beginning& branch : branches) {
    if (best && branch.log_probability < best->log_probability) return;  // an answer is at most as likely as its beginning
    search(branch, candidates, next_logits, best);
  }
}

}  // namespace

std::vector<double> log_probabilities(const std::vector<Candidate>& candidates, const NextLogits& next_logits) {
  std::vector<double> found(candidates.size());
  for (const Beginning& prompt : prompts_of(candidates)) fill(prompt, candidates, next_logits, found);
  return found;
}

Likeliest likeliest(const std::vector<Candidate>& candidates, const NextLogits& next_logits) {
  std::optional<Likeliest> best;
  for (const Beginning& prompt : prompts_of(candidates)) search(prompt, candidates, next_logits, best);
  return *best;
}

}  // namespace bespoke
