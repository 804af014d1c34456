// SPDX-License-Identifier: Apache-2.0
// A handler of nlohmann's events that counts, refuses what has two meanings, and builds one piece at a time.
#include "format/json.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr size_t kMostDigits = 20;    // of an integer; 2^64 has as many, nothing in a bundle is larger
constexpr size_t kSmallPiece = 1000;  // nodes of a wanted member that check_json keeps

[[noreturn]] void refuse(const JsonRules& rules, const std::string& got, const std::string& expected) {
  throw Error(rules.kind, rules.subject, got, expected, rules.next_step);
}

// Counts depth and items; `kept` is built where the derived class says so.
class Counting : public nlohmann::json_sax<Json> {
 public:
  explicit Counting(const JsonRules& rules) : rules_(rules) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(int64_t value) override { return scalar(value); }
  bool number_unsigned(uint64_t value) override { return scalar(value); }
  bool number_float(double value, const std::string& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos) refuse_integer(digits.size());
    return scalar(value);
  }
  bool string(std::string& value) override { return scalar(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return start(true); }
  bool start_array(size_t) override { return start(false); }
  bool end_object() override { return finish(); }
  bool end_array() override { return finish(); }
  bool key(std::string& name) override {
    count_comma();
    return named(name);
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception& problem) override {
    if (problem.id == 406) {  // out of range
      if (token.find_first_of(".eE") == std::string::npos) refuse_integer(token.size());
      refuse(rules_, "the number " + token.substr(0, 40), "finite numbers");
    }
    refuse(rules_, "text that is not JSON (near byte " + std::to_string(position) + ")", "one JSON value");
  }

 protected:
  virtual bool scalar_value(Json&& value) = 0;
  virtual void begin(bool object) = 0;
  virtual void end() = 0;
  virtual bool named(std::string& name) = 0;

  const JsonRules& rules_;

 private:
  [[noreturn]] void refuse_integer(size_t characters) {
    if (characters > kMostDigits) {
      refuse(rules_, "an integer of " + std::to_string(characters) + " characters", "at most " + std::to_string(kMostDigits));
    }
    refuse(rules_, "an integer of more than 64 bits", "at most 64 bits");
  }

  void count_comma() {
    if (open_.empty()) return;
    if (open_.back().filled) count();
    open_.back().filled = true;
  }

  void count() {
    if (++items_ > rules_.max_items) refuse(rules_, "more than " + std::to_string(rules_.max_items) + " items", "fewer");
  }

  bool scalar(Json&& value) {
    if (!open_.empty() && !open_.back().object) count_comma();
    return scalar_value(std::move(value));
  }

  bool start(bool object) {
    if (!open_.empty() && !open_.back().object) count_comma();
    count();
    if (open_.size() == rules_.max_depth) {
      refuse(rules_, "nesting deeper than " + std::to_string(rules_.max_depth) + ", or brackets without partner",
             "at most " + std::to_string(rules_.max_depth) + " levels");
    }
    open_.push_back({object, false});
    begin(object);
    return true;
  }

  bool finish() {
    open_.pop_back();
    end();
    return true;
  }

  struct Container {
    bool object, filled;
  };
  std::vector<Container> open_;
  size_t items_ = 0;
};

// One value, built from events. Members of objects are unique.
class Builder {
 public:
  bool building() const { return !open_.empty(); }
  size_t nodes() const { return nodes_; }
  OwnedJson take() {
    nodes_ = 0;
    return std::move(root_);
  }

  Json* put(Json&& value) {
    nodes_++;
    if (open_.empty()) {
      *root_ = std::move(value);
      return &*root_;
    }
    Json& holder = *open_.back();
    if (holder.is_array()) {
      holder.push_back(std::move(value));
      return &holder.back();
    }
    *slot_ = std::move(value);
    return slot_;
  }

  void begin(bool object) { open_.push_back(put(object ? Json::object() : Json::array())); }
  void end() { open_.pop_back(); }

