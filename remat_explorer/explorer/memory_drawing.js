// What the map is sent, unpacked: rectangles from birth to death in computations, and where stages begin.
const [RESIDENT, WORKSPACE] = [-1, -2]; // in place of a value; WORKSPACE - k is that of operation k

// The last index whose number is at or below `count`, or -1; numbers ascend.
function lastAtOrBelow(numbers, count) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= count) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// Bytes of all rectangles that are there while each computation runs.
function heightsOf(begin, end, bytes, computations) {
  const heights = new Float64Array(computations + 1);
  for (let i = 0; i < begin.length; i++) {
    heights[begin[i]] += bytes[i];
    heights[end[i]] -= bytes[i];
  }
  for (let c = 1; c <= computations; c++) heights[c] += heights[c - 1];
  return heights.subarray(0, computations);
}

function mapData(model) {
  const [columns, lines, names] = ["columns", "lines", "names"].map((name) => model.get(name));
  const count = columns.birth?.length ?? 0;
  const [begin, end] = [new Int32Array(count), new Int32Array(count)];
  const ofValue = new Map(); // its rectangles, in the order of their birth
  const value = new Int32Array(count);
  for (let i = 0, at = 0, last = 0; i < count; i++) {
    begin[i] = at += columns.birth[i];
    end[i] = at + columns.life[i];
    value[i] = last += columns.value[i];
    if (ofValue.has(last)) ofValue.get(last).push(i);
    else ofValue.set(last, [i]);
  }
  const order = Int32Array.from({ length: count }, (_, i) => i).sort((a, b) => columns.bytes[b] - columns.bytes[a]);
  const starts = lines.starts ?? [0];
  const [stages, computations] = [count ? starts.length - 1 : 0, count ? starts[starts.length - 1] : 0];
  const predicted = heightsOf(begin, end, columns.bytes ?? [], computations);
  const residentIsLow = count > 0 && value[0] === RESIDENT && columns.offset[0] === 0;
  const data = { ...columns, count, value, begin, end, ofValue, order, starts, predicted, stages, computations, residentIsLow };
  return {
    ...data,
    measured: lines.measured ?? [],
    values: names.values ?? [],
    operations: names.operations ?? [],
    layers: names.layers ?? [],
    groups: names.groups ?? [],
    rectanglesOf: (value) => ofValue.get(value) ?? [],
    stageAt: (computation) => Math.max(0, Math.min(stages - 1, lastAtOrBelow(starts, computation))),
    // The computation of a stage at which most is in memory; of one that computes nothing, the next.
    peakOf(stage) {
      let best = Math.min(starts[stage], computations - 1);
      for (let c = starts[stage]; c < starts[stage + 1]; c++) if (predicted[c] > predicted[best]) best = c;
      return best;
    },
    // The rectangles that are there while a computation runs, by offset.
    aliveAt(computation) {
      const alive = [];
      for (let i = 0; i < count; i++) if (begin[i] <= computation && computation < end[i]) alive.push(i);
      return alive.sort((a, b) => columns.offset[a] - columns.offset[b]);
    },
  };
}

const operationOf = (value) => WORKSPACE - value; // of a workspace

function nameIn(data, value) {
  if (value >= 0) return data.values[value][0];
  return value === RESIDENT ? "resident bytes" : `workspace of ${data.operations[operationOf(value)][0]}`;
}

// The layer that a rectangle belongs to; -1 for resident bytes.
function layerOf(data, value) {
  if (value >= 0) return data.values[value][2];
  return value === RESIDENT ? -1 : data.operations[operationOf(value)][1];
}

