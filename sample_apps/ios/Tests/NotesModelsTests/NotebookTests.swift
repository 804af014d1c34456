// SPDX-License-Identifier: Apache-2.0
import Foundation
import Testing

@testable import NotesModels

@Suite struct NotebookTests {
    private func withFile(_ test: (URL) throws -> Void) throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        try test(folder.appending(path: "notebook.json"))
    }

    @Test func whatWasWrittenIsReadByTheNextProcess() throws {
        try withFile { file in
            let book = JSONFile(file, empty: Notebook())
            #expect(try book.read() == Notebook())
            let correction = Note("In the pond.", corrects: Corrected(question: "Where?", answer: "In the park 🌳."))
            let written = try book.change {
                $0.notes = [correction, Note("Bread, milk.")]
                $0.learns = true
            }
            #expect(try JSONFile(file, empty: Notebook()).read() == written)
            #expect(written.notes.first == correction)
        }
    }

    /// Notes that cannot be read must not be replaced by an empty notebook.
    @Test func aDamagedFileIsAnErrorAndStaysAsItIs() throws {
        try withFile { file in
            try Data("{\"notes\": [".utf8).write(to: file)
            let book = JSONFile(file, empty: Notebook())
            #expect(throws: DecodingError.self) { try book.read() }
            #expect(throws: DecodingError.self) { try book.change { $0.learns = true } }
            #expect(try Data(contentsOf: file) == Data("{\"notes\": [".utf8))
        }
    }

    /// A write that fails is not what the next reader sees.
    @Test func aChangeThatCannotBeWrittenDoesNotCount() throws {
        try withFile { file in
            let book = JSONFile(file.appending(path: "nowhere/notebook.json"), empty: Notebook())
            #expect(throws: (any Error).self) { try book.change { $0.learns = true } }
            let learns = try book.read().learns
            #expect(!learns)
        }
    }
}
