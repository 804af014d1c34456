// SPDX-License-Identifier: Apache-2.0
// A few greedy answers of a new adapter, next to those of the base model: adapters that never end, say nothing or repeat what they
// learned are refused. How long answers are, and how they begin, is reported only: a user may want short ones.
#pragma once

#include <optional>
#include <string>

#include "exec/control.h"
#include "state/store.h"
#include "train/batches.h"

namespace bespoke {

constexpr size_t kMostAnswers = 4, kLeastAnswers = 2;  // of fewer, none is asked for: a single one shows too little
constexpr size_t kMostAnswerTokens = 64;               // of an answer, its end among them
constexpr size_t kShortAnswerTokens = 32;              // of a base's answer, its end among them
constexpr size_t kFirstTokens = 4;                     // that are compared with the base's

// The plan for answers, ready to run: it answers token by token.
class AnswerSteps {
 public:
  virtual ~AnswerSteps() = default;
  virtual void read(const std::vector<int64_t>& tokens, const AdapterView& adapter) = 0;  // the beginning of another conversation
  virtual std::vector<float> next(int64_t token, const AdapterView& adapter) = 0;         // a token more of it: what follows
};

struct AskedAnswer {
  std::vector<int64_t> prompt, base;  // `base`: the base model's answer, without its end; never empty
};

// The behaviour rows with the shortest answers that end, the first ones first among equals: at most kMostAnswers.
std::vector<AskedAnswer> asked_answers(const RowSource& rows, const std::vector<int64_t>& stop_ids, int64_t context_length);

struct CheckedAnswers {
  int64_t count = 0;
  std::optional<double> tokens, base_tokens;  // means, without their ends
  std::optional<double> first_tokens_kept;    // share of the first tokens of the base's answers
  std::optional<Unchecked> unchecked_because;
};

// Where answers are kept, and whose they are.
struct AnswersOf {
  StateStore& store;
  int64_t run, step;
};

struct GivenAnswer {
  std::vector<int64_t> tokens;  // without its end
  bool ended = false;
};

// Each answer is kept once it is there, and not computed again. Throws Abandoned between two tokens.
std::vector<GivenAnswer> given_answers(AnswerSteps& model, const AdapterView& adapter, const std::vector<AskedAnswer>& asked,
                                       const std::vector<int64_t>& stop_ids, AnswersOf kept, Control& control);

CheckedAnswers checked(const std::vector<AskedAnswer>& asked, const std::vector<GivenAnswer>& given);

// Why answers like these refuse an adapter; none: they do not. `learned`: the rows that it was trained on.
std::optional<Refused> refused_for(const std::vector<AskedAnswer>& asked, const std::vector<GivenAnswer>& given, const RowSource& learned,
                                   const std::vector<int64_t>& stop_ids, Control& control);

}  // namespace bespoke
