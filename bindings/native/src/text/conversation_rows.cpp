// SPDX-License-Identifier: Apache-2.0
#include "text/conversation_rows.h"

#include <algorithm>
#include <map>

#include "text/row_fitting.h"

namespace bespoke {

namespace {

constexpr size_t kNoMessage = SIZE_MAX;

// Trained messages that are in a row together, from `first` to `last`: a row may end before the message `end`.
struct Unit {
  size_t first, last, end;
};

// Tokens of the system message and of the messages from the start with this number on, up to those that `unit` trains. `message_of`: for
// each token the message of the whole conversation whose content or ending it is of; none for the template's other text.
struct Part {
  size_t start = 0, unit = 0;
  TokenRow row;
  std::vector<size_t> message_of;
  size_t trained_end = 0;
};

std::vector<size_t> message_of_tokens(const TurnTokens& found) {
  std::vector<size_t> of_piece, of_token;
  size_t contents = 0;
  for (const TurnPiece& piece : found.pieces) {
    contents += piece.is_content;
    const bool is_before_content = piece.begins_answer && !piece.is_content;  // the model's own words too
    of_piece.push_back(piece.role ? contents - 1 + is_before_content : kNoMessage);
  }
  of_token.reserve(found.piece_of.size());
  for (const size_t piece : found.piece_of) of_token.push_back(of_piece[piece]);
  return of_token;
}

class Maker {
 public:
  Maker(const std::vector<Message>& messages, const std::vector<bool>& trains, const EncodeMessages& encode, const Turns& turns,
        std::optional<int32_t> bos, bool whole_answers, size_t room)
      : messages_(messages), trains_(trains), encode_(encode), turns_(turns), whole_answers_(whole_answers), room_(room),
        first_(messages[0].role == Place::system ? 1 : 0), is_whole_(messages.size()), heads_(messages.size()), tails_(messages.size()),
        sizes_(messages.size()) {
    TurnTokens found = encode(messages);
    with_bos_ = bos && !found.tokens.empty() && found.tokens[0] == *bos;
    whole_.message_of = message_of_tokens(found);
    std::vector<bool> words(messages.size());
    std::vector<size_t> ends(messages.size());  // behind the last token of each message
    for (size_t place = 0; place < found.tokens.size(); place++) {
      const size_t message = whole_.message_of[place];
      if (message == kNoMessage) continue;
      sizes_[message]++;
      if (found.pieces[found.piece_of[place]].is_content) words[message] = true;
      ends[message] = place + 1;
    }
    for (size_t i = 1; i < ends.size(); i++) ends[i] = ends[i] ? ends[i] : ends[i - 1];
    whole_.row = {std::move(found.tokens), mask(whole_.message_of, 0)};
    whole_.trained_end = trained_end(whole_.row.mask);
    std::vector<size_t> trained;
    for (size_t i = 0; i < messages.size(); i++) {
      if (!trains[i] || !words[i]) continue;
      trains_words_ = true;
      if (i >= first_) trained.push_back(i);
    }
    group(trained);
    for (const Unit& unit : units_) unit_ends_.push_back(static_cast<int64_t>(ends[unit.last]));
    for (size_t i = first_; i < messages.size(); i++) {
      if (i > first_ && !may_begin(i)) continue;
      starts_.push_back(i);
      start_begins_.push_back(static_cast<int64_t>(i ? ends[i - 1] : 0));
    }
  }

  ConversationRows result() {
    if (!trains_words_) return {};
    if (whole_.trained_end <= room_ || units_.empty()) {
      keep(whole_);
    } else {
      for (size_t unit = 0, done = 0; unit < units_.size();) {
        const Part part = next(unit, done);
        keep(part);
        done = units_[part.unit].last + 1;
        unit = part.unit + 1;
      }
    }
    ConversationRows found;
    found.rows = std::move(rows_);
    for (size_t i = 0; i < messages_.size(); i++) {
      const size_t kept = is_whole_[i] ? sizes_[i] : std::min(sizes_[i], heads_[i] + tails_[i]);
      found.truncated += sizes_[i] - kept;
      found.truncated_trained += trains_[i] ? sizes_[i] - kept : 0;
    }
    return found;
  }

 private:
  void group(const std::vector<size_t>& trained) {
    std::optional<size_t> first;
    for (size_t i = 0; i < trained.size(); i++) {
      const size_t message = trained[i];
      if (!first) first = message;
      size_t end = message + 1;
      if (i + 1 == trained.size()) {
        end = messages_.size();
      } else {
        while (end <= trained[i + 1] && !may_end(end)) end++;
        if (end > trained[i + 1]) continue;
      }
      units_.push_back({*first, message, end});
      first.reset();
    }
  }

  bool may_end(size_t end) const {
    const Place role = messages_[end - 1].role, before = end > 1 ? messages_[end - 2].role : Place::start;
    return turns_.knows(before, role, true) && turns_.knows(role, Place::end, false);
  }

  // Never with an answer that is to be trained on.
  bool may_begin(size_t message) const {
    const Place role = messages_[message].role, place = first_ ? Place::system : Place::start;
    if (role != Place::user && (role != Place::assistant || trains_[message])) return false;
    return turns_.knows(place, role, true) && (message + 1 == messages_.size() || turns_.knows(place, role, false));
  }

