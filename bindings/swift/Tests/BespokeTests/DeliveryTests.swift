// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Bespoke
import BespokeDelivery
import Foundation
import FoundationNetworking
import Testing

/// Of two bundles with the same weights: `older`, and `chat` with another method.
@Suite struct DeliveryTests {
    private func withServer(_ test: (ArchiveServer, URL) async throws -> Void) async throws {
        let server = ArchiveServer()
        defer { server.close() }
        try await withFolder { try await test(server, $0) }
    }

    private func archive(_ path: String) throws -> Data {
        try Data(contentsOf: Fixture.archives.appending(path: path))
    }

    private func download(_ name: String, of server: ArchiveServer) throws -> BundleDownload {
        let (weights, method) = ("\(name)/weights.zip", "\(name)/method.zip")
        return BundleDownload(weights: try server.put(weights, archive(weights)), method: try server.put(method, archive(method)))
    }

    private func pin(_ bundle: URL) throws -> String {
        hexadecimal(try Data(contentsOf: bundle.appending(path: "manifest.json")))
    }

    private func opens(_ bundle: URL) async throws {
        try await withFolder { folder in
            let model = try await PersonalModel.open(bundle: bundle, state: folder.appending(path: "state"))
            try await model.examples.add(.text("A dog."))
            try await model.close()
        }
    }

    /// The oracle is an example of FIPS 180-4 and another program's digest of a file.
    @Test func theStandInOfCryptoKitIsRight() throws {
        #expect(hexadecimal(Data("abc".utf8)) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        let said = try String(contentsOf: Fixture.bundle.appending(path: "manifest.sha256"), encoding: .utf8)
        #expect(said.hasPrefix(try pin(Fixture.bundle)))
    }

