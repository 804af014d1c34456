// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_document.h"

#include <algorithm>
#include <set>

#include "format/json.h"
#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"
#include "exec/noise.h"

namespace bespoke {

namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxElements = 4096;  // of a gradient
constexpr size_t kMaxDocumentBytes = 16 << 20, kMaxTexts = 500, kMaxSteps = 3;
const char* const kAgain = "Get the bundle again from where it was built";

Error refused(const std::string& subject, const std::string& got, const std::string& expected) {
  return Error(Kind::Bundle, subject, got, expected, kAgain);
}

// One object of the document: every field is asked for once, a missing or an unknown one is an error.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw refused(where_, shown(object), "an object");
  }

  const Json& at(const char* name) {
    const auto found = object_.find(name);
    if (found == object_.end()) throw refused(path(name), "nothing", "a value");
    asked_.insert(name);
    return *found;
  }
  std::string path(const std::string& name) const { return where_ + ", " + name; }

  double number(const char* name, double least = -1e308) {
    const Json& value = at(name);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least)
      throw refused(path(name), shown(value), "a finite number within its range");
    return value.get<double>();
  }
  int64_t integer(const char* name, int64_t least, int64_t below) {
    const Json& value = at(name);
    if (!value.is_number_integer() || value < least || value >= below)
      throw refused(path(name), shown(value), "an integer from " + std::to_string(least) + " to " + std::to_string(below - 1));
    return value.get<int64_t>();
  }
  std::string text(const char* name) {
    const Json& value = at(name);
    if (!value.is_string()) throw refused(path(name), shown(value), "a text");
    return value.get<std::string>();
  }
  const Json& list(const char* name, size_t most) {
    const Json& value = at(name);
    if (!value.is_array() || value.size() > most) throw refused(path(name), shown(value), "a list of at most " + std::to_string(most));
    return value;
  }
  void end() const {
    for (const auto& entry : object_.items())
      if (!asked_.count(entry.key())) throw refused(path(entry.key()), "a field that is not known", "none such");
  }

 private:
  static std::string shown(const Json& value) { return value.is_structured() ? value.type_name() : value.dump().substr(0, 100); }

  const Json& object_;
  std::string where_;
  std::set<std::string> asked_;
};

constexpr size_t kAny = SIZE_MAX;

Known known(const Json& object, const std::string& where) {
  Fields fields(object, where);
  const Known found{fields.number("value"), fields.number("tolerance", 0)};
  fields.end();
  return found;
}

std::vector<Known> knowns(const Json& list, const std::string& where) {
  if (!list.is_array()) throw refused(where, list.type_name(), "a list");
  std::vector<Known> found;
  for (const Json& entry : list) found.push_back(known(entry, where + "." + std::to_string(found.size())));
  return found;
}

std::vector<std::vector<Known>> rows_of_knowns(const Json& list, const std::string& where) {
  std::vector<std::vector<Known>> found;
  for (const Json& entry : list) found.push_back(knowns(entry, where + "." + std::to_string(found.size())));
  return found;
}

PieceGolden piece_of(const Json& object, const std::string& where) {
  Fields fields(object, where);
  PieceGolden piece{};
  piece.name = fields.text("name");
  piece.block = static_cast<uint32_t>(fields.integer("block", 0, 1 << 16));
  piece.tensor = static_cast<uint32_t>(fields.integer("tensor", 0, 1 << 16));
  const Json& gradient = fields.at("gradient");
  if (!gradient.is_null()) {
    Fields inner(gradient, fields.path("gradient"));
    piece.norm = known(inner.at("norm"), inner.path("norm"));
    piece.elements_tolerance = inner.number("tolerance", 0);
    inner.end();
  }
  fields.end();
  return piece;
}

GradientSource gradient_of(const Json& object, const std::string& where) {
  Fields fields(object, where);
  GradientSource source{};
  const std::string name = fields.text("kind");
  const auto kind = value_named<GradientKind>(name);
  if (!kind) throw refused(fields.path("kind"), "'" + name + "'", "accumulator, moment or difference");
  source.kind = *kind;
  source.suffix = fields.text("suffix");
  source.divisor = fields.number("divisor", 0);
  if (source.divisor <= 0 || source.suffix.size() > 32) throw refused(where, "a divisor of 0 or a long suffix", "neither");
  fields.end();
  return source;
}

MethodGolden method_of(const Json& object, const std::string& where) {
  Fields fields(object, where);
  MethodGolden method{};
  method.name = fields.text("name");
  for (const Json& rate : fields.list("learning_rates", kMaxSteps)) {
    if (!rate.is_number()) throw refused(fields.path("learning_rates"), rate.type_name(), "numbers");
    method.learning_rates.push_back(rate.get<double>());
  }
  method.micro_batches = fields.integer("micro_batches", 1, 65536);
  method.losses = knowns(fields.list("losses", kMaxSteps), fields.path("losses"));
  method.recorded = rows_of_knowns(fields.list("recorded", kMaxSteps), fields.path("recorded"));
  for (const Json& name : fields.list("trained", kAny)) {
    if (!name.is_string()) throw refused(fields.path("trained"), name.type_name(), "names of pieces");
    method.trained.push_back(name.get<std::string>());
  }
  const Json& gradient = fields.at("gradient");
  if (!gradient.is_null()) method.gradient = gradient_of(gradient, fields.path("gradient"));
  method.moved = rows_of_knowns(fields.list("moved", kMaxSteps), fields.path("moved"));
  fields.end();
  return method;
}

