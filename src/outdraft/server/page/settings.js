// What the person chose: the fields of a request, the colours, and the key, which leaves with the tab.

const field = (id) => document.getElementById(id);

/** The key, or nothing. */
export function key() {
  return field("key").value.trim();
}

/** "chat" or "completion". */
export function mode() {
  return document.querySelector("input[name=mode]:checked").value;
}

/** The body of a request. `turns`: [{role, content}], used by a chat; `text`: what is to be continued. */
export function body(model, turns, text) {
  const asked = {
    model,
    max_tokens: number("max-tokens", "Max tokens") ?? 200,
    temperature: number("temperature", "Temperature") ?? 1,
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    stream_interval: 0,
  };
  const seed = number("seed", "Seed");
  if (seed !== null) asked.seed = seed;
  const method = field("method").value;
  if (method === "off") asked.speculative = false;
  else if (method) asked.speculative = { method: method.slice("by ".length) };
  if (mode() === "completion") return { ...asked, prompt: text };
  const system = field("system").value.trim();
  return { ...asked, messages: system ? [{ role: "system", content: system }, ...turns] : turns };
}

/** What the server holds: the choices of drafting, and the most tokens that fit. */
export function offer(told) {
  const options = [["", "as the server decides"], ["off", "off: plain decoding"]];
  for (const name of told.speculative?.methods ?? []) if (name !== "none") options.push([`by ${name}`, name]);
  field("method").replaceChildren(...options.map(([value, label]) => new Option(label, value)));
  if (told.chat_template === false) document.querySelector("input[value=completion]").checked = true;
  if (told.max_model_len) field("max-tokens").max = told.max_model_len;
}

/** Remembers key and colours, and applies what was remembered. */
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
  if (matchMedia("(max-width: 60rem)").matches) field("settings").open = false;
}

function number(id, name) {
  const asked = field(id);
  if (asked.validity.badInput) throw new Error(`${name} is no number.`);
  return asked.value === "" ? null : Number(asked.value);
}
