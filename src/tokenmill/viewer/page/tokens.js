// Tokens as colored text, a line of the text in an element of its own. What one cannot see is shown by a sign.

import { byId, element, number } from "./api.js";

const COLORS = 5;
// Controls, and what is invisible or turns the direction of text. Joiners stay: scripts and emoji need them.
const HIDDEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/u;
const NAMES = { 0: "NUL", 7: "BEL", 8: "BS", 11: "VT", 12: "FF", 13: "CR", 27: "ESC", 127: "DEL" };
const pieces = new WeakMap();

function sign(character) {
  const code = character.codePointAt(0);
  if (character === "\t") return [element("span", { class: "sign", "aria-hidden": "true" }, "→"), "\t"];
  const shown = NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  return [element("span", { class: "sign code", dir: "ltr" }, shown)];
}

function visible(text) {
  const shown = [];
  let plain = "";
  for (const character of text) {
    if (!HIDDEN.test(character)) {
      plain += character;
      continue;
    }
    if (plain) shown.push(plain);
    shown.push(...sign(character));
    plain = "";
  }
  return plain ? [...shown, plain] : shown;
}

function lastLine(into) {
  if (!into.lastElementChild) into.append(element("div", { class: "line", dir: "auto" }));
  return into.lastElementChild;
}

// Put pieces behind what is there; `place` is where their first token is.
export function appendPieces(into, some, place, mark = () => "") {
  for (const piece of some) {
    const [text, ids, , kind] = piece;
    const color = kind === "special" ? "special" : `c${place % COLORS}`;
    const classes = `token ${color}${kind === "unknown" ? " unknown" : ""}${ids.length > 1 ? " several" : ""} ${mark(piece, place)}`;
    const lines = text.split("\n");
    lines.forEach((line, i) => {
      const attributes = { class: classes.trim(), "data-place": place };
      if (kind !== "text") attributes.dir = "ltr"; // or it would decide the direction of the line
      const span = element("span", attributes, ...visible(line));
      if (i < lines.length - 1) span.append(element("span", { class: "sign", "aria-hidden": "true" }, "↵"));
      pieces.set(span, { piece, place });
      if (span.hasChildNodes()) lastLine(into).append(span);
      if (i < lines.length - 1) into.append(element("div", { class: "line", dir: "auto" }));
    });
    place += ids.length;
  }
  return place;
}

function quoted(text) {
  return element("b", {}, "“", ...visible(text.replaceAll("\n", "↵")), "”");
}

function showDetails(span) {
  const { piece, place } = pieces.get(span);
  const [text, ids, bytes, kind] = piece;
  const what = { special: "special token", unknown: "not in the vocabulary" }[kind];
  const entries = ids.map((id, i) => {
    const spelled = bytes ? `, bytes ${bytes[i]}` : "";
    return element("span", { class: "entry" }, `id ${id}${spelled}`);
  });
  const several = ids.length > 1 ? `${ids.length} tokens from ${number(place)} on` : `token ${number(place)}`;
  byId("details").replaceChildren(
    element("span", { class: "entry" }, quoted(text)),
    element("span", { class: "entry" }, several),
    ...(what ? [element("span", { class: "entry" }, what)] : []),
    ...entries,
  );
}

function activate(into, span) {
  into.querySelectorAll(".active").forEach((other) => other.classList.remove("active"));
  if (!span) return;
  into.querySelectorAll(`[data-place="${span.dataset.place}"]`).forEach((part) => part.classList.add("active"));
  showDetails(span);
}

// Ids and bytes for mouse, touch and keyboard. A click leaves the arrow keys to the documents.
export function watchTokens(into) {
  into.addEventListener("pointerover", (event) => {
    const span = event.target.closest(".token");
    if (span) showDetails(span);
  });
  into.addEventListener("click", (event) => activate(into, event.target.closest(".token")));
  into.addEventListener("focus", () => {
    if (!into.matches(":focus-visible")) into.blur();
    else if (!into.querySelector(".active")) activate(into, into.querySelector(".token"));
  });
  into.addEventListener("keydown", (event) => {
    const all = [...into.querySelectorAll(".token")];
    const active = into.querySelector(".active");
    const at = all.indexOf(active);
    const same = (span) => span && active && span.dataset.place === active.dataset.place;
    let step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    let goal;
    if (step) {
      let i = at + step;
      while (same(all[i])) i += step;
      goal = all[i];
    } else if (event.key === "Home") goal = all[0];
    else if (event.key === "End") goal = all.at(-1);
    else if (event.key === "Escape") {
      into.blur();
      return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
    if (!goal) return;
    activate(into, goal);
    goal.scrollIntoView({ block: "nearest" });
  });
}
