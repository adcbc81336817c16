// Search: the server looks for a fraction of a second at a time, and is asked again until enough is found.

import { ask, byId, counted, element, number, percent, wasStopped } from "./api.js";
import { current, go, say } from "./document.js";

const HITS_AT_ONCE = 20;
let searching = new AbortController();
let text = "";
let next = null; // where to go on; null at the end
let nHits = 0;
let began = 0;
let nTokens = 1;

function hitButton(hit) {
  const name = hit.number === null ? `at token ${number(hit.start)}` : `document ${number(hit.number)}`;
  const button = element(
    "button",
    { type: "button" },
    element("small", {}, name),
    element("span", { dir: "auto" }, hit.before, element("mark", {}, hit.match), hit.after),
  );
  button.addEventListener("click", () => {
    if (hit.first === null) go({ token: hit.start });
    else go({ token: hit.first, last: hit.last });
  });
  return element("li", {}, button);
}

function showState(isRunning) {
  const where = next === null ? "to the end" : `to token ${number(next)} (${percent(next / nTokens)})`;
  const found = nHits ? counted(nHits, "document") : "nothing";
  byId("search-status").textContent = isRunning
    ? `Searching… ${found} so far, ${where}`
    : `Found ${found}${nHits ? "" : " yet"}; searched ${where}`.replace("nothing yet; searched to the end", "nothing up to the end");
  byId("search-stop").hidden = !isRunning;
  byId("search-more").hidden = isRunning || next === null;
  byId("search-again").hidden = isRunning || next !== null || began === 0;
}

async function search() {
  searching.abort();
  searching = new AbortController();
  const { signal } = searching;
  byId("search-results").hidden = false;
  const enough = nHits + HITS_AT_ONCE;
  try {
    while (next !== null && nHits < enough) {
      showState(true);
      const answer = await ask("search", { text, start: next }, signal);
      nHits += answer.hits.length;
      byId("hits").append(...answer.hits.map(hitButton));
      next = answer.next;
    }
  } catch (error) {
    if (!wasStopped(error)) say(error.message);
    else if (signal !== searching.signal) return;
  }
  showState(false);
}

function searchFrom(start) {
  say("");
  byId("hits").replaceChildren();
  [next, began, nHits] = [start, start, 0];
  search();
}

export function watchSearch(overview) {
  nTokens = overview.n_tokens;
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    text = byId("search-text").value;
    if (text && nTokens) searchFrom(Math.min(current()?.start ?? 0, nTokens - 1));
  });
  byId("search-stop").addEventListener("click", () => searching.abort());
  byId("search-more").addEventListener("click", search);
  byId("search-again").addEventListener("click", () => searchFrom(0));
}
