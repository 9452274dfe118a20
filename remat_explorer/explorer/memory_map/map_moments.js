// Two moments compared: what is in memory at the first only (1), at the second only (2), and at both (3).
const [FIRST, SECOND, BOTH] = [1, 2, 3];

// The two moments that a model asks for, or null: two stages of the schedule, or the peaks of two schedules.
function momentsOf(model, data) {
  const [moment, other] = [model.get("moment"), model.get("other")];
  if (data.count === 0 || moment === null) return null;
  if (moment === "peaks") {
    if (!other.values) return null;
    const at = data.predicted.reduce((best, bytes, c, all) => (bytes > all[best] ? c : best), 0);
    return {
      first: { label: `the peak of ${other.label}`, bytes: other.bytes, held: heldByOther(data, other, model) },
      second: { label: "the peak here", bytes: data.predicted[at], at, stage: data.stageAt(at), held: heldAt(data, at) },
      words: ["only there", "in both", "only here"],
    };
  }
  const pair = [Math.min(moment, data.stages - 1), Math.min(model.get("stage"), data.stages - 1)].sort((a, b) => a - b);
  const [first, second] = pair.map((stage) => {
    const at = data.peakOf(stage);
    return { label: `stage ${stage}`, bytes: data.predicted[at], at, stage, held: heldAt(data, at) };
  });
  return { first, second, words: ["freed", "in both", "born"] };
}

// Bytes of everything that is there while a computation runs, by value.
function heldAt(data, computation) {
  const held = new Map();
  for (const i of data.aliveAt(computation)) held.set(data.value[i], (held.get(data.value[i]) ?? 0) + data.bytes[i]);
  return held;
}

function heldByOther(data, other, model) {
  const held = new Map(other.values.map((value) => [value, data.values[value][1]]));
  if (model.get("resident")) held.set(RESIDENT, model.get("resident"));
  if (other.workspace) held.set(WORKSPACE - other.running, other.workspace);
  return held;
}

// For each rectangle FIRST, SECOND or BOTH where it is there at one of the moments, else 0.
function classesOf(data, { first, second }) {
  const classes = new Uint8Array(data.count);
  for (const moment of [first, second]) {
    if (moment.at === undefined) continue;
    for (const i of data.aliveAt(moment.at)) {
      const value = data.value[i];
      classes[i] = (first.held.has(value) ? FIRST : 0) | (second.held.has(value) ? SECOND : 0);
    }
  }
  return classes;
}

// By layer: bytes that are there at the first moment only, at both, and at the second only, and the values in it. The
// layers that change most come first.
function changesOf(data, { first, second }) {
  const rows = new Map();
  const totals = [0, 0, 0];
  for (const value of new Set([...first.held.keys(), ...second.held.keys()])) {
    const which = (first.held.has(value) ? FIRST : 0) | (second.held.has(value) ? SECOND : 0);
    const place = { [FIRST]: 0, [BOTH]: 1, [SECOND]: 2 }[which];
    const bytes = second.held.get(value) ?? first.held.get(value);
    const layer = layerOf(data, value);
    if (!rows.has(layer)) rows.set(layer, { name: layer < 0 ? "resident" : data.layers[layer][0], bytes: [0, 0, 0], parts: [] });
    const row = rows.get(layer);
    row.bytes[place] += bytes;
    totals[place] += bytes;
    if (value !== RESIDENT) row.parts.push({ value, which, bytes });
  }
  const changed = ({ bytes }) => bytes[0] + bytes[2];
  const sorted = [...rows.values()].sort((a, b) => changed(b) - changed(a) || b.bytes[1] - a.bytes[1]);
  for (const row of sorted) row.parts.sort((a, b) => (a.which === BOTH) - (b.which === BOTH) || b.bytes - a.bytes);
  return { totals, rows: sorted };
}

function momentsWords({ first, second }) {
  const at = ({ bytes, label }) => `${formatBytes(bytes)} at ${label}`;
  return first.label === second.label ? `${at(first)}: select another stage to compare it with.` : `${at(first)}, ${at(second)}.`;
}

const NAMED_VALUES = 4; // of a layer, in the table
const MOST_ROWS = 60;

// The table of the changes; names are buttons that call `select` with a value.
function momentsTable(data, moments, select) {
  const { totals, rows } = changesOf(data, moments);
  const table = element("table", "");
  const [head, body] = [table.createTHead().insertRow(), table.createTBody()];
  const marks = ["first", "both", "second"];
  ["module", ...moments.words].forEach((word, i) => {
    const cell = element("th", i ? marks[i - 1] : "", word);
    cell.scope = "col";
    head.append(cell);
  });
  const line = (name, bytes, kind) => {
    const row = body.insertRow();
    row.className = kind;
    row.insertCell().textContent = name;
    for (const count of bytes) row.insertCell().textContent = count ? formatBytes(count) : "–";
    return row;
  };
  line("all", totals, "total");
  for (const { name, bytes, parts } of rows.slice(0, MOST_ROWS)) {
    const cell = line(name, bytes, "").cells[0];
    cell.title = name;
    const list = element("div", "parts");
    for (const { value, which } of parts.slice(0, NAMED_VALUES)) {
      if (value < 0) {
        list.append(element("span", marks[{ [FIRST]: 0, [BOTH]: 1, [SECOND]: 2 }[which]], nameIn(data, value)));
        continue;
      }
      const button = element("button", marks[{ [FIRST]: 0, [BOTH]: 1, [SECOND]: 2 }[which]], nameIn(data, value));
      button.type = "button";
      button.title = "Select this value";
      button.addEventListener("click", () => select(value));
      list.append(button);
    }
    if (parts.length > NAMED_VALUES) list.append(element("span", "", `and ${parts.length - NAMED_VALUES} more`));
    if (parts.length) {
      const below = body.insertRow().insertCell();
      below.colSpan = 4;
      below.append(list);
    }
  }
  if (rows.length > MOST_ROWS) body.insertRow().insertCell().textContent = `${rows.length - MOST_ROWS} more modules`;
  return table;
}
