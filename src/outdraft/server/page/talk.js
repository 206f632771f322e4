// The conversation, which the browser keeps until it is cleared: exchanges of a question and its answer.

const NAME = "talk";
const SOURCES = ["", "plain", "accepted", "recovered", "bonus", "resumed"]; // kept as their numbers, to be short

/**
 * {mode, question, text, thought, pieces, num, ended, limit, race}. `mode`: "chat" or "completion"; `pieces`: [{text, source,
 * id, pass}], of thought and text; `num`: of its tokens; `ended`: the finish reason, "stopped", or null while it is
 * written; `limit`: the most tokens that were asked for; `race`: what a race ended with.
 */
export let exchanges = load();

export function blank(mode, question, limit) {
  return { mode, question, text: "", thought: "", pieces: [], num: 0, ended: null, limit, race: "" };
}

/** What one step of the stream says becomes part of the answer. */
export function take(exchange, step) {
  exchange.text += step.said;
  exchange.thought += step.thought;
  exchange.pieces.push(...step.pieces);
  exchange.num += step.ids.length;
  exchange.ended = step.ended ?? exchange.ended;
}

/** The chat so far, for a request. */
export function messages() {
  return exchanges
    .filter((one) => one.mode === "chat" && one.text)
    .flatMap((one) => [{ role: "user", content: one.question }, { role: "assistant", content: one.text }]);
}

/** False where the browser has no room for it. Without the sources it is smaller, and is tried so next. */
export function save() {
  return write(short) || write((one) => ({ ...one, pieces: [] }));
}

export function remove(exchange) {
  exchanges = exchanges.filter((one) => one !== exchange);
  save();
}

export function forget() {
  exchanges = [];
  localStorage.removeItem(NAME);
}

function write(form) {
  try {
    localStorage.setItem(NAME, JSON.stringify(exchanges.map(form)));
    return true;
  } catch {
    return false;
  }
}

function short(exchange) {
  const pieces = exchange.pieces.map((one) => [one.text, Math.max(0, SOURCES.indexOf(one.source)), one.id, one.pass]);
  return { ...exchange, pieces };
}

function load() {
  try {
    return JSON.parse(localStorage.getItem(NAME) ?? "[]").map((one) => ({
      ...blank(one.mode === "completion" ? "completion" : "chat", String(one.question), one.limit),
      text: String(one.text),
      thought: String(one.thought),
      num: Number(one.num),
      ended: one.ended ?? "stopped",
      race: String(one.race),
      pieces: one.pieces.map(([text, source, id, pass]) => ({ text: String(text), source: SOURCES[source] ?? "", id, pass })),
    }));
  } catch {
    return []; // another version's, or nothing of ours
  }
}
