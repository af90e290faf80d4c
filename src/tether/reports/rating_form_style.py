"""Style sheet and script of a rating form."""

from __future__ import annotations

CSS = """
:root{color-scheme:light;--ink:#24292f;--soft:#5b6370;--line:#d8dce2;--wash:#f7f8fa;--act:#0b5cad}
*{box-sizing:border-box}
body{margin:0;color:var(--ink);background:#fff;
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
main{max-width:860px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:20px;margin:0 0 8px}
h2{font-size:13px;margin:20px 0 4px;color:var(--soft)}
header p{max-width:74ch}
#instructions{white-space:pre-wrap}
#warning{border-left:3px solid #d55e00;padding:4px 12px;background:var(--wash)}
.sub{color:var(--soft);font-size:14px}
blockquote,.text{margin:0;padding:10px 14px;border-radius:6px;white-space:pre-wrap;
 overflow-wrap:anywhere}
blockquote{background:var(--wash)}
.text{border:1px solid var(--line)}
#texts{display:grid;gap:12px;grid-template-columns:repeat(auto-fit,minmax(300px,1fr))}
fieldset{border:0;padding:0;margin:20px 0 0}
legend{padding:0;font-weight:600}
.options{display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin-top:6px}
.options label{border:1px solid var(--line);border-radius:6px;padding:6px 12px;cursor:pointer}
.options label:focus-within{outline:2px solid var(--act)}
.end{color:var(--soft);font-size:14px}
nav{display:flex;flex-wrap:wrap;gap:8px;margin-top:28px}
button,input[type=text],#rater{font:inherit;padding:6px 14px;border:1px solid var(--line);
 border-radius:6px;background:#fff}
button{cursor:pointer}
button:disabled{color:var(--soft);cursor:default}
"""

SCRIPT = """
"use strict";
const form = JSON.parse(document.getElementById("form").textContent);
const $ = (id) => document.getElementById(id);
const place = "tether-human-study/" + form.study + "/" + form.form;
let state = {rater: "", at: 0, answers: {}, seconds: {}};
let keeps = true;
try {
  const saved = JSON.parse(localStorage.getItem(place));
  if (saved && saved.answers && saved.seconds) state = Object.assign(state, saved);
} catch (e) { keeps = false; }
state.at = Math.min(Math.max(0, state.at | 0), form.units.length - 1);
let since = null;

function keep() {
  try { localStorage.setItem(place, JSON.stringify(state)); keeps = true; }
  catch (e) { keeps = false; }
  $("warning").hidden = keeps;
}
function clock() {  // time in view of the unit that is shown
  const now = performance.now(), id = form.units[state.at].id;
  if (since !== null) state.seconds[id] = (state.seconds[id] || 0) + (now - since) / 1000;
  since = document.hidden ? null : now;
}
function element(kind, text, parent, name) {
  const e = document.createElement(kind);
  if (text !== null) e.textContent = text;
  if (name) e.className = name;
  parent.appendChild(e);
  return e;
}
const answerOf = (unit, axis) => (state.answers[unit.id] || {})[axis.name] || "";
const complete = (unit) => form.axes.every((axis) => answerOf(unit, axis) !== "");

function count() {
  const done = form.units.filter(complete).length;
  $("progress").textContent = (state.at + 1) + " of " + form.units.length;
  $("state").textContent = done === form.units.length
    ? "All " + done + " are answered. Please export the answers and send the file back."
    : done + " of " + form.units.length + " are answered."
      + (keeps ? " Answers are kept in this browser; you can close the page and come back." : "");
  $("open").disabled = done === form.units.length;
}
function label(option) {
  if (form.units[0].texts.length < 2) return option;
  return option === "equal" ? "Equally good" : "Text " + option;
}
function ask(unit, axis) {
  const set = element("fieldset", null, $("questions"));
  element("legend", axis.question, set);
  const row = element("div", null, set, "options");
  if (form.ends.length) element("span", form.ends[0], row, "end");
  for (const option of form.options) {
    const box = element("label", null, row);
    const input = element("input", null, box);
    input.type = "radio";
    input.name = axis.name;
    input.value = option;
    input.checked = answerOf(unit, axis) === option;
    input.addEventListener("change", () => {
      (state.answers[unit.id] = state.answers[unit.id] || {})[axis.name] = option;
      keep();
      count();
    });
    box.append(" " + label(option));
  }
  if (form.ends.length) element("span", form.ends[1], row, "end");
}
function show(at) {
  clock();
  state.at = at;
  const unit = form.units[at];
  $("prompt").textContent = unit.prompt;
  $("texts").replaceChildren();
  $("questions").replaceChildren();
  unit.texts.forEach((text, i) => {
    const box = element("div", null, $("texts"));
    element("h2", unit.texts.length < 2 ? "Text" : "Text " + "AB"[i], box);
    element("div", text.trim() === "" ? "(no text)" : text, box, "text");
  });
  form.axes.forEach((axis) => ask(unit, axis));
  $("back").disabled = at === 0;
  $("next").disabled = at === form.units.length - 1;
  keep();
  count();
}
function csv() {
  clock();
  keep();
  const cell = (v) => /[",\\r\\n]/.test(v) ? '"' + v.replaceAll('"', '""') + '"' : v;
  const lines = [form.columns];
  form.units.forEach((unit, i) => form.axes.forEach((axis) => lines.push([
    form.study, form.form, state.rater, String(i + 1), unit.id, axis.name, answerOf(unit, axis),
    (state.seconds[unit.id] || 0).toFixed(1)])));
  return lines.map((line) => line.map(cell).join(",")).join("\\r\\n") + "\\r\\n";
}
$("instructions").textContent = form.instructions || (form.units[0].texts.length < 2
  ? "Read the prompt and the text, then answer every question. Judge each text by itself."
  : "Read the prompt and both texts, then answer every question.");
$("warning").textContent = "This browser keeps no answers: export them before you close the page.";
$("rater").value = state.rater;
$("rater").addEventListener("input", () => { state.rater = $("rater").value.trim(); keep(); });
$("back").addEventListener("click", () => show(state.at - 1));
$("next").addEventListener("click", () => show(state.at + 1));
$("open").addEventListener("click", () => {
  const order = [...form.units.keys()].map((i) => (state.at + 1 + i) % form.units.length);
  const found = order.find((i) => !complete(form.units[i]));
  if (found !== undefined) show(found);
});
$("export").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], {type: "text/csv;charset=utf-8"}));
  link.download = form.form + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
document.addEventListener("visibilitychange", () => { clock(); keep(); });
window.addEventListener("pagehide", () => { clock(); keep(); });
show(state.at);
document.body.setAttribute("data-ready", "true");
"""
