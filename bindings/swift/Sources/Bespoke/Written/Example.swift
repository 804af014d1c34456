// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_schemas.py from bindings/schema.

/// What the user gives to learn from.
public enum Example: Encodable, Hashable, Sendable {
    /// What `role` may say.
    public enum Role: String, Codable, Sendable {
        case system
        case user
        case assistant
    }

    /// What `as` may say.
    public enum As: String, Codable, Sendable {
        case text
    }

    /// What `end` may say.
    public enum End: String, Codable, Sendable {
        case none
    }

    /// `messages` of ``Example``.
    public struct Message: Codable, Hashable, Sendable {
        public var role: Role
        public var content: String
        public var weight: Int?

        public init(role: Role, content: String, weight: Int? = nil) {
            self.role = role
            self.content = content
            self.weight = weight
        }
    }

    case messages([Message])
    case promptCompletion(prompt: String, completion: String, as: As? = nil)
    case preference(prompt: String, chosen: String, rejected: String, as: As? = nil)
    case correction(prompt: [Message], chosen: String, rejected: String)
    case text(String, end: End? = nil)
    case tokens([Int64], mask: [Int]? = nil)

    private enum Key: String, CodingKey {
        case `as`, chosen, completion, end, mask, messages, prompt, rejected, text, tokens
    }

    public func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: Key.self)
        switch self {
        case .messages(let messages):
            try fields.encode(messages, forKey: .messages)
        case .promptCompletion(let prompt, let completion, let `as`):
            try fields.encode(prompt, forKey: .prompt)
            try fields.encode(completion, forKey: .completion)
            try fields.encodeIfPresent(`as`, forKey: .`as`)
        case .preference(let prompt, let chosen, let rejected, let `as`):
            try fields.encode(prompt, forKey: .prompt)
            try fields.encode(chosen, forKey: .chosen)
            try fields.encode(rejected, forKey: .rejected)
            try fields.encodeIfPresent(`as`, forKey: .`as`)
        case .correction(let prompt, let chosen, let rejected):
            try fields.encode(prompt, forKey: .prompt)
            try fields.encode(chosen, forKey: .chosen)
            try fields.encode(rejected, forKey: .rejected)
        case .text(let text, let end):
            try fields.encode(text, forKey: .text)
            try fields.encodeIfPresent(end, forKey: .end)
        case .tokens(let tokens, let mask):
            try fields.encode(tokens, forKey: .tokens)
            try fields.encodeIfPresent(mask, forKey: .mask)
        }
    }
}