  bool name(const std::string& key) {  // false: it is there already
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(key, nullptr);
    slot_ = &place->second;
    return is_new;
  }

 private:
  OwnedJson root_;
  std::vector<Json*> open_;  // an element's address holds while it is the last of its list
  Json* slot_ = nullptr;
  size_t nodes_ = 0;
};

[[noreturn]] void refuse_twice(const JsonRules& rules, const std::string& key) {
  refuse(rules, "the key " + in_quotes(key, 100) + " twice in one object", "each key once");
}

// The first pass: keeps the top-level members that are wanted; of a document that is no object only what it is.
class Probe : public Counting {
 public:
  Probe(const JsonRules& rules, const std::vector<std::string>& wanted) : Counting(rules), wanted_(wanted) {}
  OwnedJson found;

 protected:
  bool scalar_value(Json&& value) override {
    if (depth_ == 0)
      *found = std::move(value);
    else if (keeping_)
      put(std::move(value));
    return true;
  }
  void begin(bool object) override {
    if (depth_++ == 0)
      *found = object ? Json::object() : Json::array();
    else if (keeping_)
      builder_.begin(object);
  }
  void end() override {
    if (--depth_ == 0 || !keeping_) return;
    builder_.end();
    if (!builder_.building()) done();
  }
  bool named(std::string& name) override {
    if (depth_ > 1) {
      if (keeping_ && !builder_.name(name)) refuse_twice(rules_, name);
      return true;
    }
    keeping_ = std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end();
    if (keeping_ && found->contains(name)) refuse_twice(rules_, name);
    name_ = name;
    return true;
  }

 private:
  void put(Json&& value) {
    builder_.put(std::move(value));
    if (!builder_.building())
      done();
    else if (builder_.nodes() > kSmallPiece)
      refuse(rules_, "more than " + std::to_string(kSmallPiece) + " values in " + name_, "few");
  }
  void done() {
    (*found)[name_] = std::move(*builder_.take());
    keeping_ = false;
  }

  const std::vector<std::string>& wanted_;
  Builder builder_;
  std::string name_;
  size_t depth_ = 0;
  bool keeping_ = false;
};

// The second pass.
class PieceReader : public Counting {
 public:
  PieceReader(const JsonRules& rules, const Schema* schema, const std::vector<std::string>& walked, Faults& faults, PieceTaker& taker)
      : Counting(rules), schema_(schema), walked_(walked), faults_(faults), taker_(taker), part_(schema ? &schema->root() : nullptr) {}

 protected:
  bool scalar_value(Json&& value) override {
    if (!builder_.building()) step();
    builder_.put(std::move(value));
    if (!builder_.building()) done();
    return faults_.size() < kMostFaults;
  }

  void begin(bool object) override {
    if (builder_.building()) return builder_.begin(object);
    step();
    const std::string pattern = levels_.empty() ? "" : join_pattern(levels_.back());
    const bool walks = std::find(walked_.begin(), walked_.end(), pattern) != walked_.end();
    if (!walks || (part_ && part_->type != (object ? "object" : "array"))) return builder_.begin(object);
    levels_.push_back({object, pattern, levels_.empty() ? "" : join_path(levels_.back().path, key_), part_, 0, {}});
    if (faults_.empty()) taker_.open(levels_.back().path);
  }

  void end() override {
    if (builder_.building()) {
      builder_.end();
      if (!builder_.building()) done();
      return;
    }
    const Level& level = levels_.back();
    const Path path{nullptr, &level.path, 0};
    if (level.part) schema_->check_size(level.count, *level.part, true, path, faults_);
    for (size_t i = 0; level.part && i < level.part->required.size(); i++) {
      const std::string& name = level.part->required[i];
      if (level.names.count(name) || faults_.size() == kMostFaults) continue;
      faults_.push_back({join_path(level.path, name), "nothing", "a value: every field is required"});
    }
    levels_.pop_back();
  }

  bool named(std::string& name) override {
    if (builder_.building()) {
      if (!builder_.name(name)) refuse_twice(rules_, name);
      return true;
    }
    Level& level = levels_.back();
    if (!level.names.insert(name).second) refuse_twice(rules_, name);
    key_ = name;
    return true;
  }

