// How long documents are: counted when it is asked for, and each bar leads to documents of its length.

import { ask, byId, counted, element, number, percent, wasStopped } from "./api.js";
import { go, say } from "./document.js";

const SVG = "http://www.w3.org/2000/svg";
let counting = new AbortController();

function bar(share) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const rect = document.createElementNS(SVG, "rect");
  rect.setAttribute("width", String(share ? Math.max(1, 100 * share) : 0));
  rect.setAttribute("height", "10");
  svg.append(rect);
  return svg;
}

function list(title, documents, button) {
  byId("bins").querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  byId("listed-title").textContent = title;
  byId("listed-title").hidden = false;
  byId("listed").replaceChildren(
    ...documents.map(([document, length]) => {
      const entry = element("button", { type: "button" }, `document ${number(document)}: ${counted(length, "token")}`);
      entry.addEventListener("click", () => go({ number: document }));
      return element("li", {}, entry);
    }),
  );
}

function binButton(bin, most) {
  const label = bin.low === bin.high ? number(bin.low) : `${number(bin.low)} to ${number(bin.high)}`;
  const button = element(
    "button",
    { type: "button", "aria-pressed": "false", "aria-label": `${label} tokens: ${counted(bin.n_documents, "document")}` },
    element("span", {}, label),
    bar(bin.n_documents / most),
    element("span", { class: "count" }, number(bin.n_documents)),
  );
  const few = bin.documents.length < bin.n_documents ? `, the first ${bin.documents.length}` : "";
  button.addEventListener("click", () => list(`${label} tokens${few}`, bin.documents, button));
  return button;
}

function showBins(found) {
  const most = Math.max(1, ...found.bins.map((bin) => bin.n_documents));
  const longest = element("button", { type: "button", "aria-pressed": "false" }, "the longest");
  longest.addEventListener("click", () => list("The longest documents", found.longest, longest));
  byId("bins").replaceChildren(longest, ...found.bins.map((bin) => binButton(bin, most)));
  byId("lengths-status").textContent = found.done
    ? `${counted(found.n_documents, "document")}, by tokens`
    : `${counted(found.n_documents, "document")} so far (${percent(found.share)})`;
}

async function count() {
  counting.abort();
  counting = new AbortController();
  const { signal } = counting;
  byId("lengths-start").hidden = true;
  byId("lengths-stop").hidden = false;
  let done = false;
  try {
    while (!done) {
      const found = await ask("lengths", {}, signal);
      showBins(found);
      done = found.done;
    }
  } catch (error) {
    if (!wasStopped(error)) say(error.message);
  }
  byId("lengths-stop").hidden = true;
  byId("lengths-start").hidden = done;
  byId("lengths-start").textContent = "Go on";
}

export function watchLengths() {
  byId("lengths-start").addEventListener("click", count);
  byId("lengths-stop").addEventListener("click", () => counting.abort());
}
