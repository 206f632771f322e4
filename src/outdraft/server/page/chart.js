// A bar for each position of the draft; the same numbers stand in its label, for who cannot see it.

const FEW = 9; // as many bars have room for their numbers

/** `rates`: shares from 0 to 1, by position. `note`: where a sentence about it stands. */
export function draw(place, note, rates) {
  place.replaceChildren(...rates.map((rate, i) => bar(rate, i, rates.length)));
  place.setAttribute("aria-label", rates.map((rate, i) => `position ${i + 1}: ${percent(rate)}`).join(", ") || "none");
  note.textContent = rates.length ? "Share kept of the drafted tokens that were examined there." : "Nothing was drafted.";
}

function bar(rate, i, count) {
  const made = document.createElement("div");
  made.className = "bar";
  made.title = `position ${i + 1}: ${percent(rate)}`;
  const rail = document.createElement("div");
  rail.className = "rail";
  const height = document.createElement("i");
  height.style.height = `${Math.round(rate * 100)}%`;
  rail.append(height);
  const every = Math.ceil(count / FEW);
  made.append(label(count <= FEW ? percent(rate) : ""), rail, label(i % every === 0 ? String(i + 1) : ""));
  return made;
}

function label(text) {
  const made = document.createElement("span");
  made.textContent = text;
  return made;
}

function percent(rate) {
  return `${Math.round(rate * 100)} %`;
}
