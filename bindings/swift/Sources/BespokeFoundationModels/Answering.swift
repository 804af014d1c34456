// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// The context has no room for a prompt or for more of an answer. Counts are tokens.
struct ContextFull: Error {
    let contextSize: Int
    let tokenCount: Int
}

/// What happens while a prompt is answered.
enum Part: Sendable {
    /// The prompt has `total` tokens; of these, `known` were read in an earlier turn.
    case read(total: Int, known: Int)

    /// The answer grew by a text, of so many tokens.
    case text(String, tokens: Int)

    /// The answer has ended, after so many tokens.
    case ended(total: Int, known: Int, tokens: Int)
}

/// Answers whole transcripts by conversations, of which the last one is kept: where a transcript begins with what it was told and said, only
/// the rest is read.
final class Answering: Sendable {
    private let model: PersonalModel
    private let kept = Kept()

    init(model: PersonalModel) {
        self.model = model
    }

    /// Tells the parts of the answer to `messages` in their order.
    nonisolated(nonsending) func parts(
        _ messages: [Example.Message], _ generation: Generation, _ told: (Part) async -> Void
    ) async throws {
        let known = kept.take(beginning: messages, generation)
        let conversation = if let known { known.conversation } else { try await model.conversation(generation) }
        let news = Array(messages.dropFirst(known?.messages.count ?? 0))
        let contextSize = Int(try await model.describe().contextLength)
        let total = Int(try await model.countTokens(.messages(messages)))
        guard total < contextSize else { throw ContextFull(contextSize: contextSize, tokenCount: total) }
        let ofNews = known == nil ? total : Int(try await model.countTokens(.messages(news)))
        let read = max(0, total - ofNews)
        await told(.read(total: total, known: read))

        var text = ""
        var tokens = 0
        var untold = 0
        for try await piece in try await conversation.say(.messages(news)) {
            untold += Int(piece.tokens) - tokens
            tokens = Int(piece.tokens)
            if !piece.text.isEmpty {
                text += piece.text
                await told(.text(piece.text, tokens: untold))
                untold = 0
            }
            if piece.stoppedBecause == .contextFull { throw ContextFull(contextSize: contextSize, tokenCount: total + tokens) }
        }
        await told(.ended(total: total, known: read, tokens: tokens))
        let answer = Example.Message(role: .assistant, content: text)
        kept.put(KeptConversation(conversation: conversation, messages: messages + [answer], generation: generation))
    }
}

private struct KeptConversation: Sendable {
    let conversation: Conversation
    let messages: [Example.Message]
    let generation: Generation
}

/// One conversation between two requests. A request takes it, so that two at a time never share one.
private final class Kept: @unchecked Sendable {
    private let lock = NSLock()
    private var last: KeptConversation?

    /// Nil where `messages` are not what it holds and more, or the settings are others.
    func take(beginning messages: [Example.Message], _ generation: Generation) -> KeptConversation? {
        lock.withLock {
            guard let found = last, found.generation == generation, messages.count > found.messages.count,
                Array(messages.prefix(found.messages.count)) == found.messages
            else { return nil }
            last = nil
            return found
        }
    }

    func put(_ conversation: KeptConversation) {
        lock.withLock { last = conversation }
    }
}
