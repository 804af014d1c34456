// SPDX-License-Identifier: Apache-2.0
// Strict JSON, the schemas, file names and the helpers of the readers; what needs documents is in tests/native/test_format.py.
#include <doctest/doctest.h>

#include <algorithm>

#include "format/bundle/bundle.h"
#include "format/hash.h"
#include "format/json.h"
#include "format/plan/plan_check.h"
#include "format/untrusted_text.h"

using namespace bespoke;

namespace {

Bytes of(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

JsonRules rules(size_t depth = 32, size_t items = 1000) { return {"document", Kind::Bundle, "Get it again", 10'000, depth, items}; }

// What is said of a text that is refused; empty if it is taken.
std::string refusal(const std::string& text, const JsonRules& limits = rules()) {
  try {
    parse_json(of(text), limits);
  } catch (const Error& error) {
    CHECK(error.subject == "document");
    CHECK(error.kind == Kind::Bundle);
    return error.got;
  }
  return "";
}

std::string many(const std::string& part, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; i++) out += part;
  return out;
}

struct Collect : PieceTaker {
  void open(const std::string& container) override { seen.push_back("open " + container); }
  void take(const std::string& container, const std::string& key, Json& value) override {
    seen.push_back(container + "/" + key + "=" + value.dump());
  }
  std::vector<std::string> seen;
};

}  // namespace

TEST_CASE("JSON that readers could read differently is refused") {
  const std::pair<std::string, const char*> cases[] = {
      {R"({"a": 1, "a": 2})", "twice"},
      {R"([{"x": {"a": 1, "b": 2, "a": 1}}])", "twice"},
      {"[NaN]", "not JSON"},
      {"[-Infinity]", "not JSON"},
      {"[1e999]", "1e999"},
      {"[" + std::string(20, '9') + "]", "64 bits"},
      {"[" + std::string(21, '9') + "]", "21 characters"},
      {"[" + std::string(5000, '9') + "]", "5000 characters"},
      {R"(["\ud800"])", "not JSON"},
      {"[\"\xff\"]", "0xff"},
      {"[\"\xed\xa0\x80\"]", "0xed"},
      {"[\"\xc0\xaf\"]", "0xc0"},
      {"\xef\xbb\xbf[]", "not JSON"},
      {std::string("[1]\0", 4), "not JSON"},
      {"[1,]", "not JSON"},
      {"[1] [2]", "not JSON"},
      {"[1 // more\n]", "not JSON"},
      {"", "not JSON"},
      {"[1", "not JSON"},
      {"[{]}", "not JSON"},
      {"[\"unended", "not JSON"},
      {"[01]", "not JSON"},
      {"[\"a\tb\"]", "not JSON"},
      {many("[", 40) + many("]", 40), "deeper than 32"},
      {many("{\"a\":", 33) + "1" + many("}", 33), "deeper than 32"},
      {"[" + many("1,", 1000) + "1]", "more than 1000 items"},
      {many(" ", 10'001), "10001 bytes"},
  };
  for (const auto& [text, said] : cases) {
    CAPTURE(text.substr(0, 60));
    CHECK(refusal(text).find(said) != std::string::npos);
  }
}

TEST_CASE("depth is counted exactly and not inside texts") {
  CHECK(refusal(many("[", 32) + many("]", 32)).empty());
  CHECK(refusal("[\"" + many("[", 60) + "\", \"\\\"{{{{\"]").empty());
  CHECK(refusal(R"([{"a": [1, {"b": []}]}])", rules(5)).empty());
  CHECK(refusal(R"([{"a": [1, {"b": []}]}])", rules(4)).find("deeper than 4") != std::string::npos);
}

TEST_CASE("a document is taken piece by piece, with paths and in order") {
  const std::string text = R"({"a": {"x": [1, {"y": 2}], "z": []}, "b": [[3], 4], "c": null})";
  Collect collect;
  Faults faults;
  read_pieces(of(text), rules(), nullptr, {"", "a", "a.x", "b"}, faults, collect);
  CHECK(faults.empty());
  const std::vector<std::string> expected = {"open ",  "open a", "open a.x", "a.x/0=1", "a.x/1={\"y\":2}",
                                             "a/z=[]", "open b", "b/0=[3]",  "b/1=4",   "/c=null"};
  CHECK(collect.seen == expected);
}

TEST_CASE("the published schemas have no keyword that the core does not know, and another one is refused") {
  CHECK_NOTHROW(Schema(plan_schema, plan_schema_size));
  CHECK_NOTHROW(Schema(manifest_schema, manifest_schema_size));
  for (const std::string text : {R"({"type": "integer", "multipleOf": 3})", R"({"type": "string", "pattern": "a+"})",
                                 R"({"properties": {"a": {"items": {"not": {}}}}})", R"({"type": "string", "format": "uri"})"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Schema(reinterpret_cast<const unsigned char*>(text.data()), text.size()), Error);
  }
}

TEST_CASE("names of files") {
  const std::string good[] = {"a", "a/b/c", "A-Z_0.9@+=", "a..b", std::string(255, 'x'), "1/2/3/4/5/6/7/8"};
  for (const std::string& name : good) CHECK(file_name_problem(name) == nullptr);
  const std::string bad[] = {"",
                             "/",
                             "a/",
                             "/a",
                             "a//b",
                             "..",
                             "../a",
                             "a/../b",
                             "a/.",
                             ".a",
                             "a/.b",
                             "a\\b",
                             "a b",
                             "a\n",
                             std::string("a\0b", 3),
                             "\xc3\xa9",
                             std::string(256, 'x'),
                             "1/2/3/4/5/6/7/8/9",
                             "manifest.json",
                             "MANIFEST.json",
                             "Signature",
                             "manifest.SHA256",
                             "C:a"};
  for (const std::string& name : bad) {
    CAPTURE(name);
    CHECK(file_name_problem(name) != nullptr);
  }
}

TEST_CASE("what may stand on a terminal, and how the rest is shown") {
  for (const char* text : {"", "plain", "\xc3\xa4 \xe6\xbc\xa2 \xf0\x9f\x98\x80"}) CHECK(is_printable(text));
  for (const char* text : {"\x1b[31m", "a\n", "\x7f", "\xc2\x85", "\xc2\xa0", "\xe2\x80\xae", "\xef\xbb\xbf", "\xee\x80\x80"})
    CHECK_FALSE(is_printable(text));
  CHECK(in_quotes("a'\x1b\xc3\xa9") == "'a\\'\\x1b\\xc3\\xa9'");
  CHECK(in_quotes("abcdef", 3) == "'abc'...");
  CHECK(count_characters("a\xc3\xa4\xf0\x9f\x98\x80") == 3);
}

TEST_CASE("rows of a value") {
  FilledRows rows;
  CHECK(rows.covers(3, 3));
  CHECK_FALSE(rows.covers(0, 1));
  rows.fill(0, 2);
  rows.fill(4, 6);
  CHECK_FALSE(rows.covers(0, 6));
  rows.fill(2, 4);
  CHECK(rows.covers(0, 6));
  CHECK_FALSE(rows.covers(0, 7));
  rows.fill(1, 3);
  rows.fill(5, 9);
  CHECK(rows.covers(0, 9));
  CHECK(rows.covers(3, 4));
}

TEST_CASE("sha256 of the standard's examples") {
  CHECK(sha256_hex(of("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex(of("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
