// SPDX-License-Identifier: Apache-2.0
import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Takes the answer to one request as it comes, on one thread at a time. What it throws ends the request.
package protocol Receiver: AnyObject, Sendable {
    /// The answer begins.
    func begin(_ answer: HTTPURLResponse) throws

    /// Its next bytes.
    func take(_ bytes: Data) throws

    /// Nothing comes any more. `failure`: what ended it before all had come.
    func end(_ failure: (any Error)?) throws
}

/// One request of a module that uses the network, and who takes its answer.
package final class Exchange: NSObject, URLSessionDataDelegate, @unchecked Sendable {
    private let receiver: any Receiver
    private let redirects: Bool
    private var isBegun = false
    private var failure: (any Error)?
    private var waiting: CheckedContinuation<Void, any Error>?

    #if canImport(FoundationNetworking)
    /// Sessions with TLS, which are never let go of on Linux: a session whose connection closes in its deinit ends the process there
    /// (swift-corelibs-foundation#5203).
    private static let kept = Kept()
    #endif

    private let lock = NSLock()
    private var isStarted = false
    private var isCancelled = false

    /// `redirects`: whether the server may name another place for what is asked for. https stays https.
    package init(_ receiver: any Receiver, redirects: Bool) {
        (self.receiver, self.redirects) = (receiver, redirects)
    }

    /// Returns when nothing is received any more, also where its task is cancelled.
    package func run(_ request: URLRequest, _ configuration: URLSessionConfiguration) async throws {
        let session = URLSession(configuration: configuration, delegate: self, delegateQueue: nil)
        defer { session.finishTasksAndInvalidate() }
        #if canImport(FoundationNetworking)
        if request.url?.scheme == "https" { Self.kept.append(session) }
        #endif
        let task = session.dataTask(with: request)
        do {
            try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { waiting in
                    self.waiting = waiting
                    if !start(task) { waiting.resume(throwing: CancellationError()) }
                }
            } onCancel: {
                cancel(task)
            }
        } catch let error as URLError where error.code == .cancelled && Task.isCancelled {
            throw CancellationError()
        }
    }

    /// False: it was cancelled before. A task that is cancelled before it was resumed need not tell its end.
    private func start(_ task: URLSessionTask) -> Bool {
        lock.withLock {
            if isCancelled { return false }
            isStarted = true
            task.resume()
            return true
        }
    }

    private func cancel(_ task: URLSessionTask) {
        lock.withLock {
            isCancelled = true
            if isStarted { task.cancel() }
        }
    }

    package func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse, newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        completionHandler(redirects && request.url?.scheme == response.url?.scheme ? request : nil)
    }

    package func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        do {
            guard let answer = response as? HTTPURLResponse else { throw URLError(.badServerResponse) }
            try receiver.begin(answer)
            isBegun = true
            completionHandler(.allow)
        } catch {
            failure = error
            completionHandler(.cancel)
        }
    }

    package func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        guard failure == nil, isBegun else { return }
        do {
            try receiver.take(data)
        } catch {
            failure = error
            dataTask.cancel()
        }
    }

    package func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let before = failure ?? error
        do {
            try receiver.end(before)
        } catch {
            failure = before ?? error
        }
        if let problem = failure ?? error {
            waiting?.resume(throwing: problem)
        } else {
            waiting?.resume()
        }
        waiting = nil
    }
}

#if canImport(FoundationNetworking)
private final class Kept: @unchecked Sendable {
    private let lock = NSLock()
    private var sessions: [URLSession] = []

    func append(_ session: URLSession) {
        lock.withLock { sessions.append(session) }
    }
}
#endif
