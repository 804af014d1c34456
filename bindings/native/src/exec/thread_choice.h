// SPDX-License-Identifier: Apache-2.0
// How many of an engine's threads the steps of a run use. On a phone nobody knows it before: cores differ, and heat slows the fast ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bespoke {

// Tries 2, 4 and `most` threads on the first steps, two of each in turns, and keeps the number with the fastest step. Tries again when
// three steps in a row take more than 1.3 times as long as that one. Steps must be of equal work.
class ThreadChoice {
 public:
  explicit ThreadChoice(int32_t most);

  int32_t threads() const { return candidates_[next_].threads; }  // for the next step
  bool is_trying() const { return left_ > 0; }
  void add(double seconds);  // of a step with threads()

 private:
  struct Candidate {
    int32_t threads;
    double seconds;  // of its fastest step
  };
  void try_all();

  std::array<Candidate, 3> candidates_{};
  size_t count_ = 0, next_ = 0;
  size_t left_ = 0;  // steps to try
  int slow_ = 0;     // steps in a row
};

}  // namespace bespoke