GoldenText text_of(const Json& object, const std::string& where) {
  Fields fields(object, where);
  GoldenText text{fields.text("text"), {}};
  for (const Json& id : fields.list("ids", kAny)) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) throw refused(fields.path("ids"), shown(id), "token ids");
    text.ids.push_back(id.get<int32_t>());
  }
  fields.end();
  return text;
}

Golden document_of(const Tensor& tensor, const std::string& subject) {
  const JsonRules rules{subject, Kind::Bundle, kAgain, kMaxDocumentBytes, 16, 4'000'000};
  const OwnedJson owned = parse_json({tensor.data, tensor.size}, rules);
  const Json& document = *owned;
  const auto version = document.is_object() ? document.find("version") : document.end();
  if (!document.is_object() || version == document.end() || *version != kVersion)
    throw refused(subject, "golden vectors of another version", std::to_string(kVersion));
  Fields fields(document, subject);
  fields.at("version");
  Golden golden;
  golden.seed = static_cast<uint64_t>(fields.integer("seed", 0, INT64_MAX));
  golden.b_scale = fields.number("b_scale", 0);
  if (golden.b_scale <= 0) throw refused(fields.path("b_scale"), "0", "a number above 0");
  golden.loss = known(fields.at("loss"), fields.path("loss"));
  golden.next_token_loss = known(fields.at("next_token_loss"), fields.path("next_token_loss"));
  for (const Json& piece : fields.list("pieces", kAny))
    golden.pieces.push_back(piece_of(piece, fields.path("pieces." + std::to_string(golden.pieces.size()))));
  for (const Json& method : fields.list("methods", kAny))
    golden.methods.push_back(method_of(method, fields.path("methods." + std::to_string(golden.methods.size()))));
  for (const Json& text : fields.list("texts", kMaxTexts))
    golden.texts.push_back(text_of(text, fields.path("texts." + std::to_string(golden.texts.size()))));
  fields.end();
  return golden;
}

void check_method(const MethodGolden& method, const std::string& subject, const std::set<std::string>& pieces,
                  const std::map<std::string, const float*>& with_gradient) {
  const size_t steps = method.learning_rates.size();
  if (std::max({method.losses.size(), method.recorded.size(), method.moved.size()}) > steps)
    throw refused(subject, "more results than learning rates", "at most " + std::to_string(steps));
  bool fine = true;
  for (const std::string& name : method.trained) fine = fine && pieces.count(name);
  for (const auto& row : method.moved) fine = fine && row.size() == method.trained.size();
  if (!fine) throw refused(subject, "trained pieces that do not fit", "pieces of the adapter, and a distance for each");
  if (!method.gradient) return;
  for (const std::string& name : method.trained)
    if (!with_gradient.count(name)) throw refused(subject, "no gradient of a piece that it trains", "one for each");
}

int64_t elements_of(const Tensor& tensor) {
  int64_t count = 1;
  for (int64_t extent : tensor.shape) count *= extent;
  return count;
}

const Tensor* typed(const Tensors& tensors, const std::string& name, DType dtype) {
  const auto found = tensors.find(name);
  const bool fine =
      found != tensors.end() && found->second.dtype == dtype && reinterpret_cast<uintptr_t>(found->second.data) % bytes_of(dtype) == 0;
  return fine ? &found->second : nullptr;
}

// tokens and mask: a batch with a counted token, of tokens that the model knows.
void take_batch(const Tensors& tensors, const std::string& subject, int64_t vocab_size, Golden& golden) {
  const Tensor *tokens = typed(tensors, "tokens", DType::int32), *mask = typed(tensors, "mask", DType::uint8);
  if (tokens == nullptr || tokens->shape.size() != 2) throw refused(subject, "no int32 tensor 'tokens' of 2 dimensions", "one");
  if (mask == nullptr || mask->shape.size() != 2) throw refused(subject, "no uint8 tensor 'mask' of 2 dimensions", "one");
  golden.rows = tokens->shape[0];
  golden.row_tokens = tokens->shape[1];
  golden.tokens = reinterpret_cast<const int32_t*>(tokens->data);
  golden.mask = mask->data;
  bool counted = false;
  if (tokens->shape == mask->shape && golden.row_tokens >= 2)
    for (int64_t i = 0; i < golden.rows * golden.row_tokens; i++) counted = counted || (i % golden.row_tokens && golden.mask[i]);
  if (!counted) throw refused(subject, "tokens and mask that make no batch", "a batch with a counted token");
  if (*std::max_element(golden.mask, golden.mask + golden.rows * golden.row_tokens) > 1)
    throw refused(subject, "a mask of other values than 0 and 1", "0 or 1 for each token");
  const auto [low, high] = std::minmax_element(golden.tokens, golden.tokens + golden.rows * golden.row_tokens);
  if (*low < 0 || *high >= vocab_size)
    throw refused(subject, "tokens from " + std::to_string(*low) + " to " + std::to_string(*high),
                  "0 to " + std::to_string(vocab_size - 1));
}

