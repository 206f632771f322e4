// The page: what is typed becomes a request, and its answer grows token by token.

import * as adapt from "./adapt.js";
import { copy } from "./copy.js";
import { Panel } from "./panel.js";
import { Race } from "./race.js";
import * as settings from "./settings.js";
import { get, post } from "./stream.js";
import * as talk from "./talk.js";
import { steps } from "./tokens.js";
import * as tree from "./tree.js";
import { Turn, passOf, redraw, turnOf } from "./turns.js";

const field = (id) => document.getElementById(id);
const list = () => field("turns");
const PATHS = { chat: "v1/chat/completions", completion: "v1/completions" };
let model = null;
let stopping = null; // of the request under way
let race = null; // the one that is shown

async function begin() {
  settings.restore(learn);
  for (const one of document.querySelectorAll("input[name=mode]")) one.addEventListener("change", changeMode);
  field("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  field("prompt").addEventListener("keydown", (event) => {
    const sends = settings.mode() === "chat" ? !event.shiftKey : event.ctrlKey || event.metaKey;
    if (event.key !== "Enter" || !sends || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && stop());
  field("stop").addEventListener("click", stop);
  field("clear").addEventListener("click", clear);
  field("race").addEventListener("click", () => send(true));
  field("colours").addEventListener("change", redraw);
  list().addEventListener("click", act);
  addEventListener("pagehide", () => stopping && talk.save());
  for (const one of talk.exchanges) new Turn(one);
  tree.begin();
  changeMode();
  await learn();
}

/** Ask what is served; a key may be needed first. */
async function learn() {
  try {
    const [served] = (await get("v1/models", settings.key())).data;
    const isFirst = model === null;
    model = served.id;
    const drafts = (served.speculative?.methods ?? []).filter((name) => name !== "none");
    field("model").textContent = `${served.id} · ${drafts.length ? `drafted by ${drafts.join(", ")}` : "plain decoding"}`;
    field("race").hidden = !drafts.length;
    if (isFirst) settings.offer(served);
    adapt.follow(served, settings.key);
    changeMode();
    complain(null);
  } catch (error) {
    complain(error);
  }
}

/** What is typed, as it is or as a race. A race without a text repeats the last question. */
async function send(isRace = false) {
  const text = field("prompt").value;
  if (stopping) return;
  if (!text.trim()) return isRace ? again(true) : undefined;
  const isChat = settings.mode() === "chat";
  if (isChat) field("prompt").value = "";
  if (!(await ask(text, isRace)) && isChat) field("prompt").value ||= text; // it can be sent again
}

/** The last question once more; its answer stays where a new one fails. */
async function again(isRace = false) {
  const last = talk.exchanges.at(-1);
  if (stopping || !last) return;
  settings.setMode(last.mode);
  changeMode();
  drop(last);
  if (await ask(last.question, isRace)) return;
  talk.exchanges.push(last);
  new Turn(last);
  talk.save();
}

/** One exchange. False where no answer was written, and nothing of it is kept. */
async function ask(text, isRace) {
  complain(null);
  const mode = settings.mode();
  let body;
  try {
    body = settings.body(model ?? undefined, [...talk.messages(), { role: "user", content: text }], text);
  } catch (error) {
    complain(error);
    return false;
  }
  const exchange = talk.blank(mode, text, body.max_tokens);
  const turn = new Turn(exchange);
  talk.exchanges.push(exchange);
  stopping = new AbortController();
  busy(true);
  try {
    await (isRace ? run : write)(PATHS[mode], body, turn);
    say("Done.");
  } catch (error) {
    say(error.name === "AbortError" ? "Stopped." : "");
    if (error.name !== "AbortError") complain(error);
  }
  const isKept = exchange.num > 0 || exchange.ended !== null;
  exchange.ended ??= "stopped";
  stopping = null;
  busy(false);
  if (!talk.exchanges.includes(exchange)) return true; // it was cleared meanwhile
  if (isKept) {
    turn.draw();
    if (!talk.save()) say("The browser has no room to keep this conversation: it ends with this tab.");
  } else drop(exchange);
  return isKept;
}

/** Receive the answer to `body`. */
async function write(path, body, turn) {
  const panel = new Panel();
  const asked = { ...body, return_draft_tree: tree.wanted() };
  for await (const step of steps(post(path, asked, settings.key(), stopping.signal))) receive(step, turn, panel);
}

function receive(step, turn, panel) {
  talk.take(turn.exchange, step);
  panel.add(step);
  if (step.tree) {
    turn.trees.push(step.tree);
    tree.show(turn.trees);
  }
  turn.grow();
}

/** The same as a race. Without a seed the two texts would be two draws, so one is drawn for both. */
async function run(path, body, turn) {
  const kept = []; // shown at the end, so that both are drawn alike
  const asked = { ...body, seed: body.seed ?? crypto.getRandomValues(new Uint32Array(1))[0] };
  if (asked.speculative === false) delete asked.speculative;
  race = new Race();
  turn.hold(race.element);
  try {
    const closing = await race.run(path, asked, settings.key(), stopping.signal, (step) => kept.push(step));
    say("Side by side, from the two records:");
    await race.replay(closing);
    turn.exchange.race = closing;
  } catch (error) {
    turn.hold(null);
    throw error;
  } finally {
    const panel = new Panel();
    for (const step of kept) receive(step, turn, panel);
  }
}

/** A button within the conversation, or a token. */
function act(event) {
  const button = event.target.closest("button");
  const turn = turnOf(event.target);
  if (button?.matches(".copy")) copy(button, button.closest("figure")?.querySelector("code").textContent ?? turn.exchange.text);
  else if (button?.matches(".unrace")) turn.hold(null);
  else if (button?.matches(".again")) again();
  else if (button?.matches(".edit") && !stopping) {
    settings.setMode(turn.exchange.mode);
    changeMode();
    field("prompt").value = turn.exchange.question;
    drop(turn.exchange);
    field("prompt").focus();
  }
  const found = button ? null : passOf(event.target);
  if (found) tree.show(found.trees, found.pass - 1);
}

/** This exchange, the last one, is no part of the conversation any more. */
function drop(exchange) {
  talk.remove(exchange);
  for (const one of list().querySelectorAll(".exchange")) if (turnOf(one).exchange === exchange) turnOf(one).remove();
}

function stop() {
  stopping?.abort();
  race?.skip();
}

function changeMode() {
  const isChat = settings.mode() === "chat";
  field("prompt-label").textContent = isChat ? "Message" : "Text to continue";
  field("prompt").placeholder = isChat ? "Write a message" : "Write the beginning of a text";
  field("keys").textContent = isChat ? "Enter sends, Shift+Enter begins a line" : "Ctrl+Enter sends";
  field("send").textContent = isChat ? "Send" : "Continue";
  field("system").disabled = !isChat;
}

function clear() {
  stop();
  for (const one of talk.exchanges) drop(one);
  talk.forget();
  tree.show([], -1);
  complain(null);
  say("");
  field("prompt").focus();
}

function busy(is) {
  field("stop").hidden = !is;
  field("send").hidden = is;
  field("race").disabled = is;
  list().classList.toggle("busy", is);
  if (is) say("Writing …");
  else if (document.activeElement === document.body) field("prompt").focus();
}

function say(text) {
  field("status").textContent = text;
}

function complain(error) {
  field("error").hidden = !error;
  field("error").textContent = error?.message ?? "";
  if (error?.status !== 401) return;
  field("settings").open = true;
  field("key").focus();
}

begin();
