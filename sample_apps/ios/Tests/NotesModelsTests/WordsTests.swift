// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation
import Testing

@testable import NotesModels

private let languages = ["en", "de"]

@Suite struct WordsTests {
    private let catalog = Catalog.ofApp

    @Test func theCatalogHasTheWordsOfTheCodeAndNoOthers() {
        #expect(Set(catalog.strings.keys) == Set(Word.allCases.map(\.rawValue)))
        #expect(catalog.sourceLanguage == "en")
    }

    @Test(arguments: Word.allCases) func bothLanguagesSayIt(_ word: Word) throws {
        let text = try #require(catalog.strings[word.rawValue])
        #expect(Set(text.localizations.keys) == Set(languages))
        for (_, localization) in text.localizations {
            #expect(localization.stringUnit.state == "translated")
            #expect(!localization.stringUnit.value.isEmpty)
        }
        #expect(Set(languages.map { places(catalog.format(word.rawValue, $0)) }).count == 1)  // the same arguments
    }

    private func places(_ format: String) -> [String] {
        format.matches(of: /%\d\$(lld|@)/).map { String($0.output.0) }.sorted()
    }

    @Test func pluralsHaveTheFormsOfBothLanguages() {
        for (_, text) in catalog.strings {
            for (_, localization) in text.localizations {
                for (name, substitution) in localization.substitutions ?? [:] {
                    #expect(localization.stringUnit.value.contains("%#@\(name)@"))
                    #expect(Set(substitution.variations["plural"]?.keys ?? [:].keys) == ["one", "other"])
                    #expect(substitution.variations["plural"]?.values.allSatisfy { $0.stringUnit.value.contains("%arg") } == true)
                }
            }
        }
        #expect(catalog.strings["versionDetail"]?.localizations["de"]?.substitutions != nil)
    }

    @Test func argumentsTakeTheirPlaces() {
        #expect(catalog.words("en")(.statusLearningText, 174, 300).hasPrefix("Step 174 of 300."))
        #expect(catalog.words("de")(.notesCorrection, "Wo?", "Im Teich 🦆.") == "Auf die Frage „Wo?“ ist die Antwort: Im Teich 🦆.")
    }
}

@Suite struct StatusWordsTests {
    private let words = StatusWords(Catalog.ofApp.words("en"))
    private let book = {
        var book = Notebook()
        book.notes = (1...8).map { Note("\($0)") }
        (book.learns, book.hasTaught) = (true, true)
        return book
    }()

    @Test func offSaysWhetherAnythingWasLearned() {
        #expect(words.said(of: .off, Notebook()).text == "The assistant is as it came. It has not read your notes.")
        #expect(words.said(of: .off, book).text.contains("still answers"))
    }

    @Test func everyStatusSaysSomethingElse() {
        let all: [LearningStatus] = [.off, .waiting, .opening, .learning(step: 1, steps: 2), .done, .failed("no such file")]
        let said = (all + Pause.allCases.map { .paused($0) }).map { words.said(of: $0, book) }
        #expect(Set(said.map(\.text)).count == said.count)
        #expect(Set(said.map(\.title)).count == all.count + 1)
        #expect(words.said(of: .waiting, book).title == "waiting for the charger")
        #expect(words.said(of: .waiting, book).facts == [Fact(label: "Notes to learn from", value: "8")])
        #expect(words.said(of: .failed("no such file"), book).facts.map(\.value) == ["no such file"])
        #expect(words.said(of: .paused(.memory, failure: "too little"), book).facts.map(\.value) == ["8", "too little"])
    }

    @Test func learningSaysHowFarItIs() {
        #expect(words.said(of: .opening, book).progress == .unknown)
        let said = words.said(of: .learning(step: 174, steps: 300), book)
        #expect(said.progress == .step(174, of: 300))
        #expect(said.text.hasPrefix("Step 174 of 300."))
        #expect(words.said(of: .done, book).progress == nil)
    }

    /// In the size of the figures of a phone with a real model.
    private func last(accepted: Bool? = nil, because: RefusedBecause? = nil, limit: Int64? = 350_000_000) -> LastTime {
        LastTime(
            at: Date(timeIntervalSince1970: 1_770_000_000), totalSteps: 120, accepted: accepted, refusedBecause: because, firstLoss: 3.41,
            lastLoss: 2.87, addedBytes: 321_000_000, limitBytes: limit, bytesWritten: 18_400_000, seconds: 537)
    }

    @Test func theLastTimeSaysWhatCameOfItAndWhatItTook() {
        #expect(words.said(of: last(accepted: true)).text.hasPrefix("Kept"))
        #expect(words.said(of: last()).text.hasPrefix("Not finished yet"))
        let facts = Dictionary(uniqueKeysWithValues: words.said(of: last()).facts.map { ($0.label, $0.value) })
        #expect(facts["Error on your notes (less is better)"] == "3.41, then 2.87")
        #expect(facts["Memory"] == "321 MB, 350 MB allowed")
        #expect(facts["Written to storage"] == "18.4 MB")
        #expect(facts["Time used"] == "8 min 57 s")
        #expect(facts["Steps"] == "120")
        #expect(facts["When"]?.contains("2026") == true)
        #expect(words.said(of: last(limit: nil)).facts.contains { $0.value == "321 MB, no limit set" })
    }

    @Test func everyRefusalSaysWhy() {
        let reasons: [RefusedBecause] = [
            .diverged, .nothingToJudgeBy, .noBetter, .luck, .tooSmall, .generalWorse, .behaviourWorse, .answersEndless, .answersEmpty,
            .answersCopied, .withdrawn, RefusedBecause(rawValue: "of a later version"),
        ]
        let said = reasons.map { words.said(of: last(accepted: false, because: $0)).text }
        #expect(Set(said).count == reasons.count)
        #expect(said.allSatisfy { $0.hasPrefix("Not kept") })
    }

    @Test func aProblemSaysWhatItsUserCanDo() {
        #expect(words.text(of: .busy).hasPrefix("Learning is going on right now."))
        #expect(words.text(of: .other("no such file")) == "That did not work: no such file")
    }

    @Test func germanNumbersHaveAComma() {
        let said = StatusWords(Catalog.ofApp.words("de")).said(of: last(accepted: true))
        #expect(said.text.hasPrefix("Behalten"))
        #expect(said.facts.contains { $0.value == "3,41, dann 2,87" })
        #expect(said.facts.contains { $0.value == "18,4 MB" })
    }
}
