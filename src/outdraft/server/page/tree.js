// The draft of one pass as a tree: what was guessed, and what became of it. It is asked for while its card is open.

import { block, element } from "./inline.js";
import { SAID } from "./tokens.js";

const field = (id) => document.getElementById(id);
const MEANING = {
  pending: "written before, the draft begins behind it",
  ...SAID,
  rejected: "drafted, and refused by the model",
  unreached: "drafted, and never asked about",
  probe: "computed beside the draft, and never kept",
};
let shown = []; // draft_tree of each pass of an answer
let at = -1;

/** Whether requests are to ask for it. */
export function wanted() {
  return field("tree-card").open;
}

export function begin() {
  field("tree-back").addEventListener("click", () => show(shown, at - 1));
  field("tree-on").addEventListener("click", () => show(shown, at + 1));
  show([], -1);
}

/** The pass `i`, from 0, of these trees; the last one where none is named. */
export function show(trees, i = trees.length - 1) {
  [shown, at] = [trees, i];
  const tree = trees[i] ?? null;
  field("tree-back").disabled = !trees[i - 1];
  field("tree-on").disabled = !trees[i + 1];
  field("tree-pass").textContent = tree ? `Pass ${i + 1} of ${trees.length}` : "No pass";
  field("tree").replaceChildren(...(tree ? [element("ul", [branch(tree, 0, lists(tree))])] : []));
  field("tree-note").textContent = tree ? told(tree) : "Drafts are shown from the next answer on. A click on a token shows its pass.";
}

function told(tree) {
  if (tree.nodes.length < 2) return "Nothing was drafted in this pass.";
  const count = (status) => tree.nodes.filter((node) => node.status === status).length;
  const counts = ["accepted", "rejected", "unreached", "probe"].filter(count).map((status) => `${count(status)} ${status}`);
  const sure = tree.nodes.some((node) => "confidence" in node) ? "; shares are the drafter's confidence" : "";
  return `Drafted by ${tree.drafted_by}: ${counts.join(", ")}${sure}.`;
}

/** Children of each node. The model's own token stands below the last node that was kept. */
function lists(tree) {
  const below = tree.nodes.map(() => []);
  tree.nodes.forEach((node, i) => node.parent !== null && below[node.parent].push(i));
  const last = tree.nodes.reduce((best, node, i) => (node.status === "accepted" ? i : best), 0);
  return { below, last };
}

function branch(tree, i, { below, last }) {
  const inner = below[i].map((child) => branch(tree, child, { below, last }));
  if (i === last) inner.push(element("li", label(tree, tree.source)));
  return element("li", [...label(tree.nodes[i], tree.nodes[i].status), ...(inner.length ? [element("ul", inner)] : [])]);
}

function label(node, status) {
  const text = (node.text ?? "").replace(/\n/g, "⏎").replace(/\t/g, "⇥") || `<${node.token_id}>`;
  const word = block("span", `token ${status}`, text);
  word.title = `${status}: ${MEANING[status] ?? ""} · token ${node.token_id}`;
  const sure = node.confidence == null ? [] : [block("span", "quiet", ` ${node.confidence.toFixed(2)}`)];
  return [word, block("span", "hidden", ` ${status}`), ...sure];
}
