// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import BespokeDelivery
import Foundation
import Glibc

/// A server of files on this machine that does what a test says: it cuts connections, and answers with other bytes or statuses.
final class ArchiveServer: @unchecked Sendable {
    struct Behaviour {
        /// Bytes of a body after which connections are cut, one each.
        var cuts: [Int] = []

        /// Instead of the file.
        var answer: String?

        /// Whether it has ranges and ETags.
        var hasRanges = true
        var hasTags = true
    }

    private let lock = NSLock()
    private let listener: Int32
    private let port: UInt16
    private var files: [String: Data] = [:]
    private var heard: [String] = []
    private var how = Behaviour()

    init() {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = bind(listener, $0, length)
                _ = getsockname(listener, $0, &length)
            }
        }
        precondition(listen(listener, 16) == 0)
        port = UInt16(bigEndian: address.sin_port)
        self.listener = listener
        Thread { [self] in
            while case let connection = accept(listener, nil, nil), connection >= 0 {
                Thread { [self] in answer(connection) }.start()  // a client that was cancelled may keep one for a while
            }
        }.start()
    }

    func close() {
        shutdown(listener, Int32(SHUT_RDWR))
        Glibc.close(listener)
    }

    var behaviour: Behaviour {
        get { lock.withLock { how } }
        set { lock.withLock { how = newValue } }
    }

    /// The requests since this was last asked: "PATH" or "PATH from BYTE".
    func asked() -> [String] {
        lock.withLock {
            defer { heard = [] }
            return heard
        }
    }

    func put(_ path: String, _ data: Data) throws -> Archive {
        lock.withLock { files[path] = data }
        let url = URL(string: "http://127.0.0.1:\(port)/\(path)")!
        return try Archive(url: url, sha256: hexadecimal(data), bytes: Int64(data.count))
    }

    private func answer(_ connection: Int32) {
        defer { Glibc.close(connection) }
        var request = ""
        var piece = [UInt8](repeating: 0, count: 4096)
        while !request.contains("\r\n\r\n") {
            let got = recv(connection, &piece, piece.count, 0)
            guard got > 0 else { return }
            request += String(decoding: piece[..<got], as: UTF8.self)
        }
        let lines = request.split(separator: "\r\n")
        let path = String(lines[0].split(separator: " ")[1].dropFirst())
        func header(_ name: String) -> String? {
            lines.first { $0.lowercased().hasPrefix("\(name):") }.map { $0.dropFirst(name.count + 1).trimmingCharacters(in: .whitespaces) }
        }
        let (body, how) = lock.withLock { (files[path] ?? Data(), self.how) }
        let tag = "\"\(hexadecimal(body).prefix(8))\""
        var from = header("range").flatMap { Int($0.dropFirst("bytes=".count).dropLast()) } ?? 0
        lock.withLock { heard.append(from > 0 ? "\(path) from \(from)" : path) }
        if let known = header("if-range"), known != tag { from = 0 }
        if !how.hasRanges { from = 0 }
        if let answer = how.answer {
            send(connection, Data("HTTP/1.1 \(answer)\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".utf8))
            return
        }
        var head = "HTTP/1.1 \(from > 0 ? "206 Partial Content" : "200 OK")\r\n"
        if from > 0 { head += "Content-Range: bytes \(from)-\(body.count - 1)/\(body.count)\r\n" }
        if how.hasTags { head += "ETag: \(tag)\r\n" }
        send(connection, Data("\(head)Content-Length: \(body.count - from)\r\nConnection: close\r\n\r\n".utf8))
        let cut = lock.withLock { self.how.cuts.isEmpty ? nil : self.how.cuts.removeFirst() }
        send(connection, body.dropFirst(from).prefix(cut ?? body.count))
    }

    private func send(_ connection: Int32, _ data: Data) {
        var rest = data
        while !rest.isEmpty {
            let sent = rest.withUnsafeBytes { Glibc.send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard sent > 0 else { return }
            rest = rest.dropFirst(sent)
        }
    }
}
#endif
