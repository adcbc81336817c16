// The page over one output: what it is, and then the document that the address names.

import { ask, byId, counted, element } from "./api.js";
import { watchCompare } from "./compare.js";
import { loadFromAddress, say, watchDocument } from "./document.js";
import { watchJumps } from "./jump.js";
import { watchLengths } from "./lengths.js";
import { watchSearch } from "./search.js";

function showOverview(overview) {
  const name = overview.path.split("/").filter(Boolean).at(-1) ?? overview.path;
  document.title = `${name} – tokenmill view`;
  byId("path").textContent = overview.path;
  const documents = overview.n_documents === null ? [] : [counted(overview.n_documents, "document")];
  const tokenizer = overview.tokenizer === null ? "tokenizer not known" : overview.tokenizer;
  const splits = Object.entries(overview.splits).map(([split, n]) => `${split} ${counted(n, "token")}`);
  byId("totals").textContent = [
    counted(overview.n_tokens, "token"),
    ...documents,
    `${overview.format} in ${counted(overview.n_files, "file")}`,
    tokenizer,
    ...(splits.length > 1 ? splits : []),
  ].join(" · ");
  byId("text").dataset.end = overview.n_tokens;
  const warnings = [...overview.warnings];
  if (!overview.can_decode) warnings.push(`Ids are shown instead of text: ${overview.tokenizer_told_by}.`);
  byId("warnings").append(...warnings.map((warning) => element("li", {}, warning)));
  byId("warnings").hidden = !warnings.length;
}

async function start() {
  byId("tools").open = window.matchMedia("(min-width: 52rem)").matches;
  watchDocument();
  try {
    const overview = await ask("overview");
    showOverview(overview);
    watchCompare(overview);
    watchJumps(overview);
    watchSearch(overview);
    watchLengths();
    byId("controls").disabled = false;
    if (overview.n_tokens || overview.n_documents) await loadFromAddress();
    else say("There is not one token in it.");
  } catch (error) {
    say(error.message);
  }
}

start();
