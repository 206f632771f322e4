// What the person chose: the fields of a request, the colours, and the key, which leaves with the tab.

const KEPT = ["temperature", "top-p", "top-k", "seed", "max-tokens", "system", "colours"];
const field = (id) => document.getElementById(id);

/** The key, or nothing. */
export function key() {
  return field("key").value.trim();
}

/** "chat" or "completion". */
export function mode() {
  return document.querySelector("input[name=mode]:checked").value;
}

export function setMode(name) {
  document.querySelector(`input[name=mode][value=${name}]`).checked = true;
}

/** The body of a request. `turns`: [{role, content}], used by a chat; `text`: what is to be continued. */
export function body(model, turns, text) {
  const asked = {
    model,
    max_tokens: number("max-tokens") ?? Number(field("max-tokens").placeholder),
    temperature: number("temperature") ?? 1,
    top_p: number("top-p") ?? 1,
    top_k: number("top-k") ?? 0,
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    stream_interval: 0,
  };
  const seed = number("seed");
  if (seed !== null) asked.seed = seed;
  const method = field("method").value;
  if (method === "off") asked.speculative = false;
  else if (method) asked.speculative = { method: method.slice("by ".length) };
  if (mode() === "completion") return { ...asked, prompt: text };
  const system = field("system").value.trim();
  return { ...asked, messages: system ? [{ role: "system", content: system }, ...turns] : turns };
}

/** What the server holds: the choices of drafting, and the most tokens that fit. */
export function offer(served) {
  const options = [["", "as the server decides"], ["off", "off: plain decoding"]];
  for (const name of served.speculative?.methods ?? []) if (name !== "none") options.push([`by ${name}`, name]);
  field("method").replaceChildren(...options.map(([value, label]) => new Option(label, value)));
  if (served.chat_template === false) document.querySelector("input[value=completion]").checked = true;
  if (!served.max_model_len) return;
  field("max-tokens").max = served.max_model_len;
  field("max-tokens-note").textContent = `1 to ${served.max_model_len.toLocaleString("en")}, the context`;
}

/** Remembers the key, the colours and the numbers, and applies what was remembered. */
export function restore(changed) {
  field("key").value = sessionStorage.getItem("api-key") ?? "";
  field("key").addEventListener("change", () => {
    sessionStorage.setItem("api-key", key());
    changed();
  });
  field("theme").value = localStorage.getItem("theme") ?? "";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => {
    document.documentElement.dataset.theme = field("theme").value || (dark.matches ? "dark" : "light");
  };
  dark.addEventListener("change", paint);
  field("theme").addEventListener("change", () => {
    localStorage.setItem("theme", field("theme").value);
    paint();
  });
  paint();
  remember();
  if (matchMedia("(max-width: 60rem)").matches) field("settings").open = false;
}

/** The settings that outlive the tab: all but the key. */
function remember() {
  const fields = KEPT.map(field);
  const read = () => Object.fromEntries(fields.map((one) => [one.id, one.type === "checkbox" ? one.checked : one.value]));
  const known = { ...read(), ...stored() };
  for (const one of fields) {
    if (one.type === "checkbox") one.checked = known[one.id] === true;
    else one.value = known[one.id];
    one.addEventListener("change", () => localStorage.setItem("settings", JSON.stringify(read())));
  }
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem("settings") ?? "{}");
  } catch {
    return {};
  }
}

/** The number in a field, or null; an error names the limits of one that is none of its numbers. */
function number(id) {
  const asked = field(id);
  if (!asked.checkValidity()) throw new Error(`${asked.labels[0].textContent}: ${field(`${id}-note`).textContent}.`);
  return asked.value === "" ? null : Number(asked.value);
}