// What is said of a rectangle.
function saidOf(data, kinds, i) {
  const [value, first, last] = [data.value[i], data.stageAt(data.begin[i]), data.stageAt(data.end[i] - 1)];
  const place = `${formatBytes(data.bytes[i])} at offset ${formatBytes(data.offset[i])}`;
  if (value === RESIDENT) return `${place}: parameters, inputs and buffers, over the whole plan`;
  const time = first === last ? `in stage ${first}` : `from stage ${first} to ${last}`;
  if (value < 0) return `${place}, ${time}, only while it runs`;
  const layer = data.layers[layerOf(data, value)][0];
  const where = layer === data.operations[0]?.[0] || layer === nameIn(data, value) ? "" : ` · ${layer}`;
  const again = { recomputed: ", computed again", fetched: ", back from the host" }[kinds[data.kind[i]]] ?? "";
  const lives = data.rectanglesOf(value).length;
  return `${place}, ${time}${again}${lives > 1 ? `; ${lives} times in memory` : ""}${where}`;
}

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

// From computations and bytes to places on the canvas, and back. Resident bytes, where they are much, are a strip of
// their own at the bottom: drawn to scale they would leave no room for what changes.
const MAP = { left: 64, right: 8, top: MARGIN.top, bottom: MARGIN.bottom, strip: 15, lane: 13 }; // in line with R and S
const MUCH = 0.2; // share of the map from which on resident bytes are a strip
const BUDGET_SEEN = 1.4; // times the height of the rest, up to which the axis reaches to the budget
const ROOM = 1.03;

// The stages on the screen, of the zoom that matrices and map have in common.
function stagesOf(data, zoom) {
  const inside = (stage) => Math.max(0, Math.min(data.stages - 1, stage));
  return zoom.length === 4 ? [inside(zoom[0]), inside(zoom[1])] : [0, Math.max(0, data.stages - 1)];
}

function spaceOf(model, data, width, height) {
  const [first, last] = stagesOf(data, model.get("zoom"));
  const [from, to] = [data.starts[first] ?? 0, Math.max(data.starts[last + 1] ?? 1, (data.starts[first] ?? 0) + 1)];
  const [resident, budget] = [model.get("resident"), model.get("budget")];
  let top = 1;
  for (let i = 0; i < data.count; i++)
    if (data.begin[i] < to && data.end[i] > from) top = Math.max(top, data.offset[i] + data.bytes[i]);
  for (const line of [data.predicted, data.measured])
    for (let c = from; c < Math.min(to, line.length); c++) top = Math.max(top, line[c]);
  const plain = model.get("compact") ? (model.get("plain") ?? []).slice(first, last + 1) : [];
  top = plain.reduce((most, bytes) => Math.max(most, bytes), top);
  const budgetFits = budget > 0 && budget <= BUDGET_SEEN * top;
  if (budgetFits) top = Math.max(top, budget);
  const stripped = data.residentIsLow && resident > MUCH * top && resident < top;
  const floor = stripped ? resident : 0;
  const strip = stripped ? MAP.strip : 0;
  const lanes = (model.get("lanes")?.engines?.length ?? -1) + 1; // and one of what is on the host
  const bottom = height - lanes * MAP.lane;
  const area = { left: MAP.left, top: MAP.top, width: width - MAP.left - MAP.right, height: bottom - MAP.top - MAP.bottom };
  const [base, reach] = [area.top + area.height, floor + ROOM * (top - floor)];
  const across = area.width / (to - from);
  const up = (area.height - strip) / (reach - floor);
  return {
    ...area,
    first,
    last,
    from,
    to,
    floor,
    strip,
    reach,
    base,
    budgetFits,
    bottom,
    x: (computation) => area.left + (computation - from) * across,
    y: (bytes) => (bytes < floor ? base - (strip * bytes) / floor : base - strip - (bytes - floor) * up),
    computation: (x) => from + Math.floor((x - area.left) / across),
    holds: (x, y) => x >= area.left && x < area.left + area.width && y >= area.top && y < base,
  };
}

const SNAP = 6; // pixels from a rectangle at which it is still meant
const THIN = 3; // pixels; what is thinner is meant before what surrounds it

