// SPDX-License-Identifier: Apache-2.0
// How likely given answers to a prompt are. They are read as a trie: where several begin alike, the model computes the beginning once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bespoke {

struct Score {  // of an answer: ln p(answer | prompt), over its tokens and what ends it
  double log_probability;
  int64_t tokens;
};

struct Classification {  // the likeliest of some labels
  std::string label;
  double log_probability;
};

struct Candidate {
  std::vector<int64_t> tokens;  // of the prompt, at least one, and of the answer behind it, at least one
  size_t begin;                 // of the answer
};

using NextLogits = std::function<std::vector<float>(const std::vector<int64_t>& tokens)>;

// Of each candidate ln p(answer | prompt): the sum over its tokens.
std::vector<double> log_probabilities(const std::vector<Candidate>& candidates, const NextLogits& next_logits);

struct Likeliest {
  size_t candidate;  // the first of several that are equal
  double log_probability;
};

// The likeliest of at least one, for less: of what begins less likely than the likeliest answer is, nothing more is computed.
Likeliest likeliest(const std::vector<Candidate>& candidates, const NextLogits& next_logits);

}  // namespace bespoke
