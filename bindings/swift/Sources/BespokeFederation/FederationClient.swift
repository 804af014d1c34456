// SPDX-License-Identifier: Apache-2.0
import BespokeDelivery
import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// A device's requests to a server of federated learning (`bespoke-federated`), over HTTPS. Each is signed with the device's key. They go
/// out one after the other, since a server takes no counter below the last one.
public struct FederationClient: Sendable {
    private static let mostBytes = 16 << 20  // of a document, as in the device core
    private static let timeoutSeconds = 60.0
    private static let gone = [404, 410]  // statuses of a file that the server no longer has

    /// The address of the server, without a slash at its end.
    public let server: String

    /// The device's key.
    public let device: DeviceKey

    private let path: String
    private let configuration: @Sendable () -> URLSessionConfiguration

    /// - Parameters:
    ///   - server: https://... Plain http is taken for this machine alone.
    ///   - configuration: of the sessions. By default no network that costs money or that the user saves.
    /// - Throws: ``FederationError/Kind/config`` for another address.
    public init(
        server: URL, device: DeviceKey, configuration: @escaping @Sendable () -> URLSessionConfiguration = { Delivery.unmetered }
    ) throws {
        let given = URLComponents(url: server, resolvingAgainstBaseURL: true)
        guard let given, let host = given.host, !host.isEmpty,
            given.scheme == "https" || given.scheme == "http" && ["127.0.0.1", "[::1]", "::1", "localhost"].contains(host),
            given.query == nil, given.fragment == nil, given.user == nil, given.password == nil
        else {
            throw FederationError(
                kind: .config, subject: "server", got: server.absoluteString,
                expected: "https:// and the server's name, perhaps a port and a path; http:// for this machine alone",
                nextStep: "Give the address of the app's server.")
        }
        self.server = String(server.absoluteString.trimmingSuffix("/"))
        self.path = String(given.percentEncodedPath.trimmingSuffix("/"))
        self.device = device
        self.configuration = configuration
    }

    /// Has the server let this device in.
    ///
    /// - Parameter token: of the app's own service, which gives each device one. It is good once.
    public func enrol(token: String) async throws {
        let enrolment = Enrolment(token: token, publicKey: try device.publicKey())
        _ = try await send("POST", "/v1/enrol", body: JSONEncoder().encode(enrolment), most: Self.mostBytes)
        try device.letIn(by: server)
    }

    /// Posts the device's document, which is the `body` of a request. Returns the server's signed answer.
    public func ask(_ body: String) async throws -> Data {
        let round = try? JSONDecoder().decode(Document.self, from: Data(body.utf8)).round
        guard let round else {
            throw FederationError(
                kind: .config, subject: "ask", got: "another text", expected: "the body of a request",
                nextStep: "Give what federation.request() gave.")
        }
        return try await send("POST", "/v1/ask", body: Data(body.utf8), round: round, most: Self.mostBytes)
    }

    /// Bytes of a file that the server has named; none if the server no longer has it.
    public func fetch(_ sha256: String, offset: Int64, size: Int64) async throws -> Data {
        guard size > 0 else { return Data() }
        let range = Piece(from: offset, to: offset + size - 1)
        do {
            return try await send("GET", "/v1/files/\(sha256)", range: range, most: Int(size))
        } catch let error as FederationError {
            guard case .refused(let status) = error.kind, Self.gone.contains(status) else { throw error }
            return Data()
        }
    }

    private func send(
        _ method: String, _ place: String, body: Data = Data(), round: Int64? = nil, range: Piece? = nil, most: Int
    ) async throws -> Data {
        var request = URLRequest(
            url: URL(string: server + place)!, cachePolicy: .reloadIgnoringLocalCacheData, timeoutInterval: Self.timeoutSeconds)
        request.httpMethod = method
        request.httpShouldHandleCookies = false
        request.setValue("identity", forHTTPHeaderField: "Accept-Encoding")
        if !body.isEmpty {
            request.httpBody = body
            request.setValue("application/json", forHTTPHeaderField: "Content-Type")
        }
        if let range {
            request.setValue("bytes=\(range.from)-\(range.to)", forHTTPHeaderField: "Range")
        }
        for (name, value) in try device.sign(method: method, path: path + place, body: body, round: round) {
            request.setValue(value, forHTTPHeaderField: name)
        }
        let received = Received(most: most)
        do {
            try await Exchange(received, redirects: false).run(request, configuration())
        } catch let error as URLError where error.code == .dataLengthExceedsMaximum {
            throw wrong(received, got: "more than \(most) bytes", expected: "no more")
        } catch let error as URLError {
            throw FederationError(
                kind: .unreachable, subject: server, got: error.localizedDescription, expected: "an answer", nextStep: "Try again later.")
        }
        guard received.succeeds else { throw refused(received) }
        try device.addTraffic(sent: body.count, received: received.bytes.count)
        if let range, !range.isIn(received.answer) {
            throw wrong(received, got: "other bytes of the file", expected: "those from \(range.from) on")
        }
        return received.bytes
    }

    /// What the server says of an error, in its words where they are such.
    private func refused(_ received: Received) -> FederationError {
        let problem = try? JSONDecoder().decode(Problem.self, from: received.bytes)
        let status = received.answer?.statusCode ?? 0
        var error = FederationError(
            kind: .refused(status: status), subject: problem.map { "\(server): \($0.object)" } ?? server,
            got: problem?.got ?? "status \(status)", expected: problem?.expected ?? "an answer",
            nextStep: problem?.nextStep ?? "Ask who runs the server.")
        let seconds = received.answer?.value(forHTTPHeaderField: "Retry-After") ?? ""
        if seconds.wholeMatch(of: /[0-9]{1,8}/) != nil {
            error.retrySeconds = Double(seconds) ?? 0
        }
        return error
    }

    private func wrong(_ received: Received, got: String, expected: String) -> FederationError {
        FederationError(
            kind: .refused(status: received.answer?.statusCode ?? 0), subject: server, got: got, expected: expected,
            nextStep: "Ask who runs the server.")
    }
}

private struct Enrolment: Encodable {
    let token: String
    let publicKey: Data

    enum CodingKeys: String, CodingKey {
        case token
        case publicKey = "public_key"
    }
}

/// Of a device's document what is signed beside its bytes.
private struct Document: Decodable {
    let round: Int64
}

private struct Problem: Decodable {
    let object, got, expected, nextStep: String

    enum CodingKeys: String, CodingKey {
        case object, got, expected
        case nextStep = "next_step"
    }
}

/// Bytes of a file, the last one included.
private struct Piece {
    let from, to: Int64

    /// Whether an answer has these bytes: a server without ranges sends the file from its first byte.
    func isIn(_ answer: HTTPURLResponse?) -> Bool {
        switch answer?.statusCode {
        case 206: answer?.value(forHTTPHeaderField: "Content-Range")?.hasPrefix("bytes \(from)-") ?? false
        default: from == 0
        }
    }
}

extension String {
    fileprivate func trimmingSuffix(_ suffix: Character) -> Substring {
        var trimmed = self[...]
        while trimmed.last == suffix { trimmed.removeLast() }
        return trimmed
    }
}