// The rectangle at a place, or the nearest one above or below it within SNAP; -1 where there is none.
function rectangleAt(data, space, x, y) {
  const computation = space.computation(x);
  let [best, least] = [-1, Infinity];
  for (let i = 0; i < data.count; i++) {
    if (data.begin[i] > computation || data.end[i] <= computation) continue;
    const [high, low] = [space.y(data.offset[i] + data.bytes[i]), space.y(data.offset[i])];
    const away = y < high ? high - y : y > low ? y - low : 0;
    const thin = low - high < THIN;
    const distance = thin && away <= 1.5 ? -1 : away + (away > 0 ? 1 : 0);
    if (distance < least && away <= SNAP) [best, least] = [i, distance];
  }
  return best;
}

// Rectangles, lines and axes: once for each change of the plan, the zoom or the colours. The cursor is on an overlay.
const LEAST_WIDTH = 16; // pixels from which on a rectangle may carry a name
const NAME_HEIGHT = 12;
const MOST_NAMES = 500;
const ALTERNATE = 0.16; // of every other rectangle, so that many thin ones are not one area
const FADED = 0.16; // of what is at none of two moments that are compared

function lightness(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b;
}

// Colours of layers come again after their number; then they are nearer to the ground.
function mixed(hex, ground, share) {
  const parts = [1, 3, 5].map((at) => {
    const [own, other] = [hex, ground].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(own * (1 - share) + other * share);
  });
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

function groupColour(colours, group) {
  const round = Math.floor(group / colours.layers.length) % 3;
  return mixed(colours.layers[group % colours.layers.length], colours.ground, 0.3 * round);
}

function fillOf(model, data, colours, classes) {
  if (classes) {
    const shades = [null, colours.only_first, colours.only_second, colours.both];
    return (i) => shades[classes[i]] ?? colours.kinds[data.kind[i]];
  }
  const alternating = (colour) => [colour, mixed(colour, colours.ground, ALTERNATE)];
  if (model.get("map_colours") === "kind") {
    const shades = colours.kinds.map(alternating);
    return (i) => shades[data.kind[i]][i & 1];
  }
  const shades = data.groups.map((_, group) => alternating(groupColour(colours, group)));
  return (i) => {
    const layer = layerOf(data, data.value[i]);
    return layer < 0 ? colours.resident : shades[data.layers[layer][1]][i & 1];
  };
}

function drawRectangles(context, data, space, ratio, fill, classes) {
  const named = [];
  let shade = null;
  for (const i of data.order) {
    if (data.begin[i] >= space.to || data.end[i] <= space.from) continue;
    const left = Math.round(space.x(Math.max(data.begin[i], space.from)) * ratio);
    const right = Math.round(space.x(Math.min(data.end[i], space.to)) * ratio);
    const high = Math.round(space.y(data.offset[i] + data.bytes[i]) * ratio);
    const low = Math.round(space.y(data.offset[i]) * ratio);
    let [width, height, top] = [Math.max(1, right - left), Math.max(1, low - high), Math.min(high, low - 1)];
    if (width > 5) width -= 1; // a seam between neighbours
    if (height > 4) [height, top] = [height - 1, top + 1];
    const next = fill(i);
    if (next !== shade) context.fillStyle = shade = next;
    if (classes) context.globalAlpha = classes[i] ? 1 : FADED;
    context.fillRect(left, top, width, height);
    if (width >= LEAST_WIDTH * ratio && height >= NAME_HEIGHT * ratio && named.length < MOST_NAMES && !(classes && !classes[i]))
      named.push({ i, left: left / ratio, top: top / ratio, width: width / ratio, height: height / ratio, shade });
  }
  context.globalAlpha = 1;
  return named;
}

// The whole name, else its module's, as much of its end as is whole: "blocks.0.norm2 batch_norm", "blocks.0.norm2", "0.norm2".
function namesOf(name) {
  const parts = name.split(" ")[0].split(".");
  return [name, ...parts.map((_, i) => parts.slice(i).join("."))].filter((part) => part.length > 1);
}

function drawNames(context, data, named) {
  Object.assign(context, { font: `10px ${FONT}`, textAlign: "left", textBaseline: "middle" });
  for (const { i, left, top, width, height, shade } of named) {
    const said = namesOf(nameIn(data, data.value[i])).find((name) => context.measureText(name).width <= width - 6);
    context.fillStyle = lightness(shade) > 125 ? "#000000" : "#ffffff";
    if (said) context.fillText(said, left + 3, top + height / 2);
  }
}

function steps(context, numbers, space) {
  context.beginPath();
  for (let c = space.from; c < Math.min(space.to, numbers.length); c++) {
    const y = space.y(numbers[c]);
    if (c === space.from) context.moveTo(space.x(c), y);
    else context.lineTo(space.x(c), y);
    context.lineTo(space.x(c + 1), y);
  }
  context.stroke();
}

function drawLines(context, model, data, space, colours) {
  context.save();
  context.beginPath();
  context.rect(space.left, space.top, space.width, space.height);
  context.clip();
  Object.assign(context, { strokeStyle: colours.predicted, lineWidth: 1, globalAlpha: 0.6 });
  context.setLineDash([]);
  steps(context, data.predicted, space);
  context.globalAlpha = 1;
  if (data.measured.length) {
    for (const [width, colour] of [[4, colours.ground], [2, colours.measured]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: width });
      context.setLineDash(colour === colours.measured ? [2, 2] : []);
      steps(context, data.measured, space);
    }
  }
  if (space.budgetFits) {
    Object.assign(context, { strokeStyle: colours.budget, lineWidth: 1.5 });
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(space.left, space.y(model.get("budget")));
    context.lineTo(space.left + space.width, space.y(model.get("budget")));
    context.stroke();
  }
  context.restore();
}

