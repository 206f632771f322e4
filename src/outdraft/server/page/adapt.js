// How a draft that learns fares, where the server has one: its version, the gate's last verdict, its guesses by position.

import { bars } from "./panel.js";
import { get } from "./stream.js";

const field = (id) => document.getElementById(id);
const OFTEN = 5000; // milliseconds from one look to the next
const WATCHED = { kept: "This version stays; the one before it", "rolled back": "A version was taken back; the one before it" };
let next = null;

/** Show it from now on. `served`: what /v1/models says of the model; `key`: gives the API key. */
export async function follow(served, key) {
  clearTimeout(next);
  field("adapt").hidden = !served.adapts;
  if (!served.adapts) return;
  if (!document.hidden) await get("v1/adapt", key()).then(show, () => null); // a server that is gone says so elsewhere
  clearTimeout(next);
  next = setTimeout(follow, OFTEN, served, key);
}

function show(told) {
  field("adapt-version").textContent = told.version || "0, the first";
  field("adapt-kept").textContent = told.requests_kept.toLocaleString("en");
  const { what, number, reason } = told.verdict ?? {};
  field("adapt-verdict").textContent = what ? `${WATCHED[what] ?? `Candidate ${number}`} ${reason}.` : "No candidate was judged yet.";
  bars(field("adapt-chart"), told.acceptance, told.marginal_acceptance);
  field("adapt-diagnosis").textContent = told.diagnosis;
}
