// SPDX-License-Identifier: Apache-2.0
import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Writes the answer to one request into a file, as it comes. The session calls it on one thread at a time.
final class Reception: NSObject, URLSessionDataDelegate, @unchecked Sendable {
    private let from, all: Int64
    private let begin: (HTTPURLResponse, Int64) throws -> FileHandle
    private let onBytes: @Sendable (Int64) -> Void
    private var file: FileHandle?
    private var at: Int64 = 0
    private var failure: (any Error)?
    private var waiting: CheckedContinuation<Void, any Error>?

    private let lock = NSLock()
    private var isStarted = false
    private var isCancelled = false

    /// `begin` says where the answer to a request from byte `from` on goes.
    init(
        from: Int64, of all: Int64, begin: @escaping (HTTPURLResponse, Int64) throws -> FileHandle,
        onBytes: @escaping @Sendable (Int64) -> Void
    ) {
        (self.from, self.all, self.begin, self.onBytes) = (from, all, begin, onBytes)
    }

    /// Returns when nothing is written any more, also where its task is cancelled.
    func run(_ request: URLRequest, _ configuration: URLSessionConfiguration) async throws {
        let session = URLSession(configuration: configuration, delegate: self, delegateQueue: nil)
        defer { session.finishTasksAndInvalidate() }
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

    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse, newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        completionHandler(request.url?.scheme == response.url?.scheme ? request : nil)  // https stays https
    }

    func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        do {
            guard let answer = response as? HTTPURLResponse else { throw URLError(.badServerResponse) }
            let file = try begin(answer, from)
            at = Int64(try file.offset())
            self.file = file
            completionHandler(.allow)
        } catch {
            failure = error
            completionHandler(.cancel)
        }
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        guard failure == nil, let file else { return }
        do {
            guard at + Int64(data.count) <= all else { throw URLError(.dataLengthExceedsMaximum) }
            try file.write(contentsOf: data)
            at += Int64(data.count)
            onBytes(at)
        } catch {
            failure = error
            dataTask.cancel()
        }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        do {
            if at == all { try file?.synchronize() }  // before it gets its name
            try file?.close()
        } catch {
            failure = failure ?? error
        }
        if let problem = failure ?? error {
            waiting?.resume(throwing: problem)
        } else if at < all {
            waiting?.resume(throwing: URLError(.networkConnectionLost))
        } else {
            waiting?.resume()
        }
        waiting = nil
    }
}
