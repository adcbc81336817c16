// The same document by another tokenizer, side by side; tokens that only one of them has are in color.

import { ask, byId, counted, element, number, wasStopped } from "./api.js";
import { current, onDocument, say } from "./document.js";
import { appendPieces, watchTokens } from "./tokens.js";

let comparing = new AbortController();

function nBytes(piece) {
  return piece[2] ? piece[2].reduce((sum, spelled) => sum + (spelled.length + 1) / 3, 0) : null;
}

// The stretches of bytes that pieces stand for, as far as they are known.
function spans(pieces) {
  const found = [];
  let at = 0;
  for (const piece of pieces) {
    const size = nBytes(piece);
    if (size === null) return null;
    found.push(`${at}:${at + size}:${piece[1].length}`);
    at += size;
  }
  return found;
}

function sideOf(side, other, bytes) {
  const mine = spans(side.pieces);
  const theirs = spans(other.pieces);
  const known = mine && theirs && new Set(theirs);
  const label = `Text of the document, tokens of ${side.tokenizer}. Arrow keys go from token to token, Escape leaves.`;
  const text = element("div", { class: "text", role: "group", tabindex: "0", "aria-label": label });
  watchTokens(text);
  let i = 0;
  appendPieces(text, side.pieces, 0, () => (known && known.has(mine[i++]) ? "" : "differs"));
  const rate = side.n_tokens ? ` (${(bytes / side.n_tokens).toFixed(2)} bytes a token)` : "";
  return element("div", {}, element("h3", {}, `${side.tokenizer}: ${counted(side.n_tokens, "token")}${rate}`), text);
}

function summary(found) {
  const [ours, theirs] = found.sides;
  const change = ours.n_tokens ? (100 * (theirs.n_tokens - ours.n_tokens)) / ours.n_tokens : 0;
  const most = Math.max(ours.pieces.reduce((n, piece) => n + piece[1].length, 0), theirs.pieces.reduce((n, piece) => n + piece[1].length, 0));
  const cut = Math.max(ours.n_tokens, theirs.n_tokens) > most ? ` Shown are the first ${number(most)} tokens of each.` : "";
  const part = found.is_whole ? "" : " Counted over the beginning of this long document.";
  const words = change === 0 ? "as many tokens" : `${Math.abs(change).toFixed(1)}% ${change < 0 ? "fewer" : "more"} tokens`;
  return `${theirs.tokenizer} makes ${words}. In color: tokens that the other does not have.${part}${cut}`;
}

async function compare() {
  comparing.abort();
  comparing = new AbortController();
  const tokenizer = byId("compare-with").value;
  const facts = current();
  const isOn = Boolean(tokenizer) && facts && facts.start < facts.stop;
  byId("comparison").hidden = !isOn;
  byId("whole").hidden = isOn;
  byId("comparison").replaceChildren(element("p", {}, `Encoding with ${tokenizer}…`));
  if (!isOn) return;
  try {
    const found = await ask("compare", { document: facts.start, tokenizer }, comparing.signal);
    const [ours, theirs] = found.sides;
    byId("comparison").replaceChildren(
      element("p", {}, summary(found)),
      element("div", { class: "sides" }, sideOf(ours, theirs, found.n_bytes), sideOf(theirs, ours, found.n_bytes)),
    );
  } catch (error) {
    if (!wasStopped(error)) say(error.message);
  }
}

export function watchCompare(overview) {
  byId("compare-with").append(...overview.tokenizers.map((name) => element("option", { value: name }, name)));
  byId("compare-form").hidden = !overview.can_decode;
  byId("compare-form").addEventListener("submit", (event) => event.preventDefault());
  byId("compare-with").addEventListener("change", compare);
  onDocument(compare);
}
