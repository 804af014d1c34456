// SPDX-License-Identifier: Apache-2.0
// Questions with the answers of the base model and of now: asks for them, shows them as they come, lets the user write a better one.
"use strict";

let version = 0; // that answers now, 0 for the base model
let asked = []; // what the server has: { question, base, now }
let asking = null; // ends the answers that are being given: an AbortController
let growing = null; // the answer that is being given: { question, side, text, place }
let editing = null; // the answer that the user edits: { question, answer, form }

function drawAskButtons() {
  at("ask-button").disabled = running || asking;
  at("try").disabled = running || asking || !has.tries?.some(lacks);
  at("end").disabled = !asking;
}

// With what is being said and written. The focus stays where it was, as far as that is still there.
function drawAsked() {
  const list = !growing || find(growing.question) ? asked : [...asked, { question: growing.question, base: null, now: null }];
  const { name } = document.activeElement;
  at("asked").replaceChildren(...[...list].reverse().map(compared));
  if (name) document.getElementsByName(name)[0]?.focus();
}

const find = (question) => asked.find((one) => one.question === question);

// Which answer a question still lacks: first that of now, then that of the base model.
function lacks(question) {
  const one = find(question);
  return one?.now == null ? "now" : one.base === null && version ? "base" : null;
}

function compared(one) {
  const made = element("div", "", "asked"), sides = element("div", "", "sides");
  if (version) sides.append(side(one, "base", "base model"));
  sides.append(side(one, "now", version ? "now" : "base model"));
  made.append(element("h3", one.question), sides);
  return made;
}

function side(one, which, title) {
  const made = document.createElement("div"), grows = growing?.question === one.question && growing.side === which;
  made.append(element("span", title, "soft"));
  if (which === "now" && editing?.question === one.question) {
    made.append(editing.form);
    return made;
  }
  const text = element("p", grows ? growing.text : one[which] ?? "not asked yet");
  made.append(text);
  if (grows) growing.place = text;
  else if (which === "now" && one.now) made.append(button("Edit", `Edit the answer to: ${one.question}`, () => edit(one)));
  return made;
}

// The user writes what the answer should have been, which is saved as a note.
function edit({ question, now }) {
  const form = document.createElement("form"), words = document.createElement("textarea"), buttons = element("div", "", "row");
  words.name = "better";
  words.rows = 5;
  words.value = now;
  words.setAttribute("aria-label", `A better answer to: ${question}`);
  buttons.append(element("button", "Save"), button("Cancel", `Keep the answer to: ${question}`, () => ends(null)));
  form.append(words, buttons);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const saved = await act("/correct", { question, better: words.value });
    if (saved) ends(`Saved as a note. The next training ${saved.done.split === "train" ? "learns it" : "is judged by it"}.`);
  });
  editing = { question, answer: now, form };
  drawAsked();
  words.focus();

  function ends(said) {
    editing = null;
    at("saved").textContent = said;
    drawAsked();
    document.getElementsByName(`Edit the answer to: ${question}`)[0]?.focus();
  }
}

// One question after the other, until there is no next one or the user stops. `again`: nobody waits for these answers; where
// another tab asks at the same time, that one's come with the next look.
async function ask(next, again = false) {
  if (asking) return;
  const { signal } = (asking = new AbortController());
  at("saved").textContent = "";
  for (let question = next(); question !== undefined && !signal.aborted; question = next()) {
    let before = null;
    for (let which = lacks(question) || "now"; which && which !== before && !signal.aborted; which = lacks(question)) {
      await answer(question, which, again, signal);
      before = which;
    }
  }
  asking = null;
  drawAskButtons();
}

async function answer(question, which, again, signal) {
  const fails = (words) => again || tell(words);
  growing = { question, side: which, text: "", place: null };
  drawAskButtons();
  drawAsked();
  try {
    const stream = await send("/ask", { question, base: which === "base" }, signal);
    if (!stream.ok) return fails((await stream.json()).error);
    if (!again) tell("");
    let rest = "";
    const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const whole = (rest + part.value).split("\n");
      rest = whole.pop();
      for (const said of whole.map((line) => JSON.parse(line))) {
        if (said.error) fails(said.error);
        growing.text += said.text || "";
        growing.place.textContent = growing.text;
      }
    }
  } catch (error) {
    if (!signal.aborted) tell(wordsOf(error));
  } finally {
    growing = null;
    await look();
    drawAsked(); // also where nothing came of it
  }
}

function once(question) {
  const left = [question];
  return () => left.pop();
}

// Each question of a list once, as long as it lacks an answer.
function inTurn(list) {
  const tried = new Set();
  return () => {
    const next = list().find((question) => !tried.has(question) && lacks(question));
    tried.add(next);
    return next;
  };
}
