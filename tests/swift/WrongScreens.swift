// SPDX-License-Identifier: Apache-2.0
// Uses of SwiftUI that its stand-in must refuse as SwiftUI does, one a line that ends in `wrong`. test_notes.py type-checks the file.
import Observation
import SwiftUI

@MainActor @Observable final class Model {
    var text = ""
    let fixed = ""
}

struct Right: View {
    @Bindable var model: Model
    @State private var isShown = false

    var body: some View {
        List {
            Section {
                Text(model.text).font(.headline)
                TextField(model.text, text: $model.text, axis: .vertical)
                Button(model.text, role: .cancel) { isShown = true }
            } footer: {
                Text(model.text)
            }
        }
        .alert(model.text, isPresented: $isShown) { Button(model.text) {} }
        .task { model.text = "" }
    }

    func arguments() {
        _ = Text(text: model.text)  // wrong
        _ = Text(1)  // wrong
        _ = TextField(model.text, text: model.text, axis: .vertical)  // wrong
        _ = TextField(model.text, text: $model.fixed, axis: .vertical)  // wrong
        _ = Button(model.text, image: "trash") {}  // wrong
        _ = Button(model.text, role: .dangerous) {}  // wrong
        _ = Label(model.text, image: "trash", scale: 2)  // wrong
        _ = ProgressView(value: "half")  // wrong
        _ = NavigationLink(value: model) { Text(model.text) }  // wrong
        _ = ForEach([1.5, 2.5]) { _ in Text(model.text) }  // wrong
        _ = Section { model.text }  // wrong
        _ = VStack(alignment: .top) { Text(model.text) }  // wrong
        _ = ToolbarItem(placement: .left) { Text(model.text) }  // wrong
        _ = AnyLayout(Text(model.text))  // wrong
    }

    func modifiers() {
        _ = Text(model.text).font(.enormous)  // wrong
        _ = Text(model.text).frame(maxWidth: "all")  // wrong
        _ = Text(model.text).accessibilityName(model.text)  // wrong
        _ = Text(model.text).disabled(if: isShown)  // wrong
        _ = Text(model.text).alert(model.text, isPresented: isShown) { Text(model.text) }  // wrong
        _ = Text(model.text).sheet(isPresented: $isShown) { model.text }  // wrong
        _ = Text(model.text).foregroundStyle(.headline)  // wrong
        _ = Text(model.text).buttonStyle(.headline)  // wrong
        _ = Text(model.text).focused($isShown)  // wrong
        _ = Text(model.text).navigationDestination(for: Model.self) { _ in Text(model.text) }  // wrong
        _ = Text(model.text).task(id: model) {}  // wrong
    }
}

struct WithoutBody: View {}  // wrong

struct WrongBody: View {
    var body: some View { 1 }  // wrong
}

struct WrongObject: View {
    @Bindable var model: String  // wrong
    var body: some View { Text(model) }
}

struct WrongEnvironment: View {
    @Environment(\.weather) private var weather  // wrong
    var body: some View { EmptyView() }
}