 private:
  struct Level {
    bool object;
    std::string pattern, path;
    const Schema::Part* part;
    size_t count;
    std::set<std::string> names;
  };

  std::string join_pattern(const Level& level) const {
    const bool position = !level.object || (level.part && level.part->properties.empty());
    return (level.pattern.empty() ? "" : level.pattern + ".") + (position ? "*" : key_);
  }

  // The next element or member of the innermost level begins: `part_` is its schema.
  void step() {
    if (levels_.empty()) return;
    Level& level = levels_.back();
    if (!level.object) key_ = std::to_string(level.count);
    level.count++;
    part_ = nullptr;
    if (!level.part) return;
    const Path path{nullptr, &level.path, 0};
    part_ = level.object ? level.part->member(key_) : level.part->items;
    if (level.object && part_) schema_->check_name(key_, *level.part, path, faults_);
    if (level.object && !part_ && faults_.size() < kMostFaults) {
      const auto& later = level.part->later;
      const auto why = std::find_if(later.begin(), later.end(), [&](const auto& field) { return field.first == key_; });
      faults_.push_back({join_path(level.path, key_), "a value", why == later.end() ? "no such field" : why->second});
    }
    schema_->check_size(level.count, *level.part, false, path, faults_);
  }

  void done() {
    OwnedJson owned = builder_.take();
    Json& piece = *owned;
    const std::string path = levels_.empty() ? "" : join_path(levels_.back().path, key_);
    if (part_) schema_->check(piece, *part_, {nullptr, &path, 0}, faults_);
    if (faults_.empty()) taker_.take(levels_.empty() ? "" : levels_.back().path, key_, piece);
  }

  const Schema* schema_;
  const std::vector<std::string>& walked_;
  Faults& faults_;
  PieceTaker& taker_;
  Builder builder_;
  std::vector<Level> levels_;
  std::string key_;
  const Schema::Part* part_;  // of the next or current piece; null: none
};

void check_text(Bytes document, const JsonRules& rules) {
  if (document.size > rules.max_bytes) {
    refuse(rules, std::to_string(document.size) + " bytes of JSON", "at most " + std::to_string(rules.max_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(document.data), document.size);
  const size_t bad = first_bad_utf8(text);
  if (bad != std::string_view::npos) {
    char byte[8];
    std::snprintf(byte, sizeof byte, "0x%02x", document.data[bad]);
    refuse(rules, "the byte " + std::string(byte) + " at " + std::to_string(bad), "UTF-8 text");
  }
  // The parser would take a mark of byte order, and an end of text before the end.
  if (text.substr(0, 3) == "\xef\xbb\xbf" || text.find('\0') != std::string_view::npos || text.empty()) {
    refuse(rules, "text that is not JSON (empty, with NUL or a byte order mark)", "one JSON value");
  }
}

void parse(Bytes document, Counting& handler) { Json::sax_parse(document.data, document.data + document.size, &handler); }

}  // namespace

OwnedJson check_json(Bytes document, const JsonRules& rules, const std::vector<std::string>& wanted) {
  check_text(document, rules);
  Probe probe(rules, wanted);
  parse(document, probe);
  return std::move(probe.found);
}

OwnedJson parse_json(Bytes document, const JsonRules& rules) {
  check_json(document, rules);
  struct Whole : PieceTaker {
    void take(const std::string&, const std::string&, Json& piece) override { *value = std::move(piece); }
    OwnedJson value;
  } whole;
  Faults faults;
  read_pieces(document, rules, nullptr, {}, faults, whole);
  return std::move(whole.value);
}

void read_pieces(Bytes document, const JsonRules& rules, const Schema* schema, const std::vector<std::string>& walked, Faults& faults,
                 PieceTaker& taker) {
  PieceReader pieces(rules, schema, walked, faults, taker);
  parse(document, pieces);
}

}  // namespace bespoke
