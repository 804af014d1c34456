// SPDX-License-Identifier: Apache-2.0
import BespokeDelivery
import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// The bytes of an answer. Of one that succeeds no more than were asked for, of another one as much as an error says.
final class Received: Receiver, @unchecked Sendable {
    private static let mostOfProblem = 4096

    private let most: Int
    private(set) var answer: HTTPURLResponse?
    private(set) var bytes = Data()

    init(most: Int) {
        self.most = most
    }

    var succeeds: Bool { answer.map { (200..<300).contains($0.statusCode) } ?? false }

    func begin(_ answer: HTTPURLResponse) throws {
        self.answer = answer
    }

    func take(_ piece: Data) throws {
        if succeeds {
            guard bytes.count + piece.count <= most else { throw URLError(.dataLengthExceedsMaximum) }
            bytes += piece
        } else {
            bytes += piece.prefix(Self.mostOfProblem - bytes.count)
        }
    }

    func end(_ failure: (any Error)?) throws {}
}