void take_arrays(const Tensors& tensors, const std::string& subject, int64_t vocab_size, Golden& golden) {
  const std::vector<int64_t> shape{golden.rows, golden.row_tokens - 1};
  for (const auto& [full, tensor] : tensors) {
    const std::string name = array_name(full);
    if (name.empty()) continue;
    const Tensor *tokens = typed(tensors, full, DType::int32), *numbers = typed(tensors, full, DType::float32);
    const std::string where = subject + ", tensor '" + full + "'";
    if ((!tokens && !numbers) || tensor.shape != shape)
      throw refused(where, "another type or shape", "int32 or float32 " + shown_shape(shape));
    const size_t count = static_cast<size_t>(shape[0] * shape[1]);
    GoldenArray& array = golden.arrays[name];
    if (tokens) {
      array.tokens = reinterpret_cast<const int32_t*>(tensor.data);
      const auto [low, high] = std::minmax_element(array.tokens, array.tokens + count);
      if (*low < 0 || *high >= vocab_size)
        throw refused(where, "tokens from " + std::to_string(*low) + " to " + std::to_string(*high),
                      "0 to " + std::to_string(vocab_size - 1));
    } else {
      array.numbers = reinterpret_cast<const float*>(tensor.data);
      const auto finite = [](float number) { return std::isfinite(number); };
      if (!std::all_of(array.numbers, array.numbers + count, finite)) throw refused(where, "NaN or infinity", "finite numbers");
    }
  }
}

}  // namespace

Golden read_golden(const Tensors& tensors, const std::string& subject, const Tensors& adapter, int64_t vocab_size) {
  const Tensor* document = typed(tensors, "document", DType::uint8);
  if (document == nullptr || document->shape.size() != 1) throw refused(subject, "no uint8 tensor 'document' of 1 dimensions", "one");
  Golden golden = document_of(*document, subject);
  take_batch(tensors, subject, vocab_size, golden);
  take_arrays(tensors, subject, vocab_size, golden);
  std::set<std::string> pieces;
  for (const PieceGolden& piece : golden.pieces) pieces.insert(piece.name);
  bool same = pieces.size() == golden.pieces.size() && pieces.size() == adapter.size();
  for (const auto& entry : adapter) same = same && pieces.count(entry.first);
  if (!same)
    throw refused(subject, "gradients of " + std::to_string(golden.pieces.size()) + " pieces",
                  "of the " + std::to_string(adapter.size()) + " pieces of the adapter");
  for (PieceGolden& piece : golden.pieces) {
    piece.elements = elements_of(adapter.at(piece.name));
    if (!piece.norm) continue;
    const int64_t size = std::min(piece.elements, kMaxElements);
    const Tensor* elements = typed(tensors, "gradient." + piece.name, DType::float32);
    if (elements == nullptr || elements->shape != std::vector<int64_t>{size})
      throw refused(subject + ", tensor 'gradient." + piece.name + "'", "none, or another shape", "float32 [" + std::to_string(size) + "]");
    golden.gradients[piece.name] = reinterpret_cast<const float*>(elements->data);
  }
  for (const MethodGolden& method : golden.methods)
    check_method(method, subject + ", method '" + method.name + "'", pieces, golden.gradients);
  return golden;
}

std::vector<int64_t> places(const PieceGolden& piece, int64_t size, uint64_t seed) {
  std::vector<int64_t> found(static_cast<size_t>(std::min(size, kMaxElements)));
  for (size_t j = 0; j < found.size(); j++) {
    found[j] = static_cast<int64_t>(j);
    if (size > kMaxElements)
      found[j] =
          philox({static_cast<uint32_t>(j), piece.block << 16 | piece.tensor, static_cast<uint32_t>(Stream::golden_place), 0}, seed)[0] %
          size;
  }
  return found;
}

GoldenAdapter::GoldenAdapter(const Tensors& initial, const Golden& golden) {
  const std::string suffix = "lora_B";
  for (const PieceGolden& piece : golden.pieces) {
    const Tensor& start = initial.at(piece.name);
    const std::string& name = piece.name;
    if (name.size() < suffix.size() || name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
      view_[name] = {reinterpret_cast<const float*>(start.data), start.shape};
      continue;
    }
    std::vector<float> drawn(static_cast<size_t>(elements_of(start)));
    noise(drawn.data(), static_cast<int64_t>(drawn.size()), golden.seed, 0, 0, piece.block, piece.tensor, Distribution::normal);
    for (float& value : drawn) value *= static_cast<float>(golden.b_scale);
    drawn_.push_back(std::move(drawn));
    view_[name] = {drawn_.back().data(), start.shape};
  }
}

}  // namespace bespoke
