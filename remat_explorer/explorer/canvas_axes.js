// What stands around and over the cells: ticks, names where they fit, marks of the search, and the cursor.
const MARGIN = { left: 44, right: 6, top: 10, bottom: 32, names: 96 };
const STAGE_WORDS = "stage: one new operation each";
const NAMED = 9; // pixels that a column needs to carry its name
const AROUND_NAMES = 20; // pixels above a name and for the title below it
const FONT = "system-ui, sans-serif";
const NAME_FONT = `10px ${FONT}`;

function tickStep(count, pixels, apart) {
  const least = (count * apart) / Math.max(pixels, 1);
  let step = 1;
  for (const factor of [2, 2.5, 2, 2, 2.5, 2, 2, 2.5, 2]) {
    if (step >= least) break;
    step *= factor;
  }
  return Math.round(step);
}

const namesFit = (panel, width) => panel.ids.length > 0 && width / panel.ids.length >= NAMED;

// Room below the cells, the same for all panels: for the longest name where names fit, else for numbers.
function footOf(context, panels) {
  context.font = NAME_FONT;
  const named = panels.filter(([panel, width]) => namesFit(panel, width)).map(([panel]) => panel);
  const lengths = named.flatMap((panel) => Array.from(panel.ids, (id) => context.measureText(panel.name(id)).width));
  return Math.min(MARGIN.names, Math.max(MARGIN.bottom, Math.ceil(Math.max(0, ...lengths)) + AROUND_NAMES));
}

// A name is cut in its middle: both ends tell layers apart. "blocks.1…backward_4"
function fitted(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  const cut = (kept) => `${name.slice(0, kept >> 1)}…${name.slice(name.length - kept + (kept >> 1))}`;
  let kept = name.length - 1;
  while (kept > 1 && context.measureText(cut(kept)).width > width) kept -= 1;
  return cut(kept);
}

function upright(context, x, y, align, text) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(text, 0, 0);
  context.restore();
}

