// SPDX-License-Identifier: Apache-2.0
#include "tool/answering.h"

#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "enums.h"
#include "tool/lines.h"

namespace bespoke {

namespace {

struct Failed {
  bespoke_error* error;
};

class Sessions {
 public:
  explicit Sessions(bespoke_model* model) : model_(model) {}

  nlohmann::json answer(const Order& order) {
    const auto what = order.asked.at("do").get<std::string>();
    if (what == "score") return judge(bespoke_score, order);
    if (what == "classify") return judge(bespoke_classify, order);
    if (what == "trim") return trim();
    const auto number = order.asked.at("session").get<int64_t>();
    if (what == "open") return open(number, order.asked);
    if (what == "close") {
      open_.erase(number);
      return {{"event", "done"}};
    }
    const auto found = open_.find(number);
    if (found == open_.end()) throw std::invalid_argument("session " + std::to_string(number) + ", which is not open");
    bespoke_session* session = found->second.get();
    if (what == "feed") return feed(session, order.asked.at("prompt").dump());
    if (what == "next") return next(session, order.cancel.get());
    throw std::invalid_argument("do '" + what + "'");
  }

 private:
  nlohmann::json open(int64_t number, const nlohmann::json& asked) {
    const std::string stop_texts = asked.at("stop_texts").dump();
    bespoke_generation generation{};
    generation.struct_size = sizeof generation;
    generation.max_tokens = asked.at("max_tokens").get<int64_t>();
    generation.temperature = asked.at("temperature").get<double>();
    generation.top_p = asked.at("top_p").get<double>();
    generation.top_k = asked.at("top_k").get<int64_t>();
    generation.seed = asked.at("seed").get<uint64_t>();
    generation.stop_texts = text_of(stop_texts);
    generation.notes = asked.at("notes").get<bool>();
    bespoke_error* error = nullptr;
    bespoke_session* session = nullptr;
    if (bespoke_session_open(model_, &generation, &session, &error)) throw Failed{error};
    open_[number].reset(session);
    return {{"event", "done"}};
  }

  nlohmann::json trim() {
    bespoke_error* error = nullptr;
    if (bespoke_trim(model_, &error)) throw Failed{error};
    return {{"event", "done"}};
  }

  static nlohmann::json feed(bespoke_session* session, const std::string& prompt) {
    bespoke_error* error = nullptr;
    if (bespoke_session_feed(session, text_of(prompt), &error)) throw Failed{error};
    return {{"event", "done"}};
  }

  static nlohmann::json next(bespoke_session* session, bespoke_cancel* cancel) {
    const bespoke_call call = call_of(cancel);
    bespoke_error* error = nullptr;
    const bespoke_piece* piece = nullptr;
    if (bespoke_session_next(session, &call, &piece, &error)) throw Failed{error};
    const auto& ends = names_of(AnswerEnd{});
    return {{"event", "found"},
            {"found",
             {{"text", std::string(piece->text.data, piece->text.size)},
              {"token", piece->token < 0 ? nlohmann::json() : nlohmann::json(piece->token)},
              {"tokens", piece->tokens},
              {"stopped_because", piece->ended == BESPOKE_GOES_ON ? nlohmann::json() : nlohmann::json(ends[piece->ended - 1])}}}};
  }

  template <class Judge>
  nlohmann::json judge(Judge judge, const Order& order) {
    const std::string prompt = order.asked.at("prompt").dump(), answers = order.asked.at("answers").dump();
    const bespoke_call call = call_of(order.cancel.get());
    bespoke_error* error = nullptr;
    char* said = nullptr;
    if (judge(model_, text_of(prompt), text_of(answers), &call, &said, &error)) throw Failed{error};
    return found(said);
  }

  static bespoke_call call_of(bespoke_cancel* cancel) {
    bespoke_call call{};
    call.struct_size = sizeof call;
    call.cancel = cancel;
    return call;
  }

  static nlohmann::json found(char* json) {
    const std::unique_ptr<char, void (*)(char*)> held(json, bespoke_free);
    return {{"event", "found"}, {"found", nlohmann::json::parse(json)}};
  }

  struct Close {
    void operator()(bespoke_session* session) const { bespoke_session_close(session); }
  };

  bespoke_model* const model_;
  std::map<int64_t, std::unique_ptr<bespoke_session, Close>> open_;
};

}  // namespace

void answer(bespoke_model* model, Inbox& inbox) {
  Sessions sessions(model);
  say({{"event", "ready"}});
  while (const std::optional<Order> order = inbox.take()) {
    nlohmann::json event;
    try {
      event = sessions.answer(*order);
    } catch (const Failed& failed) {
      event = event_of(failed.error);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& problem) {  // a field that is absent or of another type, or no such order
      event = {{"event", "error"},
               {"kind", "ConfigError"},
               {"subject", "an order"},
               {"got", problem.what()},
               {"expected", "one of those in tool/answering.h"},
               {"next_step", "See bindings/native/src/tool/answering.h"}};
    }
    event["order"] = order->asked.at("order");
    say(event);
  }
}

}  // namespace bespoke