// Where there is no legend: the outline of keeping everything, stage by stage, and what this line and the budget's are.
function drawNamed(context, model, data, space, colours) {
  const [budget, plain] = [model.get("budget"), model.get("plain") ?? []];
  Object.assign(context, { font: `11px ${FONT}`, textAlign: "left", textBaseline: "bottom" });
  const label = (text, x, y) => {
    Object.assign(context, { fillStyle: colours.empty, globalAlpha: 0.85 });
    context.fillRect(x - 2, y - 12, context.measureText(text).width + 4, 13);
    Object.assign(context, { fillStyle: colours.ink, globalAlpha: 1 });
    context.fillText(text, x, y);
  };
  const line = space.y(budget);
  if (space.budgetFits) label(`budget ${formatBytes(budget)}`, space.left + 6, line > space.top + 14 ? line - 3 : line + 14);
  if (plain.length !== data.stages) return;
  const [heights, left] = [plain.map(space.y), (stage) => space.x(data.starts[stage])];
  Object.assign(context, { strokeStyle: colours.predicted, lineWidth: 1 });
  context.setLineDash([1, 3]);
  context.beginPath();
  for (let stage = space.first; stage <= space.last; stage++) {
    context.lineTo(left(stage), heights[stage]);
    context.lineTo(left(stage + 1), heights[stage]);
  }
  context.stroke();
  context.setLineDash([]);
  const text = "keep everything";
  const [room, top] = [context.measureText(text).width + 6, Math.min(...heights.slice(space.first, space.last + 1))];
  const isBeside = (stage) => stage >= space.first && stage <= space.last && heights[stage] < top + 16; // as high as the words
  const [before, after] = [left(heights.findIndex((_, stage) => isBeside(stage))) - room, left(heights.findLastIndex((_, stage) => isBeside(stage)) + 1) + 6];
  if (before > space.left) label(text, before, top + 13);
  else if (after + room < space.left + space.width) label(text, after, top + 13);
}

// Multiples of a power of two of bytes, at most about `most`.
function byteTicks({ floor, reach }, most) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2((reach - floor) / most)));
  const ticks = [];
  for (let bytes = Math.ceil(floor / step) * step; bytes <= reach; bytes += step) ticks.push(bytes);
  return ticks;
}