// With `few` numbers there is room for little else than the first and the last.
function axes(context, panel, part, palette, box, marked, few) {
  const count = panel.ids.length;
  const bottom = box.top + box.height;
  const middle = (column) => box.left + ((column + 0.5) * box.width) / count;
  context.font = `11px ${FONT}`;
  context.fillStyle = palette.ink;
  context.strokeStyle = palette.grid;
  context.lineWidth = 1;
  context.setLineDash([]);
  context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText(count ? panel.title : "no values", box.left + box.width / 2, box.foot);
  if (namesFit(panel, box.width)) {
    context.font = NAME_FONT;
    panel.ids.forEach((id, column) =>
      upright(context, middle(column), bottom + 4, "right", fitted(context, panel.name(id), box.foot - bottom - AROUND_NAMES)),
    );
  } else if (panel.folded) brackets(context, palette, panel.ids, panel.section, box.left, box.width, bottom, false);
  else {
    context.textBaseline = "top";
    const step = tickStep(count, box.width, few ? 80 : 34);
    panel.ids.forEach((id, column) => {
      if (id % step !== 0) return;
      const last = box.left + box.width + MARGIN.right - context.measureText(id).width / 2;
      context.fillText(id, Math.min(middle(column), last), bottom + 4);
    });
  }
  context.font = `11px ${FONT}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const rows = part.rows.length;
  const step = tickStep(rows, box.height, few ? 90 : 12.5);
  if (panel.folded) brackets(context, palette, part.rows, panel.rowSection, box.top, box.height, box.left, true);
  else part.rows.forEach((t, row) => {
    if (t % step === 0) context.fillText(t, box.left - 6, box.top + ((row + 0.5) * box.height) / rows);
  });
  const said = box.height > 200 ? STAGE_WORDS : "stage";
  upright(context, 5, box.top + box.height / 2, "center", said);
  if (marked.size) marks(context, panel, palette, box, marked);
}

// Numbers of what is folded mean nothing: brackets, below the columns or left of the rows, name layers and blocks.
function brackets(context, palette, ids, section, start, length, edge, isUpright) {
  Object.assign(context, { strokeStyle: palette.ink, lineWidth: 1, font: NAME_FONT, textAlign: "center", textBaseline: "top" });
  const each = length / ids.length;
  for (const { block: name, from, to } of stretchesOf(ids, section)) {
    const [first, last] = [start + from * each + 1, start + (to + 1) * each - 1];
    const corners = [[first, 3], [first, 6], [last, 6], [last, 3]];
    context.beginPath();
    for (const [along, away] of corners) context.lineTo(...(isUpright ? [edge - away, along] : [along, edge + away]));
    context.stroke();
    if (last - first < 24) continue;
    const said = fitted(context, name, last - first);
    if (isUpright) upright(context, edge - 14, (first + last) / 2, "center", said);
    else context.fillText(said, (first + last) / 2, edge + 8);
  }
}

// Columns of the operations that the search has found: a triangle at the top edge and a tint.
function marks(context, panel, palette, box, marked) {
  const width = box.width / panel.ids.length;
  panel.ids.forEach((id, column) => {
    if (!marked.has(panel.operation(id))) return;
    const middle = box.left + (column + 0.5) * width;
    context.beginPath();
    context.moveTo(middle - 4, box.top - 8);
    context.lineTo(middle + 4, box.top - 8);
    context.lineTo(middle, box.top - 1);
    context.closePath();
    context.fillStyle = palette.found;
    context.strokeStyle = palette.ink;
    context.fill();
    context.stroke();
  });
}

function tint(context, panel, palette, box, marked) {
  const width = box.width / panel.ids.length;
  context.fillStyle = palette.found;
  context.globalAlpha = 0.35;
  panel.ids.forEach((id, column) => {
    if (marked.has(panel.operation(id)))
      context.fillRect(box.left + (column + 0.5) * width - Math.max(width, 1.5) / 2, box.top, Math.max(width, 1.5), box.height);
  });
  context.globalAlpha = 1;
}

// Cells of U that nearly fill the budget, those beside each other in one outline: a full budget is a good one.
function outlines(context, panel, part, palette, box) {
  const [least, most] = panel.near();
  const [across, down] = [box.width / panel.ids.length, box.height / part.rows.length];
  context.setLineDash([]);
  function frame(from, to, row) {
    const [width, height] = [Math.max((to - from) * across, 3), Math.max(down, 3)];
    const [x, y] = [box.left + ((from + to) * across) / 2, box.top + (row + 0.5) * down];
    for (const [colour, thick] of [[palette.ground, 3], [palette.ink, 1]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: thick }); // seen on dark and on light cells
      context.strokeRect(x - width / 2, y - height / 2, width, height);
    }
  }
  if (panel.folded) return aroundCells(context, panel, part, palette, box, (level) => level >= least && level <= most);
  const [left, right] = [panel.ids[0], part.right + 1];
  for (let t = part.first; t <= part.last && t + 1 < panel.memory.starts.length; t++) {
    let begun = -1; // where the cells inside begin that go on
    const end = (at) => {
      if (begun >= 0 && begun < at) frame(begun - left, at - left, t - part.first);
      begun = -1;
    };
    let reached = left;
    eachLevel(panel.memory, t, (from, to, level) => {
      const [first, behind] = [Math.max(from, left), Math.min(to, right)];
      if (first >= behind) return;
      if (level < least || level > most) end(first);
      else if (begun < 0) begun = first;
      reached = behind;
    });
    end(reached);
  }
}

// The edge of all cells of a folded matrix whose level is `inside`: rows next to each other are mostly alike there.
function aroundCells(context, panel, part, palette, box, inside) {
  const [{ cells, width }, { rows }, { ids }] = [panel.folded, part, panel];
  const [across, down] = [box.width / ids.length, box.height / rows.length];
  const is = (row, column) =>
    row >= 0 && column >= 0 && row < rows.length && column < ids.length && inside(cells[panel.rowOf(rows[row]) * width + panel.places.at[ids[column]]]);
  const edge = new Path2D();
  function line(column, row, dx, dy) {
    edge.moveTo(box.left + column * across, box.top + row * down);
    edge.lineTo(box.left + (column + dx) * across, box.top + (row + dy) * down);
  }
  for (let row = 0; row < rows.length; row++)
    for (let column = 0; column < ids.length; column++) {
      if (!is(row, column)) continue;
      if (!is(row - 1, column)) line(column, row, 1, 0);
      if (!is(row + 1, column)) line(column, row + 1, 1, 0);
      if (!is(row, column - 1)) line(column, row, 0, 1);
      if (!is(row, column + 1)) line(column + 1, row, 0, 1);
    }
  for (const [colour, thick] of [[palette.ground, 3], [palette.ink, 1]]) {
    Object.assign(context, { strokeStyle: colour, lineWidth: thick });
    context.stroke(edge);
  }
}

// The row of a stage and the column of a value, outlined.
function band(context, panel, part, box, stage, value, { ofStage, ofValue, width: lineWidth, dash }) {
  const [rows, row, column] = [part.rows.length, part.rowOf(stage), panel.at(panel.idOf(value))];
  Object.assign(context, { strokeStyle: ofStage, lineWidth });
  context.setLineDash(dash);
  if (row >= 0) {
    const height = Math.max(box.height / rows, 3);
    const middle = box.top + ((row + 0.5) * box.height) / rows;
    context.strokeRect(box.left, middle - height / 2, box.width, height);
  }
  context.strokeStyle = ofValue;
  if (column >= 0) {
    const width = Math.max(box.width / panel.ids.length, 3);
    const middle = box.left + ((column + 0.5) * box.width) / panel.ids.length;
    context.strokeRect(middle - width / 2, box.top, width, box.height);
  }
}

// Which part of the matrices is on the screen, and which comes next.
const LEAST = 4; // stages or operations that + stops at

// The part that `zoom` names, clipped; S shows the values that its operations write. Where blocks are folded, the rows and
// columns of one copy stand for those of all.
function partOf(data, zoom, folding = null) {
  const { rows, operations, values } = data;
  const inside = (edge, count) => Math.max(0, Math.min(count - 1, edge));
  const whole = zoom.length !== 4 || rows === 0;
  const [first, last, left, right] = !whole ? zoom : [0, rows - 1, 0, operations.length - 1];
  const part = {
    first: inside(first, rows),
    last: inside(last, rows),
    left: inside(left, operations.length),
    right: inside(right, operations.length),
    whole,
    column: new Int32Array(values.length).fill(-1), // of each value
  };
  part.rows = shownBetween(part.first, part.last, rows, folding?.stages);
  part.operations = shownBetween(part.left, part.right, operations.length, folding?.operations);
  const place = (t) => (folding && t < folding.stages.first.length ? folding.stages.at[t] - folding.stages.at[part.rows[0]] : t - part.first);
  part.rowOf = (t) => (place(t) >= 0 && place(t) < part.rows.length ? place(t) : -1);
  const [shown, columns] = [[], new Set(folding ? part.operations : [])];
  values.forEach(([, , producer], v) => {
    if (folding ? folding.values.first[v] !== v || !columns.has(producer) : producer < part.left || producer > part.right) return;
    part.column[v] = shown.length;
    shown.push(v);
  });
  part.values = Int32Array.from(shown);
  return part;
}

// The place of a number among ascending ones, -1 where it is not there.
function placeIn(ids, id) {
  if (ids[id - ids[0]] === id) return id - ids[0]; // nothing is folded
  let [low, high] = [0, ids.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ids[middle] < id) low = middle + 1;
    else high = middle;
  }
  return ids[low] === id ? low : -1;
}

// Rows or columns from one to another; of folded ones those that stand for them.
function shownBetween(first, last, count, places) {
  if (!places) return Int32Array.from({ length: count && last - first + 1 }, (_, i) => first + i);
  const inside = places.shown.filter((id) => id >= first && id <= last);
  if (inside.length) return inside;
  const at = places.at.slice(first, last + 1); // all of them are folded away
  return places.shown.slice(Math.min(...at), Math.max(...at) + 1);
}

// A range `factor` times as long that keeps `position` where it is on the screen.
function scaled(first, last, position, count, factor) {
  const size = last - first + 1;
  const next = Math.max(Math.min(LEAST, count), Math.min(count, Math.round(size * factor)));
  const kept = position >= first && position <= last ? position + 0.5 : (first + last + 1) / 2;
  const start = Math.round(kept - ((kept - first) / size) * next);
  const inside = Math.max(0, Math.min(count - next, start));
  return [inside, inside + next - 1];
}

function zoomed(part, data, stage, operation, factor, folding = null) {
  if (!folding) {
    const stages = scaled(part.first, part.last, stage, data.rows, factor);
    return [...stages, ...scaled(part.left, part.right, operation, data.operations.length, factor)];
  }
  const along = ({ shown, at }, ids, position) =>
    scaled(at[ids[0]], at[ids[ids.length - 1]], at[position], shown.length, factor).map((place) => shown[place]);
  return [...along(folding.stages, part.rows, stage), ...along(folding.operations, part.operations, operation)];
}

// The part under a rectangle from one cell to another of the same panel.
function brushed(panel, from, to) {
  const stages = [from.stage, to.stage].sort((a, b) => a - b);
  const [left, right] = [from.column, to.column].sort((a, b) => a - b);
  const operations = Array.from(panel.ids.slice(left, right + 1), panel.operation);
  return [...stages, operations.reduce((a, b) => Math.min(a, b)), operations.reduce((a, b) => Math.max(a, b))];
}

// The elements of the widget, and the theme of the page that they stand in.
const TITLES = {
  R: ["R", "what each stage runs", "What each stage computes (rows are stages, columns operations)."],
  S: ["S", "what is kept between stages", "The values that are kept in memory from one stage into the next (columns are values)."],
  U: ["U", "memory, predicted", "The predicted memory in use while each operation of a stage runs."],
};
const KEYS =
  "Click or arrow keys: select a stage and a value; Page up, Page down, Home, End: further; Space: play the stages; " +
  "Shift and drag, + and -: zoom; Escape or double click: show the whole; n and N: next and previous found operation; " +
  "f: fold or unfold the block of the selected value, F: all blocks.";
const BUTTONS = {
  brush: ["Zoom", "Drag a rectangle over the cells to zoom in, also without holding Shift."],
  out: ["−", "Zoom out around the cursor (key -)."],
  in: ["+", "Zoom in around the cursor (key +)."],
  whole: ["All", "Show every stage and operation (Escape, or a double click on the cells)."],
};

function element(kind, name, text = "") {
  const made = document.createElement(kind);
  made.className = name;
  made.textContent = text;
  return made;
}

function build() {
  const root = element("div", "remat-matrices");
  root.tabIndex = 0;
  root.setAttribute("role", "application");
  root.setAttribute("aria-roledescription", "schedule matrices");
  root.setAttribute("aria-label", `Matrices R, S and U of the schedule. ${KEYS}`);
  const buttons = {};
  const views = Object.entries(TITLES).map(([name, [letter, title, hint]]) => {
    const figure = document.createElement("figure");
    const [caption, subtitle, picked] = [document.createElement("figcaption"), element("span", ""), element("span", "remat-picked")];
    const heading = element("span", "");
    heading.append(element("b", "", letter), " ", subtitle);
    caption.append(heading, picked);
    caption.title = `${hint}\n${KEYS}`;
    const frame = element("div", "remat-canvas");
    const [cells, overlay] = [document.createElement("canvas"), document.createElement("canvas")];
    const labels = element("div", "remat-folds");
    const words = element("div", "remat-words"); // where the cells are empty: a stage has no operation of a later one
    frame.append(cells, overlay, labels, words);
    const legend = element("div", "remat-legend");
    figure.append(caption, frame, legend);
    root.append(figure);
    if (name === "U") caption.append(zoomButtons(buttons));
    return { name, title, cells, overlay, frame, labels, words, legend, picked, subtitle };
  });
  const [tip, live] = [element("div", "remat-tip"), liveRegion()];
  root.append(tip, live);
  return { root, views, tip, live, buttons };
}

function liveRegion() {
  const live = element("div", "remat-live");
  live.setAttribute("role", "status");
  live.setAttribute("aria-live", "polite");
  return live;
}

// Adds a button for each entry, a name with its text and its hint.
function addButtons(group, entries, buttons) {
  for (const [name, [text, hint]] of Object.entries(entries)) {
    const button = (buttons[name] = element("button", "", text));
    Object.assign(button, { type: "button", title: hint, ariaLabel: hint });
    group.append(button);
  }
}

function zoomButtons(buttons) {
  const group = element("span", "remat-zoom");
  addButtons(group, BUTTONS, buttons);
  buttons.brush.setAttribute("aria-pressed", "false");
  return group;
}

// What they do in matrices and map; Zoom stays pressed until it is pressed again.
function listenToZoom(buttons, scale, showWhole) {
  const setBrushing = (on) => buttons.brush.setAttribute("aria-pressed", String(on));
  const brushing = () => buttons.brush.getAttribute("aria-pressed") === "true";
  buttons.brush.addEventListener("click", () => setBrushing(!brushing()));
  buttons.in.addEventListener("click", () => scale(0.5));
  buttons.out.addEventListener("click", () => scale(2));
  buttons.whole.addEventListener("click", showWhole);
  return { brushing, setBrushing };
}

// Keys that matrices and map have in common.
function commonKeys(model, scale) {
  const play = () => {
    model.set("playing", !model.get("playing"));
    model.save_changes();
  };
  return {
    "+": () => scale(0.5),
    "=": () => scale(0.5),
    "-": () => scale(2),
    n: () => model.send({ found: 1 }),
    N: () => model.send({ found: -1 }),
    " ": play,
  };
}

// What shades and hatching mean where one copy of a block stands for all.
function foldedLegend(name, palette) {
  if (name === "U") return "<span>the most of all copies</span>";
  const [few, all] = name === "R" ? [palette.recompute, palette.recompute] : [palette.kept, palette.kept];
  const shades = `linear-gradient(to right,${palette.empty},${few} 70%,${all})`;
  const hatch = `repeating-linear-gradient(135deg,${palette.ground} 0 1px,color-mix(in srgb,${all} 40%,${palette.empty}) 1px 4px)`;
  return (
    `<span><i class="scale shades" style="background:${shades}"></i>few to all copies</span>` +
    `<span><i style="background:${hatch}"></i>only while others run</span>`
  );
}

function legend(name, palette, model, compared, folded) {
  return ownLegend(name, palette, model, compared) + (folded ? foldedLegend(name, palette) : "");
}

function ownLegend(name, palette, model, compared) {
  const swatch = (colour, text) => `<span><i style="background:${colour}"></i>${text}</span>`;
  if (compared && name !== "U")
    return swatch(palette.only_first, "only here") + swatch(palette.only_second, "only in the compared") + swatch(palette.both, "in both");
  if (name === "R" && model.get("colouring") === "implementation")
    return swatch(model.get("kinds")[0][palette === model.get("palettes").light ? 1 : 2], "default; others as marked above");
  if (name === "R")
    return swatch(palette.forward, "forward") + swatch(palette.backward, "backward") + swatch(palette.recompute, "recompute");
  if (name === "S") {
    const vain = model.get("in_vain")?.byteLength ? swatch(`rgb(${pale(palette).join(",")})`, "kept in vain") : "";
    return swatch(palette.kept, "kept (checkpoint)") + vain;
  }
  const bar = `<i class="scale" style="background:linear-gradient(to right,${palette.scale.join(",")})"></i>`;
  const ends = [model.get("resident"), model.get("largest")].map(formatBytes);
  const budget = model.get("budget");
  const near = budget ? `<span><i class="near" style="border-color:${palette.ink}"></i>≥ 98 % of budget</span>` : "";
  const over = budget && model.get("largest") > ROUNDED * budget ? swatch(palette.over, "over it") : "";
  return `<span>${ends[0]} ${bar} ${ends[1]}</span>${near}${over}`;
}

// What colours mean, where there is no legend: each word is underlined with its own.
function colourWords(name, palette, compared, sends) {
  const word = (text, colour) => Object.assign(element("u", "", text), { style: `--mark: ${palette[colour]}` });
  if (compared) return [word("only here", "only_first"), word("only there", "only_second"), word("both", "both")];
  const words = name === "R" ? [word("forward", "forward"), word("backward", "backward"), word("again", "recompute")] : [word("kept", "kept")];
  return sends ? [...words, word(name === "R" ? "sent" : "on the host", "sent")] : words;
}

function luminance(colour) {
  const [r, g, b, a] = (colour.match(/[\d.]+/g) || []).map(Number);
  return a === 0 || r === undefined ? null : 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function themeOf(element) {
  const lab = document.body.dataset.jpThemeLight;
  if (lab !== undefined) return lab === "false" ? "dark" : "light";
  for (let node = element; node; node = node.parentElement) {
    const light = luminance(getComputedStyle(node).backgroundColor);
    if (light !== null) return light < 128 ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
