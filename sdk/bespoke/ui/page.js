// SPDX-License-Identifier: Apache-2.0
// Draws what the server says ("/view") and sends what the user does. All words of the user and the model are set as text, never as HTML.
"use strict";

const WHILE_TRAINING = 300, AT_REST = 2000; // milliseconds between two looks
const PHASES = { open: "getting ready", judge: "judging what was learned", step: "training", commit: "writing it down", decode: "answering" };
const COLUMNS = 400; // of a picture
const OPEN_THE_LINK = "Open the link that bespoke ui printed: it has the token.";
const at = (id) => document.getElementById(id);
let timer = null, looking = Promise.resolve(), ran = false, running = false, problem = "";

// What the page has of the lists: the server sends what is new.
const has = { notes: 0, went: 0, asked: [], tries: null, training: {} };
const lines = new Map(); // number of a note -> its line
let losses = [], footprints = [], report = null;

// The link has the token behind "#", which the browser sends nowhere. It stays with this tab, and leaves the address line.
function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found === null) return false;
  sessionStorage.setItem("token", found);
  history.replaceState(null, "", location.pathname);
  return true;
}

async function send(path, given = {}, signal = null) {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${sessionStorage.getItem("token")}` };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(given), signal });
  if (answer.status === 403) throw new Error(await answer.text());
  if (!answer.ok && answer.status !== 409 && answer.status !== 400) throw new Error(`The page has lost its server: ${await answer.text()}`);
  return answer;
}

const wordsOf = (error) => (error instanceof TypeError ? `The page has lost its server: ${error.message}` : error.message);

function tell(words) {
  problem = words || "";
  showProblem(problem);
}

function showProblem(words) {
  at("problem").textContent = words;
  at("problem").hidden = !words;
}

// What the user did: its error is shown, and what has changed. What came of it, null if nothing did.
async function act(path, given) {
  try {
    const found = await (await send(path, given)).json();
    await look();
    tell(found.error);
    return found.error ? null : found;
  } catch (error) {
    tell(wordsOf(error));
    return null;
  }
}

// One after the other: each asks for what came after the one before.
function look() {
  looking = looking.then(lookOnce);
  return looking;
}

async function lookOnce() {
  clearTimeout(timer);
  let wait = AT_REST;
  try {
    const found = await (await send("/view", has)).json();
    if (found.error) throw new Error(found.error);
    const { training } = found.done;
    take(found.done);
    draw(found.done);
    if (training.runs) wait = WHILE_TRAINING;
    else if (ran && report && report.accepted) ask(inTurn(() => asked.map((one) => one.question)), true); // both answers side by side
    ran = training.runs;
  } catch (error) {
    showProblem(wordsOf(error)); // until the next look
  }
  timer = setTimeout(look, wait);
}

// The changes into what the page has. Of what was forgotten nothing stays.
function take(view) {
  const { training, notes } = view;
  if (view.went !== has.went) {
    has.went = view.went;
    asking?.abort();
    editing = null;
    tell("");
    at("ask").reset();
    at("saved").textContent = "";
  }
  version = view.version;
  if (view.tries) has.tries = view.tries;
  if (notes) {
    has.notes = notes.revision;
    if (notes.whole) clear(lines.keys());
    clear(notes.gone);
    at("examples").append(...notes.new.map(line));
  }
  if (view.asked) {
    has.asked = view.asked.revision;
    asked = view.asked.list;
    if (editing && find(editing.question)?.now !== editing.answer) editing = null; // its answer is gone
    drawAsked();
  }
  if (training.number !== has.training.number) [losses, footprints, report] = [[], [], null];
  losses = losses.concat(training.losses);
  footprints = footprints.concat(training.footprints);
  report = training.report || report;
  has.training = { number: training.number, losses: losses.length, footprints: footprints.length, report: report !== null };
}

function line(one) {
  const made = item(one.words, one.split === "train" ? "" : "held out", "Forget", () => act("/forget", { id: one.id }));
  lines.set(one.number, made);
  return made;
}

function clear(numbers) {
  for (const number of [...numbers]) {
    lines.get(number).remove();
    lines.delete(number);
  }
}

function draw(view) {
  const { training } = view;
  running = training.runs;
  if (running && asking) asking.abort();
  at("count").textContent = `${view.count}`;
  at("answers-now").textContent = view.version ? `version ${view.version} answers` : "the base model answers";
  replace("versions", [...view.versions].reverse(), (one) => item(`version ${one.id}, step ${one.step}`, one.accepted_at.slice(0, 16).replace("T", " ")));
  at("begin").textContent = view.unfinished ? "Go on" : "Train";
  at("begin").disabled = training.runs || !view.count;
  at("run-steps").disabled = training.runs || view.unfinished; // an unfinished run has its length
  at("stop").disabled = !training.runs;
  drawAskButtons();
  at("rollback").disabled = at("reset").disabled = training.runs || !view.versions.length;
  at("phase").textContent = training.runs ? `${PHASES[training.phase]}, step ${training.step}${training.steps ? ` of ${training.steps}` : ""}` : "";
  drawTraining(view.limit_bytes);
  at("report").hidden = !report;
  if (report) drawReport();
  else for (const id of ["verdict", "table"]) at(id).textContent = "";
  showProblem(problem || training.error || "");
}

function drawTraining(limit) {
  const finite = losses.filter(([, loss]) => loss !== null);
  const values = finite.map(([, loss]) => loss);
  plot("losses", values, extreme(Math.min, values), extreme(Math.max, values));
  at("losses-words").textContent = values.length
    ? `Loss ${values[0].toFixed(3)} at step ${finite[0][0]}, now ${values.at(-1).toFixed(3)} at step ${finite.at(-1)[0]}` : "Loss of each step";
  const peak = extreme(Math.max, footprints) || 0;
  plot("memory", footprints, 0, Math.max(peak, limit || 0) * 1.05, limit);
  const of = limit ? `, limit ${megabytes(limit)} (dashed)` : "";
  at("memory-words").textContent = peak ? `Memory at most ${megabytes(peak)}${of}` : `Memory${of}`;
}

function drawReport() {
  const verdict = { true: "Accepted: this version answers from now on.", false: `Refused: ${report.why_refused}.`, null: "Not finished: it can go on." };
  const on = report.judged_on === "train" ? "it was trained on" : "it did not see";
  const gain = report.accepted && report.gain !== null ? ` The loss on ${report.judged_examples} notes that ${on} is better by ${report.gain.toFixed(3)}.` : "";
  const less = report.adapter_scale === null ? "" : ` ${Math.round(100 * report.adapter_scale)}% of the change that was learned is kept, because all of it made answers to other questions much worse.`;
  at("verdict").textContent = verdict[report.accepted] + gain + less;
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
  const points = () => seen(values).map((n) => `${(400 * n) / (values.length - 1)},${height(values[n])}`);
  if (values.length > 1) shapes.push(shape("polyline", { points: points().join(" ") }));
  at(id).replaceChildren(...shapes);
}

// Which values to draw: of each of the picture's columns the least and the greatest. More cannot be seen, and take long to draw.
function seen(values) {
  if (values.length <= 2 * COLUMNS) return [...values.keys()];
  const found = [];
  for (let column = 0; column < COLUMNS; column++) {
    const end = Math.floor(((column + 1) * values.length) / COLUMNS);
    let least = Math.floor((column * values.length) / COLUMNS), most = least;
    for (let n = least; n < end; n++) {
      if (values[n] < values[least]) least = n;
      if (values[n] > values[most]) most = n;
    }
    found.push(...(least < most ? [least, most] : [most, least]));
  }
  return found;
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
  if (does) made.append(button(does, `${does}: ${words}`, action));
  return made;
}

function button(does, label, action) {
  const made = element("button", does);
  made.type = "button";
  made.name = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
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

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

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
on("train", () => act("/train", { run_steps: at("run-steps").disabled ? null : Number(at("run-steps").value) || null }));
on("ask", () => {
  const question = at("question").value.trim();
  if (question) ask(once(question));
});
at("try").addEventListener("click", () => ask(inTurn(() => has.tries)));
at("end").addEventListener("click", () => asking?.abort());
at("stop").addEventListener("click", () => act("/stop"));
at("rollback").addEventListener("click", () => act("/rollback"));
at("reset").addEventListener("click", () => {
  if (confirm("Forget all that was learned? The notes stay.")) act("/reset");
});
addEventListener("hashchange", () => {
  if (takeToken()) location.reload(); // another link of bespoke ui, in the same tab
});
takeToken();
if (sessionStorage.getItem("token") === null) tell(OPEN_THE_LINK);
else look();
