// SPDX-License-Identifier: Apache-2.0
// Draws what the server says ("/view") and sends what the user does. All words of the user and the model are set as text, never as HTML.
"use strict";

const WHILE_TRAINING = 300, AT_REST = 2000; // milliseconds between two looks
const PHASES = { open: "getting ready", judge: "judging what was learned", step: "training", commit: "writing it down", decode: "answering" };
const at = (id) => document.getElementById(id);
let timer = null, ran = false, asking = false;

async function send(path, given = {}) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given) });
  if (!answer.ok && answer.status !== 409 && answer.status !== 400) throw new Error(await answer.text());
  return answer;
}

function tell(problem) {
  at("problem").textContent = problem || "";
  at("problem").hidden = !problem;
}

// What the user did: its error is shown, and what has changed.
async function act(path, given) {
  try {
    const found = await (await send(path, given)).json();
    tell(found.error);
    if (!found.error) await look();
    return !found.error;
  } catch (error) {
    tell(`The page has lost its server: ${error.message}`);
    return false;
  }
}

async function look() {
  clearTimeout(timer);
  let wait = AT_REST;
  try {
    const found = await (await send("/view")).json();
    if (found.error) throw new Error(found.error);
    draw(found.done);
    if (found.done.training.runs) wait = WHILE_TRAINING;
    else if (ran && found.done.report && found.done.report.accepted) askAgain(found.done.asked);
    ran = found.done.training.runs;
  } catch (error) {
    tell(`The page has lost its server: ${error.message}`);
  }
  clearTimeout(timer); // another look may have begun meanwhile
  timer = setTimeout(look, wait);
}

function draw(view) {
  const { training, report } = view;
  at("count").textContent = `${view.examples.length}`;
  at("answers-now").textContent = view.version ? `version ${view.version} answers` : "the base model answers";
  replace("examples", view.examples, (one) => item(one.words, one.split === "train" ? "" : "held out", "Forget", () => act("/forget", { id: one.id })));
  replace("versions", [...view.versions].reverse(), (one) => item(`version ${one.id}, step ${one.step}`, one.accepted_at.slice(0, 16).replace("T", " ")));
  at("begin").textContent = view.unfinished ? "Go on" : "Train";
  at("begin").disabled = training.runs || !view.examples.length;
  at("stop").disabled = !training.runs;
  at("ask-button").disabled = training.runs || asking;
  at("rollback").disabled = at("reset").disabled = training.runs || !view.versions.length;
  at("phase").textContent = training.runs ? `${PHASES[training.phase]}, step ${training.step}${training.steps ? ` of ${training.steps}` : ""}` : "";
  drawTraining(training, view.limit_bytes);
  at("report").hidden = !report;
  if (report) drawReport(report);
  if (view.error) tell(view.error);
  if (!asking) replace("asked", [...view.asked].reverse(), compared);
}

function drawTraining(training, limit) {
  const losses = training.losses.filter(([, loss]) => loss !== null);
  const values = losses.map(([, loss]) => loss);
  plot("losses", values, extreme(Math.min, values), extreme(Math.max, values));
  at("losses-words").textContent = values.length
    ? `Loss ${values[0].toFixed(3)} at step ${losses[0][0]}, now ${values.at(-1).toFixed(3)} at step ${losses.at(-1)[0]}` : "Loss of each step";
  const peak = extreme(Math.max, training.footprints) || 0;
  plot("memory", training.footprints, 0, Math.max(peak, limit || 0) * 1.05, limit);
  const of = limit ? `, limit ${megabytes(limit)} (dashed)` : "";
  at("memory-words").textContent = peak ? `Memory at most ${megabytes(peak)}${of}` : `Memory${of}`;
}

