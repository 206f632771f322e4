// The page: what is typed becomes a request, and its answer grows token by token.

import { draw } from "./chart.js";
import { Counts, speedup } from "./figures.js";
import * as settings from "./settings.js";
import { get, post } from "./stream.js";
import { Answer, addTurn, clearTurns, passOf } from "./turns.js";
import { tokensOf } from "./tokens.js";
import * as tree from "./tree.js";

const field = (id) => document.getElementById(id);
let model = null;
let talk = []; // the conversation so far: [{role, content}]
let stopping = null; // of the request under way

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
  document.addEventListener("keydown", (event) => event.key === "Escape" && stopping?.abort());
  field("stop").addEventListener("click", () => stopping?.abort());
  field("clear").addEventListener("click", clear);
  field("turns").addEventListener("click", (event) => {
    const found = passOf(event.target);
    if (found) tree.show(found.trees, found.pass - 1);
  });
  tree.begin();
  changeMode();
  await learn();
}

/** Ask what is served; a key may be needed first. */
async function learn() {
  try {
    const [told] = (await get("v1/models", settings.key())).data;
    const isFirst = model === null;
    model = told.id;
    const drafts = (told.speculative?.methods ?? []).filter((name) => name !== "none");
    field("model").textContent = `${told.id} · ${drafts.length ? `drafted by ${drafts.join(", ")}` : "plain decoding"}`;
    if (isFirst) settings.offer(told);
    changeMode();
    complain(null);
  } catch (error) {
    complain(error);
  }
}

async function send() {
  const text = field("prompt").value;
  if (stopping || !text.trim()) return;
  complain(null);
  const isChat = settings.mode() === "chat";
  const before = talk; // another array when the conversation was cleared meanwhile
  const asked = isChat ? [...talk, { role: "user", content: text }] : [];
  let body;
  try {
    body = { ...settings.body(model ?? undefined, asked, text), return_draft_tree: tree.wanted() };
  } catch (error) {
    return complain(error);
  }
  const question = addTurn(isChat ? "You" : "Prompt", text);
  const answer = new Answer(isChat ? "Answer" : "Continuation");
  if (isChat) field("prompt").value = "";
  stopping = new AbortController();
  busy(true);
  try {
    const ended = await write(isChat ? "v1/chat/completions" : "v1/completions", body, answer);
    say(ended === "length" ? "Done: the limit of tokens, time or context was reached." : "Done.");
  } catch (error) {
    if (error.name === "AbortError") say("Stopped.");
    else {
      say("");
      complain(error);
    }
  } finally {
    answer.end();
    if (isChat && talk === before && !answer.text) takeBack(question, answer, text);
    else if (isChat && talk === before) talk = [...asked, { role: "assistant", content: answer.text }];
    stopping = null;
    busy(false);
  }
}

/** A question without an answer is no part of the conversation; what was typed can be sent again. */
function takeBack(question, answer, text) {
  question.parentElement.remove();
  answer.remove();
  field("prompt").value ||= text;
}

/** Receive the answer to `body`; how it ended. */
async function write(path, body, answer) {
  const counts = new Counts();
  let ended = null;
  let first = null; // when the first token came, and how many came with it
  showFigures(counts, null);
  for await (const piece of post(path, body, settings.key(), stopping.signal)) {
    for (const choice of piece.choices) {
      ended = choice.finish_reason ?? ended;
      const tokens = tokensOf(choice, counts.numPasses + 1);
      const said = choice.text ?? choice.delta?.content ?? "";
      answer.add((choice.delta?.reasoning_content ?? "") + said, tokens, said);
      counts.add(tokens.map((token) => token.source));
      if (!tokens.length) continue;
      if (choice.draft_tree) {
        answer.trees.push(choice.draft_tree);
        tree.show(answer.trees);
      }
      first ??= { at: performance.now(), num: counts.numTokens };
      const seconds = (performance.now() - first.at) / 1000;
      showFigures(counts, seconds > 0 ? (counts.numTokens - first.num) / seconds : null);
    }
    if (piece.metrics) showEnd(piece.metrics.speculative_decoding);
  }
  return ended;
}

function showFigures(counts, rate) {
  field("num-tokens").textContent = counts.numTokens || "–";
  field("tau").textContent = counts.tau === null ? "–" : counts.tau.toFixed(2);
  field("rate").textContent = rate === null ? "–" : rate.toFixed(rate < 10 ? 1 : 0);
  field("speedup").textContent = "–";
  field("speedup-note").textContent = "";
  draw(field("chart"), field("chart-note"), counts.byPosition);
}

/** `told`: the engine's counters of the whole answer. */
function showEnd(told) {
  draw(field("chart"), field("chart-note"), told.acceptance_by_position);
  field("tau").textContent = told.tokens_per_target_pass.toFixed(2);
  const found = speedup(told.passes_by_rows);
  if (!found) return;
  field("speedup").textContent = `${found.isMeasured ? "" : "≤ "}${found.times.toFixed(2)}×`;
  field("speedup-note").textContent = found.isMeasured
    ? "Estimated: tokens × the measured cost of a pass without a draft / the time that decoding took."
    : `Estimated, at most: no pass without a draft was measured, so one of ${found.rows} rows stands in for it.`;
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
  stopping?.abort();
  talk = [];
  clearTurns();
  tree.show([], -1);
  complain(null);
  say("");
  field("prompt").focus();
}

function busy(is) {
  field("stop").hidden = !is;
  field("send").hidden = is;
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
