// SPDX-License-Identifier: Apache-2.0
// Golden vectors as data: what a bundle says that its plans must compute, and how close a runtime has to come. The file and its
// checks are those of sdk/bespoke/golden/document.py; docs/explanation/golden_vectors.md says where the numbers come from.
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "format/bundle/bundle.h"
#include "exec/steps.h"

namespace bespoke {

struct Known {  // a number, and by how much another may differ from it
  double value = 0, tolerance = 0;
  bool holds(double got) const { return std::fabs(got - value) <= tolerance; }  // false for a NaN too
};

struct PieceGolden {  // one piece of the adapter
  std::string name;
  uint32_t block, tensor;     // its place in the noise counter
  std::optional<Known> norm;  // of its gradient; none where no method of the bundle yields gradients
  double elements_tolerance;  // largest norm of the difference of the elements in `gradient.<piece>`
  int64_t elements;           // of the piece
};

struct GradientSource {  // where a runtime finds the gradient after the first step: `<piece><suffix>`, to be divided
  GradientKind kind;
  std::string suffix;
  double divisor;
};

struct MethodGolden {  // the first steps of a method from the golden adapter, on the golden batch
  std::string name;
  std::vector<double> learning_rates;
  int64_t micro_batches;
  std::vector<Known> losses;
  std::vector<std::vector<Known>> recorded;
  std::vector<std::string> trained;
  std::optional<GradientSource> gradient;
  std::vector<std::vector<Known>> moved;
};

struct GoldenArray {  // [rows, row_tokens - 1], mapped: one of the two
  const int32_t* tokens = nullptr;
  const float* numbers = nullptr;
};

struct GoldenText {  // a user's words and their tokens
  std::string text;
  std::vector<int32_t> ids;
};

struct Golden {
  uint64_t seed = 0;
  double b_scale = 0;
  Known loss, next_token_loss;
  std::vector<PieceGolden> pieces;
  std::vector<MethodGolden> methods;
  std::vector<GoldenText> texts;
  int64_t rows = 0, row_tokens = 0;
  const int32_t* tokens = nullptr;  // [rows, row_tokens], mapped
  const uint8_t* mask = nullptr;
  std::map<std::string, const float*> gradients;  // elements at `places`
  std::map<std::string, GoldenArray> arrays;      // that methods ask for, by their names
};

// Holds the file against itself, the adapter's shapes and the vocabulary. BundleError for what does not fit. The tensors stay mapped.
Golden read_golden(const Tensors& tensors, const std::string& subject, const Tensors& adapter, int64_t vocab_size);

// Indices of the elements that are compared: all in order where there are few, else drawn by counter; one may come twice.
std::vector<int64_t> places(const PieceGolden& piece, int64_t size, uint64_t seed);

// The golden adapter: the bundle's initial one, in place, with each B replaced by noise (step 0, query 0) times b_scale.
class GoldenAdapter {
 public:
  GoldenAdapter(const Tensors& initial, const Golden& golden);
  const TensorSource& view() const { return view_; }

 private:
  std::vector<std::vector<float>> drawn_;
  TensorSource view_;
};

}  // namespace bespoke
