// SPDX-License-Identifier: Apache-2.0
internal import CBespoke

/// What is answered to.
public enum Prompt: Hashable, Sendable {
    /// A text to go on with.
    case text(String)

    /// What is new, the oldest first, for a model with chat turns.
    case messages([Example.Message])

    /// Ids in the model's vocabulary, for a bundle without a tokenizer.
    case tokens([Int64])

    /// One message of the user.
    public static func user(_ content: String) -> Prompt {
        .messages([Example.Message(role: .user, content: content)])
    }

    var json: String {
        switch self {
        case .text(let text): encoded(text)
        case .messages(let messages): encoded(messages)
        case .tokens(let tokens): encoded(tokens)
        }
    }
}

/// A conversation with the adapter that answers. What was said stays in its KV cache between turns; another conversation of the model, or
/// training, may take the cache meanwhile, and then the next turn reads the words again. One that nobody holds any more is closed.
public final class Conversation: Sendable {
    private let address: UInt
    private let model: Handle  // the model's memory goes after its sessions

    init(_ session: OpaquePointer, of model: Handle) {
        address = UInt(bitPattern: session)
        self.model = model
    }

    deinit {
        close()
    }

    private var session: OpaquePointer { OpaquePointer(bitPattern: address)! }

    /// Feeds what is new, and gives the answer, whose pieces are computed as they are asked for.
    public func say(_ prompt: Prompt) async throws -> Answer {
        try await stored { [self] in
            try withTexts { texts in
                try checked { bespoke_session_feed(session, texts(prompt.json), $0) }
            }
        }
        return Answer(of: self)
    }

    /// One token of the answer, and the text that it completes.
    public func next() async throws -> AnswerPiece {
        try await blocking(waits: model.waits) { [self] call in
            var piece: UnsafePointer<bespoke_piece>?
            try checked { bespoke_session_next(session, call, &piece, $0) }
            return AnswerPiece(piece!.pointee)
        }
    }

    /// Ends its call, without waiting for it. Closing again does nothing.
    public func close() {
        bespoke_session_close(session)
    }
}

/// The pieces of an answer. Each is computed when it is asked for, so a loop that ends early computes no more; what was said until then is
/// part of the conversation.
public struct Answer: AsyncSequence, Sendable {
    /// What it is a part of.
    public let conversation: Conversation

    init(of conversation: Conversation) {
        self.conversation = conversation
    }

    public func makeAsyncIterator() -> Iterator {
        Iterator(conversation: conversation)
    }

    /// All of it.
    public func text() async throws -> String {
        try await reduce(into: "") { $0 += $1.text }
    }

    public struct Iterator: AsyncIteratorProtocol {
        fileprivate let conversation: Conversation
        private var ended = false

        fileprivate init(conversation: Conversation) {
            self.conversation = conversation
        }

        public mutating func next() async throws -> AnswerPiece? {
            guard !ended else { return nil }
            let piece = try await conversation.next()
            ended = piece.stoppedBecause != nil
            return piece
        }
    }
}

extension AnswerPiece {
    fileprivate init(_ piece: bespoke_piece) {
        let bytes = UnsafeRawBufferPointer(start: piece.text.data, count: piece.text.size)
        self.init(
            text: String(decoding: bytes, as: UTF8.self), token: piece.token < 0 ? nil : piece.token, tokens: piece.tokens,
            stoppedBecause: AnswerPieceStoppedBecause(piece.ended))
    }
}

extension AnswerPieceStoppedBecause {
    /// Nil while the answer goes on.
    fileprivate init?(_ end: bespoke_answer_end) {
        switch end {
        case .BESPOKE_GOES_ON: return nil
        case .BESPOKE_END_STOP_TOKEN: self = .stopToken
        case .BESPOKE_END_STOP_TEXT: self = .stopText
        case .BESPOKE_END_MAX_TOKENS: self = .maxTokens
        case .BESPOKE_END_CONTEXT_FULL: self = .contextFull
        default: self = AnswerPieceStoppedBecause(rawValue: "\(end.rawValue)")
        }
    }
}