function drawReport(report) {
  const verdict = { true: "Accepted: this version answers from now on.", false: `Refused: ${report.why_refused}.`, null: "Not finished: it can go on." };
  const on = report.judged_on === "train" ? "it was trained on" : "it did not see";
  const gain = report.accepted && report.gain !== null ? ` The loss on ${report.judged_examples} notes that ${on} is better by ${report.gain.toFixed(3)}.` : "";
  at("verdict").textContent = verdict[report.accepted] + gain;
  at("verdict").className = report.accepted ? "good" : report.accepted === false ? "refused" : "";
  at("table").textContent = report.table;
}

// Of any number of values; as arguments of one call a long run has too many.
function extreme(of, values) {
  return values.reduce((found, value) => of(found, value), values[0]);
}

// A line over the whole width; nothing where there are no two values.
function plot(id, values, least, most, limit) {
  const height = (value) => 112 - 104 * ((value - least) / (most - least || 1));
  const shapes = [];
  if (limit) shapes.push(shape("line", { x1: 0, x2: 400, y1: height(limit), y2: height(limit) }));
  if (values.length > 1) shapes.push(shape("polyline", { points: values.map((value, n) => `${(400 * n) / (values.length - 1)},${height(value)}`).join(" ") }));
  at(id).replaceChildren(...shapes);
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

function item(words, remark, does, action) {
  const made = document.createElement("li");
  const text = element("span", words, "words");
  text.title = words;
  made.append(text, element("span", remark, "soft"));
  if (does) {
    const button = element("button", does);
    button.type = "button";
    button.setAttribute("aria-label", `${does}: ${words}`);
    button.addEventListener("click", action);
    made.append(button);
  }
  return made;
}

function compared(one) {
  const made = element("div", "", "asked"), sides = element("div", "", "sides");
  for (const [title, text] of [[one.before ? name(one.before.version) : "before", one.before ? one.before.text : "–"], ["now", one.now ?? "not asked yet"]]) {
    const side = document.createElement("div");
    side.append(element("span", title, "soft"), element("p", text));
    sides.append(side);
  }
  made.append(element("h3", one.question), sides);
  return made;
}

// Only where something has changed: focus and selection stay.
const drawn = {};
function replace(id, list, draw) {
  const now = JSON.stringify(list);
  if (drawn[id] === now) return;
  drawn[id] = now;
  at(id).replaceChildren(...list.map(draw));
}

async function ask(question) {
  asking = true;
  at("ask-button").disabled = true;
  const live = compared({ question, before: null, now: "" }), answer = live.querySelector(".sides > :last-child p");
  at("asked").prepend(live);
  try {
    const stream = await send("/ask", { question });
    if (!stream.ok) return tell((await stream.json()).error);
    tell("");
    let rest = "";
    const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      for (const said of lines.map((line) => JSON.parse(line))) {
        if (said.error) tell(said.error);
        answer.textContent += said.text || "";
      }
    }
  } catch (error) {
    tell(`The page has lost its server: ${error.message}`);
  } finally {
    asking = false;
    drawn.asked = null;
    await look();
  }
}

// After a version was accepted: what was asked before, so that both answers stand side by side.
async function askAgain(asked) {
  for (const one of asked.filter((one) => one.now === null)) await ask(one.question);
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
const name = (version) => (version ? `version ${version}` : "base model");

function on(form, action) {
  at(form).addEventListener("submit", (event) => {
    event.preventDefault();
    action();
  });
}

on("add", async () => {
  const given = { prompt: at("prompt").value, completion: at("completion").value, must_know: at("must-know").checked };
  if (await act("/add", given)) at("add").reset();
});
on("train", () => act("/train", { steps: Number(at("steps").value) || null }));
on("ask", () => {
  const question = at("question").value.trim();
  if (question && !asking) ask(question);
});
at("stop").addEventListener("click", () => act("/stop"));
at("rollback").addEventListener("click", () => act("/rollback"));
at("reset").addEventListener("click", () => {
  if (confirm("Forget all that was learned? The notes stay.")) act("/reset");
});
look();
