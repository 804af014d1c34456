// SPDX-License-Identifier: Apache-2.0

/// What the app says: keys of Localizable.xcstrings.
public enum Word: String, CaseIterable, Sendable {
    case appName, askAfter, askBefore, askBetter, askCorrected, askEmpty, askGo, askHint, askNothingLearned, askSave, askTitle
    case askWaiting, cancel, deleteText, deleteTitle, deleteYes, factError, factFromTo, factMemory, factMemoryNoLimit, factMemoryValue
    case factNotes, factSteps, factTechnical, factTime, factWhen, factWritten, forget, forgetText, forgetTitle, forgetYes, forgotten
    case lastAccepted, lastRefused, lastTitle, lastUnfinished, learnNow, learnNowAbout, learnNowTitle, learningCompare, learningOpen
    case learningTitle, notesAsk, notesCorrection, notesDelete, notesEmpty, notesWrite, ok, pauseBusy, pauseDisk, pauseHot, pauseMemory
    case pauseNoExamples, pausePowerSave, privateText, privateTitle, problemBusy, problemMissing, problemOther, progressLabel
    case refusedAnswersCopied, refusedAnswersEmpty, refusedAnswersEndless, refusedBehaviourWorse, refusedDiverged, refusedGeneralWorse
    case refusedLuck, refusedNoBetter, refusedNothingToJudgeBy, refusedTooSmall, refusedUnknown, refusedWithdrawn, rollBack
    case rollBackText, rollBackTitle, rollBackYes, statusDone, statusDoneText, statusFailed, statusFailedText, statusLearning
    case statusLearningText, statusOff, statusOffKeptText, statusOffText, statusOpening, statusOpeningText, statusPaused, statusWaiting
    case statusWaitingText, switchOff, switchOn, timeMinutes, timeSeconds, versionAnswers, versionDetail, versionName, versionsAbout
    case versionsNone, versionsOpen, versionsTitle, whatText, whatTitle, whereText, whereTitle, working, writeHint, writeSave
    case writeTitle
}