function drawAxes(context, model, data, space, colours) {
  context.font = `11px ${FONT}`;
  Object.assign(context, { fillStyle: colours.ink, strokeStyle: colours.grid, lineWidth: 1, textBaseline: "middle", textAlign: "right" });
  context.setLineDash([]);
  const few = model.get("compact");
  for (const bytes of byteTicks(space, few ? 3 : 6)) {
    const y = Math.round(space.y(bytes)) + 0.5;
    context.beginPath();
    context.moveTo(space.left, y);
    context.lineTo(space.left + space.width, y);
    context.stroke();
    context.fillText(formatBytes(bytes), space.left - 4, y);
  }
  context.strokeRect(space.left - 0.5, space.top - 0.5, space.width + 1, space.height + 1);
  context.textAlign = "center";
  context.textBaseline = "top";
  let right = -Infinity;
  for (let stage = space.first; stage <= space.last; stage++) {
    const x = (space.x(data.starts[stage]) + space.x(data.starts[stage + 1])) / 2;
    const half = context.measureText(stage).width / 2;
    if (x - half < right + (few ? 90 : 18) || x + half > space.left + space.width + MAP.right) continue;
    context.fillText(stage, x, space.base + 4);
    right = x + half;
  }
  context.textBaseline = "bottom";
  context.fillText(TIME_WORDS + (model.get("folded").length ? `; ${UNFOLDED_WORDS}` : ""), space.left + space.width / 2, space.bottom);
}

function drawStrip(context, model, space, colours) {
  if (!space.strip) return;
  context.fillStyle = colours.ground;
  context.fillRect(space.left, space.base - space.strip - 1, space.width, 2); // the axis is broken here
  context.font = `10px ${FONT}`;
  Object.assign(context, { fillStyle: lightness(colours.resident) > 125 ? "#000000" : "#ffffff", textAlign: "left", textBaseline: "middle" });
  context.fillText(`resident, ${formatBytes(model.get("resident"))} (not to scale)`, space.left + 4, space.base - space.strip / 2);
}

// Below the map: what each engine for copies does, when computing waits, and what is on the host.
function drawLanes(context, model, space, colours) {
  const { engines = [], waits, host } = model.get("lanes") ?? {};
  const inside = (place) => space.x(Math.max(space.from, Math.min(space.to, place)));
  const name = (text, top) => {
    Object.assign(context, { font: `11px ${FONT}`, fillStyle: colours.ink, textAlign: "right", textBaseline: "middle" });
    context.fillText(text, space.left - 4, top + MAP.lane / 2);
  };
  const bar = (begin, end, top, height, colour) => {
    if (end < space.from || begin > space.to) return;
    context.fillStyle = colour;
    context.fillRect(inside(begin), top, Math.max(inside(end) - inside(begin) - 0.5, 2), height);
  };
  engines.forEach((engine, i) => {
    const top = space.bottom + i * MAP.lane;
    name(engine.name.replace("the ", ""), top); // the words of the tip, shorter
    bar(space.from, space.to, top + 1, MAP.lane - 2, colours.empty);
    for (const [begin, end] of engine.stalled) bar(begin, end, top + MAP.lane / 2 - 1, 2, colours.over);
    for (const [, begin, end] of engine.busy) bar(begin, end, top + 1, MAP.lane - 2, colours.sent);
    for (const [run] of waits) bar(run, run, top, MAP.lane, colours.over);
  });
  if (!engines.length) return;
  const [top, most] = [space.bottom + engines.length * MAP.lane, Math.max(1, ...host)];
  name("on host", top);
  for (let c = space.from; c < space.to; c++)
    if (host[c]) {
      const height = ((MAP.lane - 1) * host[c]) / most;
      bar(c, c + 1, top + MAP.lane - height, height, mixed(colours.sent, colours.ground, 0.45));
    }
}

// From where values leave to where they are back; the copies of the selected one are framed below the map.
const MOST_WAYS = 24; // up to which all of them are drawn