  // The row that trains `unit` first; messages before `done` are context.
  Part next(size_t unit, size_t done) {
    const size_t first = units_[unit].first;
    const auto before = static_cast<size_t>(std::lower_bound(starts_.begin(), starts_.end(), first) - starts_.begin());
    Part part = take(before ? before - 1 : 0, unit, done);
    if (!fits(part) && part.start < before && before < starts_.size() && starts_[before] == first) part = take(before, unit, done);
    if (!fits(part)) return part;
    if (part.start > 0) {
      Part wider = take(part.start - 1, unit, done);
      const auto prompt = std::find(wider.message_of.begin(), wider.message_of.end(), first) - wider.message_of.begin();
      if (fits(wider) && static_cast<size_t>(prompt) <= room_ / 2) part = std::move(wider);
    }
    measure(part);
    const auto room = static_cast<int64_t>(room_);
    for (size_t bad = units_.size(); bad - part.unit > 1;) {
      const int64_t most = room - extra_ + start_begins_[part.start];
      const int64_t guess = std::upper_bound(unit_ends_.begin(), unit_ends_.end(), most) - unit_ends_.begin() - 1;
      Part more = take(part.start, between(part.unit + 1, guess, bad - 1), done);
      measure(more);
      if (fits(more))
        part = std::move(more);
      else
        bad = more.unit;
    }
    measure(part);
    for (size_t behind = 0; part.start > behind;) {  // the starts before `behind` are too far away
      const int64_t least = unit_ends_[part.unit] + extra_ - room;
      const int64_t guess = std::lower_bound(start_begins_.begin(), start_begins_.end(), least) - start_begins_.begin();
      Part more = take(between(behind, guess, part.start - 1), part.unit, done);
      measure(more);
      if (fits(more))
        part = std::move(more);
      else
        behind = more.start + 1;
    }
    return part;
  }

  static size_t between(size_t low, int64_t guess, size_t high) {
    return std::min(high, std::max(low, static_cast<size_t>(std::max<int64_t>(guess, 0))));
  }

  // How many tokens a row has beyond those that its messages have in the whole.
  void measure(const Part& part) { extra_ = static_cast<int64_t>(part.trained_end) - (unit_ends_[part.unit] - start_begins_[part.start]); }

  bool fits(const Part& part) const { return part.trained_end <= room_; }

  Part take(size_t start, size_t unit, size_t done) const {
    const size_t begin = starts_[start];
    std::vector<Message> some(messages_.begin(), messages_.begin() + static_cast<ptrdiff_t>(first_));
    some.insert(some.end(), messages_.begin() + static_cast<ptrdiff_t>(begin),
                messages_.begin() + static_cast<ptrdiff_t>(units_[unit].end));
    TurnTokens found = encode_(some);
    Part part{start, unit, {}, message_of_tokens(found), 0};
    for (size_t& message : part.message_of) {
      if (message != kNoMessage && message >= first_) message += begin - first_;
    }
    part.row = {std::move(found.tokens), mask(part.message_of, done)};
    part.trained_end = trained_end(part.row.mask);
    return part;
  }

  std::vector<uint8_t> mask(const std::vector<size_t>& message_of, size_t done) const {
    std::vector<uint8_t> mask;
    mask.reserve(message_of.size());
    for (const size_t message : message_of) {
      mask.push_back(message != kNoMessage && message >= done && trains_[message]);
    }
    if (!mask.empty()) mask[0] = 0;
    return mask;
  }

  void keep(const Part& part) {
    const auto [begin, end] = fitted_range(part.row.mask, with_bos_, whole_answers_, room_);
    rows_.push_back(kept_of(part.row, begin, end, with_bos_));
    std::map<size_t, std::pair<size_t, size_t>> places;
    for (size_t place = 0; place < part.message_of.size(); place++) {
      if (part.message_of[place] != kNoMessage) places.try_emplace(part.message_of[place], place, 0).first->second.second = place + 1;
    }
    // Nothing stands before the first token of a row: it is read, and not trained on.
    const size_t trained_begin = begin + (begin > 0 && !with_bos_ ? 1 : 0);
    for (const auto& [message, range] : places) {
      const auto& [first, behind] = range;
      if (trains_[message] && !part.row.mask[behind - 1]) continue;
      const size_t from = std::max(first, trains_[message] ? trained_begin : begin), to = std::min(behind, end);
      const size_t kept = to > from ? to - from : 0;
      if (kept == behind - first)
        is_whole_[message] = true;
      else if (from == first)
        heads_[message] = std::max(heads_[message], kept);
      else
        tails_[message] = std::max(tails_[message], kept);
    }
  }

  const std::vector<Message>& messages_;
  const std::vector<bool>& trains_;
  const EncodeMessages& encode_;
  const Turns& turns_;
  const bool whole_answers_;
  const size_t room_, first_;
  bool with_bos_ = false, trains_words_ = false;
  std::vector<TokenRow> rows_;
  std::vector<bool> is_whole_;         // in some row, and trained there where it is to be trained
  std::vector<size_t> heads_, tails_;  // how much of one that was cut
  std::vector<size_t> sizes_;          // tokens of each message
  Part whole_;
  std::vector<Unit> units_;
  std::vector<size_t> starts_;                     // messages with which a row may begin
  std::vector<int64_t> unit_ends_, start_begins_;  // in tokens of the whole
  int64_t extra_ = 0;
};

}  // namespace

ConversationRows conversation_rows(const std::vector<Message>& messages, const std::vector<bool>& trains, const EncodeMessages& encode,
                                   const Turns& turns, std::optional<int32_t> bos, bool whole_answers, size_t room) {
  return Maker(messages, trains, encode, turns, bos, whole_answers, room).result();
}

}  // namespace bespoke
