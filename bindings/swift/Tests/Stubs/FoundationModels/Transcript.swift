// SPDX-License-Identifier: Apache-2.0
import Foundation

public struct Transcript: RandomAccessCollection, Sendable, Equatable {
    public enum Segment: Sendable, Equatable {
        case text(TextSegment)
        case structure(String)  // a StructuredSegment
    }

    public struct TextSegment: Sendable, Equatable {
        public var id: String
        public var content: String

        public init(id: String = UUID().uuidString, content: String) {
            self.id = id
            self.content = content
        }
    }

    public struct Instructions: Sendable, Equatable {
        public var segments: [Segment]
    }

    public struct Prompt: Sendable, Equatable {
        public var segments: [Segment]
    }

    public struct Response: Sendable, Equatable {
        public var segments: [Segment]
    }

    public enum Entry: Sendable, Equatable {
        case instructions(Instructions)
        case prompt(Prompt)
        case response(Response)
        case toolOutput(String)  // a ToolOutput
    }

    private var entries: [Entry]

    public init(entries: some Sequence<Entry> = []) {
        self.entries = Array(entries)
    }

    public var startIndex: Int { entries.startIndex }
    public var endIndex: Int { entries.endIndex }
    public subscript(index: Int) -> Entry { entries[index] }

    mutating func append(_ entry: Entry) {
        entries.append(entry)
    }
}
