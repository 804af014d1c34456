// SPDX-License-Identifier: Apache-2.0
#include "generate/conversation.h"

#include "error.h"

namespace bespoke {

namespace {

constexpr const char* kForms[] = {"messages", "a text", "token ids"};  // in the order of Prompt

}  // namespace

Conversation Conversation::with(const Prompt& more) const {
  Conversation longer = *this;
  if (!all_) {
    longer.all_ = more;
  } else if (all_->index() != more.index()) {
    const std::string before = kForms[all_->index()];
    throw Error(Kind::Generation, "prompt", kForms[more.index()], before + ", as the session began with",
                "Go on with " + before + ", or open another session");
  } else {
    std::visit(
        [&](auto& all) {
          const auto& next = std::get<std::decay_t<decltype(all)>>(more);
          all.insert(all.end(), next.begin(), next.end());
        },
        *longer.all_);
  }
  const std::vector<int32_t> tokens = encoder_->prompt_tokens(*longer.all_);
  longer.tokens_.assign(tokens.begin(), tokens.end());
  return longer;
}

Conversation Conversation::with_answer(const std::string& text, const std::vector<int64_t>& tokens) const {
  Conversation longer = *this;
  Prompt& all = *longer.all_;
  if (auto* messages = std::get_if<std::vector<Message>>(&all)) messages->push_back({Place::assistant, text});
  if (auto* words = std::get_if<std::string>(&all)) *words += text;
  if (auto* ids = std::get_if<std::vector<int32_t>>(&all)) ids->insert(ids->end(), tokens.begin(), tokens.end());
  return longer;
}

}  // namespace bespoke
