// The document that is shown: where it is, its tokens a window at a time, and the way to its neighbors.

import { ask, byId, counted, element, number, percent, wasStopped } from "./api.js";
import { appendPieces, watchTokens } from "./tokens.js";

const CONTEXT_TOKENS = 200; // shown before a token that was asked for
let facts = null;
let shown = { start: 0, stop: 0 }; // tokens on the page
let wanted = {}; // what was asked for
let asking = new AbortController();
const changed = new EventTarget();

export function current() {
  return facts;
}

export function onDocument(listener) {
  changed.addEventListener("document", listener);
}

export function say(message) {
  byId("message").textContent = message;
  byId("message").hidden = !message;
}

// Go to {number}, {token} or {token, last}; `step` leaves no entry in the history.
export async function go(query, { step = false } = {}) {
  const hash = `#${new URLSearchParams(query)}`;
  if (step) history.replaceState(null, "", hash);
  else if (hash !== location.hash) history.pushState(null, "", hash);
  await load(query);
}

export async function loadFromAddress() {
  const query = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  await load("number" in query || "token" in query ? query : { number: 0 });
}

// Ask until the answer is there; in between it says how far the counting is.
export async function patiently(name, query, signal, saying) {
  for (;;) {
    const answer = await ask(name, query, signal);
    if (answer.share === undefined || "start" in answer) return answer;
    byId("title").textContent = `${saying}: ${percent(answer.share)}`;
    if ("next" in answer) query = { ...query, next: answer.next };
  }
}

export function stopAsking() {
  asking.abort();
  asking = new AbortController();
  return asking.signal;
}

async function load(query) {
  const signal = stopAsking();
  say("");
  try {
    const { last, ...where } = query;
    show(await patiently("document", where, signal, "Counting documents"), query, signal);
  } catch (error) {
    if (wasStopped(error)) return;
    if (facts) showTitle();
    say(error.message);
  }
}

export function show(found, query = {}, signal = stopAsking()) {
  facts = found;
  wanted = query;
  showTitle();
  showFacts();
  byId("previous").disabled = facts.number === null ? facts.start === 0 : facts.number === 0;
  byId("next").disabled = isLast();
  const first = "token" in query ? Math.max(facts.start, Number(query.token) - CONTEXT_TOKENS) : facts.start;
  byId("text").replaceChildren();
  if (document.querySelector("main").getBoundingClientRect().top < 0) document.querySelector("main").scrollIntoView();
  shown = { start: first, stop: first };
  changed.dispatchEvent(new Event("document"));
  if (facts.start === facts.stop) byId("text").append(element("p", {}, "This document has no tokens."));
  showButtons();
  if (facts.start < facts.stop) showMore(signal);
}

function isLast() {
  return facts.n_documents === null || facts.number === null
    ? facts.stop >= Number(byId("text").dataset.end)
    : facts.number === facts.n_documents - 1;
}

function showTitle() {
  const of = facts.n_documents === null ? "" : ` of ${number(facts.n_documents)}`;
  byId("title").textContent =
    facts.number === null ? `Document at token ${number(facts.start)}` : `Document ${number(facts.number)}${of}`;
}

function showFacts() {
  const length = facts.stop - facts.start;
  const rows = [
    ["length", counted(length, "token")],
    ["split", facts.split],
    ["shard", `${facts.shard}, from its token ${number(facts.shard_start)} on`],
    ["tokens", `${number(facts.start)} to ${number(Math.max(facts.start, facts.stop - 1))}`],
  ];
  if (facts.source !== undefined) rows.push(["source", `${facts.source}, row ${number(facts.row)}`]);
  if (facts.is_rest) rows.push(["note", "the rest of a document that began in another split"]);
  if (facts.is_cut) rows.push(["note", "its end was cut off, or is in another split"]);
  byId("facts").replaceChildren(
    ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", { dir: "auto" }, value))),
  );
}

function showButtons() {
  byId("earlier").hidden = shown.start <= facts.start;
  byId("more").hidden = shown.stop >= facts.stop || facts.start === facts.stop;
  byId("more").textContent = `Show more tokens (${number(shown.stop - facts.start)} of ${number(facts.stop - facts.start)} so far)`;
}

function isFound(piece, place) {
  if (!("last" in wanted)) return wanted.token !== undefined && place === Number(wanted.token) ? "found" : "";
  return place + piece[1].length > Number(wanted.token) && place <= Number(wanted.last) ? "found" : "";
}

let loading = null; // the signal of the window that is on its way

async function showMore(signal = asking.signal) {
  if (loading === signal) return;
  loading = signal;
  const isFirst = shown.stop === shown.start;
  try {
    const window = await ask("tokens", { document: facts.start, start: shown.stop }, signal);
    if (isFirst) shown.start = window.start;
    appendPieces(byId("text"), window.pieces, window.start, isFound);
    shown.stop = window.stop;
    showButtons();
    if (isFirst) byId("text").querySelector(".found")?.scrollIntoView({ block: "center" });
  } catch (error) {
    if (!wasStopped(error)) say(error.message);
  } finally {
    if (loading === signal) loading = null;
  }
}

function step(by) {
  if (!facts) return;
  if (byId(by > 0 ? "next" : "previous").disabled) return;
  const known = facts.number !== null && facts.n_documents !== null;
  const where = known ? { number: facts.number + by } : { token: by > 0 ? facts.stop : facts.start - 1 };
  if (known) go(where, { step: true });
  else goToBeginning(where);
}

// A neighbor that is known by a token of it is shown from its beginning.
async function goToBeginning(where) {
  try {
    const found = await ask("document", where, stopAsking());
    history.replaceState(null, "", `#token=${found.start}`);
    show(found);
  } catch (error) {
    if (!wasStopped(error)) say(error.message);
  }
}

export function watchDocument() {
  watchTokens(byId("text"));
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("more").addEventListener("click", () => showMore());
  byId("earlier").addEventListener("click", () => {
    const start = Math.max(facts.start, shown.start - 2000);
    byId("text").replaceChildren();
    shown = { start, stop: start };
    showMore();
  });
  new IntersectionObserver(
    (entries) => {
      if (entries.some((entry) => entry.isIntersecting) && !byId("more").hidden) showMore();
    },
    { rootMargin: "600px" },
  ).observe(byId("more"));
  window.addEventListener("popstate", loadFromAddress);
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.target.closest("input, select, textarea")) return;
    if (event.key === "ArrowRight") step(1);
    else if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "/") byId("search-text").focus();
    else if (event.key === "g") byId("document-number").focus();
    else return;
    event.preventDefault();
  });
}