function drawWays(context, model, data, space, stroke, lineWidth, selected = null) {
  const fetched = model.get("kinds").indexOf("fetched");
  const back = [...Array(data.count).keys()].filter((i) => data.kind[i] === fetched && (selected ?? data.value[i]) === data.value[i]);
  Object.assign(context, { strokeStyle: stroke, lineWidth });
  context.setLineDash([3, 3]);
  context.beginPath();
  for (const i of back.length > MOST_WAYS ? [] : back) {
    const all = data.rectanglesOf(data.value[i]);
    const left = all[all.indexOf(i) - 1];
    if (left === undefined || data.end[left] > space.to || data.begin[i] < space.from) continue;
    const middle = (one) => space.y(data.offset[one] + data.bytes[one] / 2);
    context.moveTo(space.x(data.end[left]), middle(left));
    context.lineTo(space.x(data.begin[i]), middle(i));
  }
  context.stroke();
  context.setLineDash([]);
  if (selected === null) return;
  (model.get("lanes")?.engines ?? []).forEach(({ busy }, lane) => {
    for (const [value, begin, end] of busy)
      if (value === selected && end > space.from && begin < space.to)
        context.strokeRect(space.x(begin), space.bottom + lane * MAP.lane + 1, Math.max(space.x(end) - space.x(begin), 2), MAP.lane - 2);
  });
}

// What is said of a place in the lanes, or "".
function saidOfLane(model, data, space, x, y) {
  const { engines = [], waits = [], host = [] } = model.get("lanes") ?? {};
  const lane = Math.floor((y - space.bottom) / MAP.lane);
  if (lane < 0 || x < space.left || !engines.length) return "";
  const near = (begin, end) => space.x(begin) - 2 <= x && x <= Math.max(space.x(end), space.x(begin) + 2) + 1;
  if (lane === engines.length) return `${formatBytes(host[space.computation(x)] ?? 0)} on the host, predicted`;
  const wait = waits.find(([run]) => near(run, run));
  const copy = engines[lane]?.busy.find(([, begin, end]) => near(begin, end));
  const stalled = engines[lane]?.stalled.some(([begin, end]) => near(begin, end));
  const words = copy ? `${data.values[copy[0]][0]}: ${formatBytes(data.values[copy[0]][1])} ${engines[lane].name} in ${copy[3]}` : stalled ? "a copy is due, and waits for room" : "no copy is due";
  return `${words}, predicted${wait ? `; computing waits ${wait[1]} here` : ""}`;
}

// Stage, value and what is pointed at, over the map.
function drawOver(context, model, data, space, colours, hovered, moments) {
  const [stage, value] = [model.get("stage"), model.get("value")];
  const bar = (from, to, colour, alpha) => {
    const [left, right] = [space.x(Math.max(from, space.from)), space.x(Math.min(to, space.to))];
    if (to < space.from || from > space.to) return;
    const width = Math.max(right - left, 2);
    Object.assign(context, { fillStyle: colour, globalAlpha: alpha });
    context.fillRect((left + right - width) / 2, space.top, width, space.height);
    context.globalAlpha = 1;
  };
  if (stage < data.stages) bar(data.starts[stage], data.starts[stage + 1], colours.ink, 0.18);
  for (const [moment, colour] of moments ? [[moments.first, colours.only_first], [moments.second, colours.only_second]] : [])
    if (moment.at !== undefined) bar(moment.at + 0.5, moment.at + 0.5, colour, 0.9);
  const outline = (i, colour, width, dash) => {
    if (data.begin[i] >= space.to || data.end[i] <= space.from) return;
    const [left, right] = [space.x(Math.max(data.begin[i], space.from)), space.x(Math.min(data.end[i], space.to))];
    const [high, low] = [space.y(data.offset[i] + data.bytes[i]), space.y(data.offset[i])];
    Object.assign(context, { strokeStyle: colour, lineWidth: width });
    context.setLineDash(dash);
    context.strokeRect(left, Math.min(high, low - 2), Math.max(right - left, 2), Math.max(low - high, 2));
  };
  drawWays(context, model, data, space, colours.cursor, 2.5, value);
  for (const i of data.rectanglesOf(value)) {
    outline(i, colours.ground, 4, []);
    outline(i, colours.cursor, 2.5, []);
  }
  if (hovered >= 0)
    for (const i of data.rectanglesOf(data.value[hovered])) outline(i, colours.ink, i === hovered ? 1.5 : 1, i === hovered ? [] : [3, 3]);
}
