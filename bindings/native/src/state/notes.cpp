// SPDX-License-Identifier: Apache-2.0
#include "state/notes.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "format/utf8.h"
#include "state/store.h"

namespace bespoke {

namespace {

using Json = nlohmann::json;

constexpr size_t kPassageBytes = 400;
constexpr int kPassageBits = 16;   // an id is the key of an example and the number of a passage in it
constexpr size_t kMostWords = 64;  // of a question, its last ones
constexpr uint32_t kNoCharacter = 0;

struct Range {
  uint32_t first, last;
};
// Scripts that have no spaces between words: Thai and Lao, Myanmar, Khmer, kana, Han.
constexpr Range kWithoutSpaces[] = {{0x0e01, 0x0eff}, {0x1000, 0x109f}, {0x1780, 0x17ff},  {0x3041, 0x30ff},
                                    {0x3400, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x3ffff}};

bool is_a_word(uint32_t character) {
  return std::any_of(std::begin(kWithoutSpaces), std::end(kWithoutSpaces),
                     [&](const Range& range) { return character >= range.first && character <= range.last; });
}

// With spaces around each character of a script without them: FTS5 takes what is between spaces and signs for a word.
std::string spaced(const std::string& text) {
  std::string words;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = character_at(text, at);
    const bool alone = is_a_word(character.code);
    if (alone) words += ' ';
    words.append(text, at, character.size);
    if (alone) words += ' ';
    at += character.size;
  }
  return words;
}

// Whether a sentence or a line ends behind `character`.
bool ends_sentence(uint32_t character, uint32_t next) {
  switch (character) {
    case '\n':
    case 0x3002:
    case 0xff01:
    case 0xff1f:
      return true;
    case '.':
    case '!':
    case '?':
    case 0x0964:
      return next == ' ' || next == '\n' || next == kNoCharacter;
    default:
      return false;
  }
}

std::string trimmed(const std::string& text) {
  const char* const spaces = " \t\n\r";
  const size_t first = text.find_first_not_of(spaces);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(spaces) + 1 - first);
}

// Whole sentences, as many as fit in a passage; a sentence that is longer is cut at spaces, or between characters.
std::vector<std::string> passages(const std::string& text) {
  std::vector<std::string> found;
  const auto keep = [&](size_t begin, size_t end) {
    const std::string passage = trimmed(text.substr(begin, end - begin));
    if (!passage.empty()) found.push_back(passage);
  };
  if (text.size() <= kPassageBytes) {
    keep(0, text.size());
    return found;
  }
  size_t begin = 0, sentence = 0, space = 0;  // of the passage; where its last whole sentence and its last word end
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const auto [character, size] = character_at(text, at);
    at += size;
    if (at - begin > kPassageBytes) {
      const size_t end = sentence > begin ? sentence : space > begin ? space : start;
      keep(begin, end);
      begin = end;
    }
    if (ends_sentence(character, at < text.size() ? character_at(text, at).code : kNoCharacter)) sentence = at;
    if (character == ' ' || is_a_word(character)) space = at;
  }
  keep(begin, text.size());
  return found;
}

// The words of a content, which is a text, parts of text, or messages.
std::string words_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string words;
  if (!content.is_array()) return words;
  for (const Json& part : content) {
    if (!part.is_object() || part.value("role", Json()) == Json("system")) continue;
    const std::string more = part.contains("content") ? words_of(part["content"]) : words_of(part.value("text", Json()));
    if (!more.empty()) words += (words.empty() ? "" : "\n") + more;
  }
  return words;
}

// An expression of FTS5 for any of the words; quoted, a word means nothing else to it. Empty: there is no word.
std::string any_of_words(const std::string& question) {
  std::vector<std::string> words;
  std::string word;
  for (const char character : spaced(question) + ' ') {
    if (!std::strchr(" \t\n\r", character)) {
      word += character == '"' ? ' ' : character;
      continue;
    }
    if (!trimmed(word).empty()) words.push_back(word);
    word.clear();
  }
  if (words.size() > kMostWords) words.erase(words.begin(), words.end() - kMostWords);
  std::string expression;
  for (const std::string& each : std::set<std::string>(words.begin(), words.end()))
    expression += (expression.empty() ? "\"" : " OR \"") + each + '"';
  return expression;
}

}  // namespace

std::vector<std::string> passages_of(const std::string& json) {
  const Json example = Json::parse(json, nullptr, false);
  if (!example.is_object()) return {};
  const auto words = [&](const char* key) { return words_of(example.value(key, Json())); };
  if (example.contains("text")) return passages(words("text"));
  if (example.contains("messages")) return passages(words("messages"));
  if (example.contains("completion")) return passages(trimmed(words("prompt")) + "\n" + trimmed(words("completion")));
  return {};
}

NoteIndex::NoteIndex() : index_(Database::in_memory("the index of notes")) {
  index_.execute("CREATE VIRTUAL TABLE notes USING fts5 (words, content = '', tokenize = 'unicode61 remove_diacritics 2')");
}

void NoteIndex::update(Database& state) {
  Transaction reading(state, Transaction::reads);
  const auto count_up_to = [&](int64_t key) {
    Statement count(state, "SELECT count(*) FROM examples WHERE key <= ?");
    count.bind(key).step();
    return count.number(0);
  };
  Transaction writing(index_);
  int64_t examples = examples_, last = last_;
  if (count_up_to(last) != examples) {  // no key is given twice: one of them was forgotten
    index_.execute("INSERT INTO notes (notes) VALUES ('delete-all')");
    examples = last = 0;
  }
  Statement added(state, "SELECT key, json FROM examples WHERE key > ? ORDER BY key");
  Statement insert(index_, "INSERT INTO notes (rowid, words) VALUES (?, ?)");
  for (added.bind(last); added.step(); examples++) {
    last = added.number(0);
    int64_t id = last << kPassageBits;
    for (const std::string& passage : passages_of(added.text(1))) {
      if (id >> kPassageBits != last) break;
      const std::string words = spaced(passage);
      insert.bind(id++).bind(words).run();
      insert.again();
    }
  }
  writing.commit();
  examples_ = examples, last_ = last;
}

std::vector<Note> NoteIndex::nearest(Database& state, const std::string& question, size_t most) {
  const std::string words = any_of_words(question);
  if (words.empty()) return {};
  update(state);
  std::vector<Note> found;
  Statement matching(index_, "SELECT rowid FROM notes WHERE notes MATCH ? ORDER BY bm25(notes), rowid DESC LIMIT ?");
  matching.bind(words).bind(static_cast<int64_t>(most));
  while (matching.step()) {
    const int64_t id = matching.number(0), key = id >> kPassageBits;
    Statement example(state, "SELECT json FROM examples WHERE key = ?");
    if (!example.bind(key).step()) continue;  // forgotten meanwhile
    const std::vector<std::string> all = passages_of(example.text(0));
    const auto number = static_cast<size_t>(id - (key << kPassageBits));
    if (number < all.size()) found.push_back({id, all[number]});
  }
  return found;
}

std::vector<Note> StateStore::nearest_notes(const std::string& question, size_t most) {
  if (!notes_) notes_ = std::make_unique<NoteIndex>();
  return notes_->nearest(*database_, question, most);
}

}  // namespace bespoke
