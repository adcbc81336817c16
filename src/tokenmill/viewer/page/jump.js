// The forms that lead to a document: by its number, by a token, by source file and row.

import { byId, element, wasStopped } from "./api.js";
import { go, patiently, say, show, stopAsking } from "./document.js";

function onSubmit(id, act) {
  byId(id).addEventListener("submit", (event) => {
    event.preventDefault();
    act();
    byId("title").focus(); // so that the arrow keys step from there
  });
}

async function goToSource() {
  const query = { file: byId("source-file").value, row: byId("source-row").value || 0 };
  say("");
  try {
    const found = await patiently("source", query, stopAsking(), "Looking through the index");
    history.pushState(null, "", `#number=${found.number}`);
    show(found);
  } catch (error) {
    if (!wasStopped(error)) say(error.message);
  }
}

export function watchJumps(overview) {
  onSubmit("jump-document", () => go({ number: byId("document-number").value || 0 }));
  onSubmit("jump-token", () => go({ token: (byId("token-place").value || "0").replaceAll(/[,_\s]/g, "") }));
  onSubmit("jump-source", goToSource);
  byId("jump-source").hidden = !overview.n_sources;
  byId("sources").append(...overview.sources.map((path) => element("option", { value: path })));
  if (overview.sources.length === 1) byId("source-file").value = overview.sources[0].split("/").at(-1);
}
