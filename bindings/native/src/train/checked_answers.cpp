// SPDX-License-Identifier: Apache-2.0
#include "train/checked_answers.h"

#include <algorithm>

#include "error.h"
#include "format/hash.h"
#include "generate/sampling.h"

namespace bespoke {

namespace {

bool is_in(const std::vector<int64_t>& ids, int64_t token) { return std::find(ids.begin(), ids.end(), token) != ids.end(); }

std::vector<int64_t> without_end(std::vector<int64_t> tokens, const std::vector<int64_t>& stop_ids) {
  while (!tokens.empty() && is_in(stop_ids, tokens.back())) tokens.pop_back();
  return tokens;
}

// The first part of a row from `position` on whose tokens are all trained on; `position` is moved behind it. Empty: there is none.
std::vector<int64_t> next_trained_part(const Row& row, size_t& position) {
  while (position < row.tokens.size() && !row.mask[position]) position++;
  std::vector<int64_t> part;
  for (; position < row.tokens.size() && row.mask[position]; position++) part.push_back(row.tokens[position]);
  return part;
}

std::string name_of(const std::vector<int64_t>& prompt) {
  return sha256_hex({reinterpret_cast<const uint8_t*>(prompt.data()), prompt.size() * sizeof(int64_t)});
}

// None where the logits are no numbers.
std::optional<int64_t> likeliest(const std::vector<float>& logits) {
  try {
    return choose_token(logits, Sampling{}, 0);
  } catch (const Error& error) {
    if (error.kind != Kind::Generation) throw;
    return std::nullopt;
  }
}

// Its last token is one that ends answers, unless it has as many tokens as one may have.
std::vector<int32_t> answer_to(const std::vector<int64_t>& prompt, AnswerSteps& model, const AdapterView& adapter,
                               const std::vector<int64_t>& stop_ids, const Control& control) {
  control.check();
  model.read({prompt.begin(), prompt.end() - 1}, adapter);
  std::vector<int32_t> answer;
  for (int64_t token = prompt.back(); answer.size() < kMostAnswerTokens;) {
    control.check();
    const std::optional<int64_t> next = likeliest(model.next(token, adapter));
    if (!next) break;
    answer.push_back(static_cast<int32_t>(*next));
    if (is_in(stop_ids, *next)) break;
    token = *next;
  }
  return answer;
}

bool is_refusing(size_t bad, size_t checked) { return bad >= kLeastAnswers && 2 * bad >= checked; }

// How many answers are what some row teaches, and not what the base says.
size_t copied(const std::vector<AskedAnswer>& asked, const std::vector<GivenAnswer>& given, const RowSource& learned,
              const std::vector<int64_t>& stop_ids, const Control& control) {
  std::vector<bool> is_copy(given.size());
  Row row;
  for (size_t number = 0; number < learned.size(); number++) {
    control.check();
    learned.read(number, row);
    for (size_t position = 0; position < row.tokens.size();) {
      const std::vector<int64_t> part = without_end(next_trained_part(row, position), stop_ids);
      if (part.empty()) continue;
      for (size_t i = 0; i < given.size(); i++)
        if (given[i].tokens == part && asked[i].base != part) is_copy[i] = true;
    }
  }
  return static_cast<size_t>(std::count(is_copy.begin(), is_copy.end(), true));
}

}  // namespace

std::vector<AskedAnswer> asked_answers(const RowSource& rows, const std::vector<int64_t>& stop_ids, int64_t context_length) {
  std::vector<AskedAnswer> found;
  Row row;
  for (size_t number = 0; number < rows.size(); number++) {
    rows.read(number, row);
    size_t position = 0;
    const std::vector<int64_t> answer = next_trained_part(row, position);
    const size_t begin = position - answer.size();
    const bool ends = !answer.empty() && answer.size() <= kShortAnswerTokens && is_in(stop_ids, answer.back());
    if (!ends || begin == 0 || begin + kMostAnswerTokens > static_cast<size_t>(context_length)) continue;
    AskedAnswer one{{row.tokens.begin(), row.tokens.begin() + static_cast<ptrdiff_t>(begin)}, without_end(answer, stop_ids)};
    if (!one.base.empty()) found.push_back(std::move(one));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.base.size() < b.base.size(); });
  if (found.size() > kMostAnswers) found.resize(kMostAnswers);
  return found;
}

std::vector<GivenAnswer> given_answers(AnswerSteps& model, const AdapterView& adapter, const std::vector<AskedAnswer>& asked,
                                       const std::vector<int64_t>& stop_ids, AnswersOf kept, Control& control) {
  std::vector<GivenAnswer> given;
  for (const AskedAnswer& one : asked) {
    const std::string prompt = name_of(one.prompt);
    std::optional<std::vector<int32_t>> answer = kept.store.answer(kept.run, kept.step, prompt);
    if (!answer) {
      answer = answer_to(one.prompt, model, adapter, stop_ids, control);
      kept.store.keep_answer(kept.run, kept.step, prompt, *answer);
    }
    const bool ended = !answer->empty() && is_in(stop_ids, answer->back());
    given.push_back({without_end({answer->begin(), answer->end()}, stop_ids), ended});
  }
  return given;
}

CheckedAnswers checked(const std::vector<AskedAnswer>& asked, const std::vector<GivenAnswer>& given) {
  CheckedAnswers sums;
  double tokens = 0, base_tokens = 0, first = 0, same = 0;
  for (size_t i = 0; i < given.size(); i++) {
    const std::vector<int64_t>&own = given[i].tokens, &base = asked[i].base;
    tokens += static_cast<double>(own.size());
    base_tokens += static_cast<double>(base.size());
    for (size_t place = 0; place < std::min(kFirstTokens, base.size()); place++) {
      first++;
      same += place < own.size() && own[place] == base[place];
    }
  }
  const auto count = static_cast<double>(given.size());
  sums.count = static_cast<int64_t>(given.size());
  sums.tokens = tokens / count;
  sums.base_tokens = base_tokens / count;
  sums.first_tokens_kept = same / first;
  return sums;
}

std::optional<Refused> refused_for(const std::vector<AskedAnswer>& asked, const std::vector<GivenAnswer>& given, const RowSource& learned,
                                   const std::vector<int64_t>& stop_ids, Control& control) {
  const auto empty = std::count_if(given.begin(), given.end(), [](const GivenAnswer& one) { return one.tokens.empty(); });
  if (is_refusing(static_cast<size_t>(empty), given.size())) return Refused::answers_empty;
  if (std::none_of(given.begin(), given.end(), [](const GivenAnswer& one) { return one.ended; })) return Refused::answers_endless;
  if (is_refusing(copied(asked, given, learned, stop_ids, control), given.size())) return Refused::answers_copied;
  return std::nullopt;
}

}  // namespace bespoke
