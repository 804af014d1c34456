// SPDX-License-Identifier: Apache-2.0
import Foundation

public struct LanguageModelExecutorGenerationChannel: Sendable {
    public struct Usage: Sendable, Equatable {
        public struct Input: Sendable, Equatable {
            public var totalTokenCount: Int
            public var cachedTokenCount: Int

            public init(totalTokenCount: Int, cachedTokenCount: Int) {
                self.totalTokenCount = totalTokenCount
                self.cachedTokenCount = cachedTokenCount
            }
        }

        public struct Output: Sendable, Equatable {
            public var totalTokenCount: Int
            public var reasoningTokenCount: Int

            public init(totalTokenCount: Int, reasoningTokenCount: Int) {
                self.totalTokenCount = totalTokenCount
                self.reasoningTokenCount = reasoningTokenCount
            }
        }
    }

    public struct Response: Sendable {
        public struct Action: Sendable {
            enum Kind: Sendable {
                case text(String, tokenCount: Int)
                case usage(Usage.Input, Usage.Output)
            }

            let kind: Kind

            public static func appendText(_ text: String, segmentID: String? = nil, tokenCount: Int) -> Action {
                Action(kind: .text(text, tokenCount: tokenCount))
            }

            public static func updateUsage(input: Usage.Input, output: Usage.Output) -> Action {
                Action(kind: .usage(input, output))
            }
        }
    }

    public struct Event: Sendable {
        let action: Response.Action

        public static func response(entryID: String?, action: Response.Action) -> Event {
            Event(action: action)
        }
    }

    let received: @Sendable (Event) async -> Void

    public func send(_ event: Event) async {
        await received(event)
    }
}