    @Test func aFirstBundleTakesBothArchivesAndThenNothingIsAskedFor() async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            let delivery = Delivery(folder: folder, trust: Trust(pinSha256: try pin(Fixture.bundle), requireAuthenticated: true))
            #expect(delivery.bundle == nil)
            let told = ToldBytes()
            let bundle = try await delivery.bring(chat) { told.append($0) }
            #expect(server.asked() == ["chat/method.zip", "chat/weights.zip"])
            #expect(told.all.last == [chat.method.bytes + chat.weights.bytes, chat.method.bytes + chat.weights.bytes])
            #expect(delivery.bundle == bundle)
            try await opens(bundle)
            try await delivery.bring(chat)
            #expect(server.asked().isEmpty)
        }
    }

    @Test func whereOnlyTheMethodChangedTheWeightsAreNotAskedFor() async throws {
        try await withServer { server, folder in
            let delivery = Delivery(folder: folder)
            try await delivery.bring(download("older", of: server))
            _ = server.asked()
            let bundle = try await delivery.bring(download("chat", of: server))
            #expect(server.asked() == ["chat/method.zip"])
            #expect(try pin(bundle) == pin(Fixture.bundle))
            try await opens(bundle)
        }
    }

    @Test func aDeltaGoesOverTheBundleThatItWasMadeFor() async throws {
        try await withServer { server, folder in
            let delivery = Delivery(folder: folder)
            try await delivery.bring(download("older", of: server))
            _ = server.asked()
            var chat = try download("chat", of: server)
            chat.deltas = [Delta(since: try pin(Fixture.chats), archive: try server.put("delta.zip", archive("delta/delta.zip")))]
            let bundle = try await delivery.bring(chat)
            #expect(server.asked() == ["delta.zip"])
            #expect(try pin(bundle) == pin(Fixture.bundle))
        }
    }

    @Test func aDamagedBundleComesWhole() async throws {
        try await withServer { server, folder in
            let delivery = Delivery(folder: folder)
            let bundle = try await delivery.bring(download("older", of: server))
            let weights = bundle.appending(path: "weights/block_00.safetensors")
            var bytes = try Data(contentsOf: weights)
            bytes[bytes.count / 2] ^= 1
            try bytes.write(to: weights)
            _ = server.asked()
            try await delivery.bring(download("chat", of: server))
            #expect(server.asked() == ["chat/method.zip", "chat/weights.zip"])
            try await opens(bundle)
        }
    }

    @Test func aCutConnectionIsResumedWhereItWasCut() async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            server.behaviour.cuts = [1000, 0]
            let delivery = Delivery(folder: folder)
            await #expect(throws: URLError.self) { try await delivery.bring(chat) }  // the second connection brought nothing
            #expect(server.asked() == ["chat/method.zip", "chat/method.zip from 1000"])
            server.behaviour.cuts = [500, Int(chat.method.bytes)]
            let bundle = try await delivery.bring(chat)
            #expect(server.asked() == ["chat/method.zip from 1000", "chat/method.zip from 1500", "chat/weights.zip"])
            try await opens(bundle)
        }
    }

    @Test(arguments: [true, false]) func aFileThatChangedMeanwhileComesFromItsFirstByte(hasTags: Bool) async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            let right = try archive("chat/method.zip")
            _ = try server.put("chat/method.zip", Data(right.map { ~$0 }))
            server.behaviour = ArchiveServer.Behaviour(cuts: [1000, 0], hasTags: hasTags)
            let delivery = Delivery(folder: folder)
            await #expect(throws: URLError.self) { try await delivery.bring(chat) }
            _ = try server.put("chat/method.zip", right)
            try await opens(delivery.bring(chat))
        }
    }

    @Test func aServerWithoutRangesIsAskedForTheWhole() async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            server.behaviour = ArchiveServer.Behaviour(cuts: [1000], hasRanges: false)
            try await opens(Delivery(folder: folder).bring(chat))
        }
    }

    @Test func whatIsWrongReplacesNothingAndSaysWhat() async throws {
        try await withServer { server, folder in
            let delivery = Delivery(folder: folder)
            let older = try pin(await delivery.bring(download("older", of: server)))
            let chat = try download("chat", of: server)
            for answer in ["404 Not Found", "301 Moved\r\nLocation: ftp://127.0.0.1/x", "403 Forbidden"] {
                server.behaviour.answer = answer
                let refused = await #expect(throws: DeliveryError.self) { try await delivery.bring(chat) }
                #expect(refused?.got.contains(answer.prefix(3)) == true)
            }
            server.behaviour.answer = "503 Busy"
            await #expect(throws: URLError.self) { try await delivery.bring(chat) }
            server.behaviour.answer = nil
            _ = try server.put("chat/method.zip", Data("other".utf8))
            await #expect(throws: DeliveryError.self) { try await delivery.bring(chat) }
            _ = try server.put("chat/method.zip", Data(count: Int(chat.method.bytes)))
            await #expect(throws: DeliveryError.self) { try await delivery.bring(chat) }
            _ = try server.put("chat/method.zip", archive("chat/method.zip"))
            let pinned = Delivery(folder: folder, trust: Trust(pinSha256: older))
            let wrong = await #expect(throws: BespokeError.self) { try await pinned.bring(chat) }
            #expect(wrong?.kind == .signatureError)
            #expect(try pin(try #require(delivery.bundle)) == older)
            try await delivery.bring(chat)
            #expect(try pin(try #require(delivery.bundle)) == pin(Fixture.bundle))
        }
    }

    @Test func aCancelledDeliveryGoesOnWhereItWas() async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            let delivery = Delivery(folder: folder)
            let told = ToldBytes()
            let bringing = Task {
                try await delivery.bring(chat) { progress in
                    told.append(progress)
                    Thread.sleep(forTimeInterval: 0.002)  // so that it is cancelled in the middle
                }
            }
            while told.all.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
            bringing.cancel()
            await #expect(throws: CancellationError.self) { try await bringing.value }
            #expect(delivery.bundle == nil)
            try await opens(delivery.bring(chat))
        }
    }

    @Test(.enabled(if: Fixture.full)) func aDeliveryIsCancelledAtAnyInstant() async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            let delivery = Delivery(folder: folder)
            for _ in 0..<200 {
                let bringing = Task { try await delivery.bring(chat) }
                try await Task.sleep(for: .milliseconds(Int.random(in: 0...20)))
                bringing.cancel()
                _ = await bringing.result
            }
            try await opens(delivery.bring(chat))
        }
    }

    @Test func oneDeliveryAtATimeForAFolder() async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            let tried = ToldBytes()
            try await Delivery(folder: folder).bring(chat) { progress in
                guard tried.all.isEmpty else { return }
                tried.append(progress)
                let waits = DispatchSemaphore(value: 0)
                Task {
                    await #expect(throws: DeliveryError.self) { try await Delivery(folder: folder).bring(chat) }
                    waits.signal()
                }
                waits.wait()
            }
        }
    }

    @Test func anArchiveThatCameInAnotherWayIsNotAskedFor() async throws {
        try await withServer { server, folder in
            let chat = try download("chat", of: server)
            let delivery = Delivery(folder: folder.appending(path: "chat"))
            let file = folder.appending(path: "downloaded")
            try archive("chat/weights.zip").write(to: file)
            #expect(try delivery.take(file, of: chat))
            #expect(!FileManager.default.fileExists(atPath: file.path))
            try Data("another".utf8).write(to: file)
            #expect(try !delivery.take(file, of: chat))
            try await opens(delivery.bring(chat))
            #expect(server.asked() == ["chat/method.zip"])
        }
    }

    @Test func anArchiveIsWhatItsFieldsSay() throws {
        let (url, digest) = (URL(string: "https://example.com/weights.zip")!, String(repeating: "0", count: 64))
        _ = try Archive(url: url, sha256: digest, bytes: 1)
        #expect(throws: DeliveryError.self) { try Archive(url: URL(string: "http://example.com/a")!, sha256: digest, bytes: 1) }
        #expect(throws: DeliveryError.self) { try Archive(url: url, sha256: "0", bytes: 1) }
        #expect(throws: DeliveryError.self) { try Archive(url: url, sha256: digest, bytes: 0) }
    }
}

private final class ToldBytes: @unchecked Sendable {
    private let lock = NSLock()
    private var numbers: [[Int64]] = []

    var all: [[Int64]] { lock.withLock { numbers } }

    func append(_ progress: DeliveryProgress) {
        lock.withLock { numbers.append([progress.bytes, progress.of]) }
    }
}
#endif
