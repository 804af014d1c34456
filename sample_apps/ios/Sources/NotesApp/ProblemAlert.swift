// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

extension View {
    /// Shows why something that the user asked for did not happen.
    func alert(of problem: Binding<Problem?>) -> some View {
        let isPresented = Binding {
            problem.wrappedValue != nil
        } set: { isPresented in
            if !isPresented {
                problem.wrappedValue = nil
            }
        }
        let text = problem.wrappedValue.map { StatusWords(words).text(of: $0) } ?? ""
        return alert(text, isPresented: isPresented) {
            Button(words(.ok)) {}
        }
    }
}
