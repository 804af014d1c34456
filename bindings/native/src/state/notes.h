// SPDX-License-Identifier: Apache-2.0
// Notes: passages of the words of the user's examples, found by the words of a question (SQLite's FTS5, BM25).
//
// The index is in memory and made from the examples when it is first asked. So no file holds the words twice, and what was forgotten is in
// no file: FTS5 keeps words of deleted rows, at the borders of its pages with `secure-delete` too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state/database.h"
#include "state/records.h"

namespace bespoke {

// Of the JSON of an example: a text, the messages of user and assistant, or a prompt with its completion. At most a few sentences each. A
// preference and token ids have none.
std::vector<std::string> passages_of(const std::string& json);

class NoteIndex {
 public:
  NoteIndex();

  // At most so many, the nearest first, of the examples that `state` has now. A note has a word of the question. Where two are as near,
  // the newer one comes first.
  std::vector<Note> nearest(Database& state, const std::string& question, size_t most);

 private:
  void update(Database& state);

  Database index_;
  int64_t examples_ = 0, last_ = 0;  // how many are indexed, and the largest key
};

}  // namespace bespoke
