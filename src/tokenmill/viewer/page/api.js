// Questions to the server, and small things to build the page with. Text goes in as text, never as markup.

export async function ask(name, query = {}, signal = undefined) {
  const response = await fetch(`api/${name}?${new URLSearchParams(query)}`, { signal });
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(answer.hint ? `${answer.error} (${answer.hint})` : answer.error);
  }
  return answer;
}

export function byId(id) {
  return document.getElementById(id);
}

// An element with a class, attributes and children; strings become text.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function number(n) {
  return n.toLocaleString("en-US");
}

export function counted(n, word) {
  return `${number(n)} ${word}${n === 1 ? "" : "s"}`;
}

export function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
}

export function wasStopped(error) {
  return error.name === "AbortError";
}
