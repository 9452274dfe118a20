// What the picture of the model knows: where operations stand, who reads what, and what a stage does with each.
const IDLE = 0;
const FIRST = 1;
const AGAIN = 2;

function modelData(model) {
  const view = (name) => model.get(name);
  const raw = (name) => new Uint8Array(view(name).buffer, view(name).byteOffset, view(name).byteLength);
  const picture = view("picture");
  if (!picture.operations) return null;
  const { operations, values, columns, rows } = picture;
  const buffer = raw("boxes");
  const boxes = new Float32Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength));
  const rail = operations.map((operation) => (operation[1] === "backward" ? 1 : 0));
  const row = operations.map((_, k) => Math.floor((boxes[4 * k + 1] + boxes[4 * k + 3]) / 2));
  const readers = values.map(() => []);
  operations.forEach((operation, k) => operation[5].forEach((v) => readers[v].push(k)));
  const written = operations.map((operation) => operation[6].reduce((sum, v) => sum + values[v][1], 0));
  const places = new Int32Array(2 * rows * columns).fill(-1); // the operation at each column of each rail
  operations.forEach((_, k) => {
    const [left, right] = [Math.round(boxes[4 * k]), Math.round(boxes[4 * k + 2])];
    places.fill(k, (2 * row[k] + rail[k]) * columns + left, (2 * row[k] + rail[k]) * columns + right);
  });
  const nodes = nodesOf(picture);
  return { ...picture, boxes, rail, row, readers, written, places, ...nodes };
}

// Of folded blocks one operation of each pass stands for all of them: `members` has these, by the one that stands for
// them, and `standsFor` the one for each operation.
function nodesOf({ operations, blocks, folded }) {
  const [standsFor, members, blockOf] = [Int32Array.from(operations.keys()), new Map(), new Map()];
  for (const number of folded ?? [])
    for (const all of blocks[number].slice(2)) {
      if (all.length === 0) continue;
      all.forEach((k) => (standsFor[k] = all[0]));
      members.set(all[0], all);
      blockOf.set(all[0], number);
    }
  return { standsFor, members, blockOf };
}

// What a stage does with a folded block: how many of its operations it computes for the first time and again, and how
// many bytes of what they write are kept into it.
function nodeIn(data, bits, t, node) {
  const found = { first: 0, again: 0, kept: 0, written: 0 };
  for (const k of data.members.get(node)) {
    const kind = bits.kind(t, k);
    if (kind === FIRST) found.first++;
    if (kind === AGAIN) found.again++;
    found.kept += keptBytes(data, bits, t, k);
    found.written += data.written[k];
  }
  return found;
}

// The bits of the schedule, or null while there is none of this graph.
function scheduleBits(model, data) {
  const stages = model.get("stages");
  if (!data || stages === 0) return null;
  const [computations, changes] = [rowLists(model.get("R")), rowLists(model.get("S"))];
  if (computations.starts.length !== stages + 1 || changes.starts.length !== stages + 1) return null;
  const { bits, width } = bitsOfChanges(changes, data.values.length);
  const runs = (t, k) => findColumn(computations, t, k) >= 0;
  const kept = (t, v) => t < stages && (bits[t * width + (v >> 3)] >> (7 - (v & 7))) & 1;
  const first = new Int32Array(data.operations.length).fill(stages);
  for (let t = stages - 1; t >= 0; t--)
    for (let i = computations.starts[t]; i < computations.starts[t + 1]; i++) first[computations.columns[i]] = t;
  return { stages, runs, kept, kind: (t, k) => (runs(t, k) ? (first[k] === t ? FIRST : AGAIN) : IDLE) };
}

// Bytes of an operation's results that are kept into a stage.
function keptBytes(data, bits, t, k) {
  let sum = 0;
  for (const v of data.operations[k][6]) if (bits.kept(t, v)) sum += data.values[v][1];
  return sum;
}

// What the hover says of a folded block.
function describeNode(data, bits, t, node) {
  const all = data.members.get(node);
  const [label, copies] = data.blocks[data.blockOf.get(node)];
  const lines = [`${label} × ${copies}`, `${all.length} operations, ${all.length / copies} in each copy, ${data.operations[node][1]}`];
  if (bits && t < bits.stages) {
    const { first, again, kept } = nodeIn(data, bits, t, node);
    lines.push(`stage ${t}: ${first} computed for the first time, ${again} recomputed`);
    lines.push(`kept from the stage before: ${kept ? formatBytes(kept) : "nothing"}`);
  }
  return [...lines, "Click, or press f, to unfold it."];
}

// What the hover says, one line each: its name, what it is, and what this stage does with it.
function describeOperation(data, bits, t, k) {
  if (data.members.has(data.standsFor[k])) return describeNode(data, bits, t, data.standsFor[k]);
  const [name, phase, cost, , workspace, reads, writes] = data.operations[k];
  const extra = workspace ? `, ${formatBytes(workspace)} of workspace` : "";
  const lines = [name, `operation ${k}, ${phase}: ${cost}, writes ${formatBytes(data.written[k])}${extra}`];
  const from = new Set(reads.map((v) => data.values[v][2])).size;
  const to = new Set(writes.flatMap((v) => data.readers[v])).size;
  lines.push(`reads from ${from} operation${from === 1 ? "" : "s"}, read by ${to}`);
  if (bits && t < bits.stages) {
    const done = ["not computed", "computed for the first time", "recomputed"][bits.kind(t, k)];
    const [before, after] = [keptBytes(data, bits, t, k), keptBytes(data, bits, t + 1, k)];
    const amount = (count) => (count === data.written[k] ? "all" : `${formatBytes(count)} of it`);
    lines.push(`stage ${t}: ${done}`);
    if (before || after)
      lines.push(`kept from the stage before: ${before ? amount(before) : "nothing"}; into the next: ${after ? amount(after) : "nothing"}`);
    else lines.push("not kept, neither from the stage before nor into the next");
  }
  return lines;
}

// The operation beside another: along the order of execution, or on the rail above or below.
function neighbour(data, k, key) {
  const last = data.operations.length - 1;
  const steps = { ArrowLeft: k - 1, ArrowRight: k + 1, Home: 0, End: last };
  if (key in steps) return Math.max(0, Math.min(last, steps[key]));
  const step = key === "ArrowUp" ? -1 : 1;
  const column = Math.floor((data.boxes[4 * k] + data.boxes[4 * k + 2]) / 2);
  for (let at = 2 * data.row[k] + data.rail[k] + step; at >= 0 && at < 2 * data.rows; at += step)
    for (let away = 0; away < data.columns; away++)
      for (const c of [column - away, column + away])
        if (c >= 0 && c < data.columns && data.places[at * data.columns + c] >= 0) return data.places[at * data.columns + c];
  return k;
}

// Folded blocks in the picture of the model: one box on each rail for all copies.

// A folded block is a pile of boxes, with how many they are.
function drawNode(context, data, scale, palette, node, number) {
  const [x, y, width, height] = scale.box(node);
  const count = `× ${data.blocks[number][1]}`;
  context.strokeStyle = data.rail[node] ? palette.backward : palette.forward;
  context.lineWidth = 1;
  for (const by of [0, 3, 6]) if (width > 3 * by && height > 3 * by) context.strokeRect(x + by / 2, y + by / 2, width - by, height - by);
  context.fillStyle = palette.ink;
  context.font = "bold 12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  if (context.measureText(count).width < width - 8 && height > 14) context.fillText(count, x + width / 2, y + height / 2);
}

// Of a folded block: from the left the share of its operations that run, and as high as ever the share that is kept.
function drawStageOfNode(context, data, scale, palette, found, node, number) {
  const [x, y, width, height] = scale.box(node);
  const all = data.members.get(node).length;
  let from = x;
  for (const [count, colour] of [[found.first, data.rail[node] ? palette.backward : palette.forward], [found.again, palette.recompute]]) {
    if (count === 0) continue;
    const part = Math.max(2, (width * count) / all);
    context.fillStyle = colour;
    context.fillRect(from, y, Math.min(part, x + width - from), height);
    from += part;
  }
  if (from > x) outline(context, scale, node, palette.ink, 0.9);
  if (found.kept) {
    const part = Math.max(3, ((from > x ? height / 2 : height) * found.kept) / Math.max(found.written, 1));
    context.fillStyle = palette.kept;
    context.fillRect(x, data.rail[node] ? y : y + height - part, width, part);
  }
  drawNode(context, data, scale, palette, node, number);
}

// The layers of the model's picture, from the ground up: rails and pale boxes; the stage; arcs and names; the cursor.
const BESIDE = 20; // pixels on either side, for the turns of the rails
const CROWDED = 60; // arcs from which on they are drawn thin
const NAME_HEIGHT = 10; // pixels of a line of a name

// From columns and rows to pixels.
function scaleOf(data, width, height) {
  const column = (width - 2 * BESIDE) / data.columns;
  const line = height / data.rows;
  const gap = column > 12 ? 2 : column > 5 ? 1 : 0.4;
  return {
    column,
    line,
    x: (u) => BESIDE + u * column,
    y: (u) => u * line,
    box(k) {
      const [left, top, right, bottom] = data.boxes.subarray(4 * k, 4 * k + 4);
      return [BESIDE + left * column + gap / 2, top * line, (right - left) * column - gap, (bottom - top) * line];
    },
  };
}

// Control points of the curve from one operation to another: the same as `arc` in snake_picture.py.
function arcOf(data, a, b) {
  const [top, , , bottom] = data.lanes;
  const [box, other] = [data.boxes.subarray(4 * a, 4 * a + 4), data.boxes.subarray(4 * b, 4 * b + 4)];
  const [x, end, row] = [(box[0] + box[2]) / 2, (other[0] + other[2]) / 2, data.row[a]];
  if (data.row[a] === data.row[b] && data.rail[a] === data.rail[b]) {
    const reach = Math.min(0.9, 0.35 + (2 * Math.abs(end - x)) / data.columns);
    const side = data.rail[a] === 0 ? 1 : 3;
    const peak = data.rail[a] === 0 ? row + top * (1 - reach) : row + bottom + (1 - bottom) * reach;
    const control = (4 * peak - (box[side] + other[side]) / 2) / 3;
    return [x, box[side], x, control, end, control, end, other[side]];
  }
  const down = box[1] + box[3] < other[1] + other[3];
  const [from, to] = down ? [box[3], other[1]] : [box[1], other[3]];
  return [x, from, x, (from + to) / 2, end, (from + to) / 2, end, to];
}

function curve(context, scale, points) {
  const [x, y] = [scale.x, scale.y];
  context.moveTo(x(points[0]), y(points[1]));
  context.bezierCurveTo(x(points[2]), y(points[3]), x(points[4]), y(points[5]), x(points[6]), y(points[7]));
}

function drawRails(context, data, scale, palette) {
  const bulge = (0.8 * BESIDE) / scale.column;
  context.lineWidth = 1.6;
  [palette.forward, palette.backward].forEach((colour, rail) => {
    const y = data.lanes[1 + rail];
    context.strokeStyle = colour;
    context.globalAlpha = 0.8;
    context.beginPath();
    for (let row = 0; row < data.rows; row++) {
      const [start, end] = extentOf(data, row);
      context.moveTo(scale.x(start), scale.y(row + y));
      context.lineTo(scale.x(end), scale.y(row + y));
      if (row + 1 === data.rows) continue;
      const edge = row % 2 === 0 ? data.columns : 0;
      const x = edge + ((row % 2 === 0 ? 1 : -1) * bulge * (rail === 0 ? 1 : 0.6) * 4) / 3;
      curve(context, scale, [edge, row + y, x, row + y, x, row + 1 + y, edge, row + 1 + y]);
    }
    context.stroke();
  });
  const row = data.rows - 1;
  const edge = extentOf(data, row)[row % 2 === 0 ? 1 : 0];
  const x = edge + ((row % 2 === 0 ? 2 : -2) * bulge) / 3;
  context.strokeStyle = palette.forward;
  context.beginPath();
  curve(context, scale, [edge, row + data.lanes[1], x, row + data.lanes[1], x, row + data.lanes[2], edge, row + data.lanes[2]]);
  context.stroke();
  context.globalAlpha = 1;
}

function extentOf(data, row) {
  if (row < data.rows - 1) return [0, data.columns];
  let [start, end] = [data.columns, 0];
  data.row.forEach((at, k) => {
    if (at !== row) return;
    start = Math.min(start, data.boxes[4 * k]);
    end = Math.max(end, data.boxes[4 * k + 2]);
  });
  return row % 2 === 0 ? [0, end] : [start, data.columns];
}

// Pale boxes; the deeper, the more they cost.
function drawGround(context, data, scale, palette) {
  drawRails(context, data, scale, palette);
  data.operations.forEach((operation, k) => {
    if (data.standsFor[k] !== k) return;
    context.globalAlpha = 0.16 + 0.22 * Math.sqrt(operation[3]);
    context.fillStyle = data.rail[k] ? palette.backward : palette.forward;
    context.fillRect(...scale.box(k));
  });
  context.globalAlpha = 1;
  for (const [node, number] of data.blockOf) drawNode(context, data, scale, palette, node, number);
}

// What runs in the stage, framed, and what was kept into it: a box is filled from its rail outwards. What the step has
// not reached yet has its frame alone.
function drawStage(context, data, bits, scale, palette, t, reached) {
  const colours = [[], [palette.forward, palette.backward], [palette.recompute, palette.recompute]];
  for (const [node, number] of data.blockOf) drawStageOfNode(context, data, scale, palette, nodeIn(data, bits, t, node), node, number);
  for (let k = 0; k < data.operations.length; k++) {
    if (data.members.has(data.standsFor[k])) continue;
    const kind = bits.kind(t, k);
    const kept = keptBytes(data, bits, t, k);
    if (kind === IDLE && kept === 0) continue;
    const [x, y, width, height] = scale.box(k);
    if (kind !== IDLE) {
      context.fillStyle = colours[kind][data.rail[k]];
      if (reached(k)) context.fillRect(x, y, width, height);
      if (width > 3) outline(context, scale, k, palette.ink, 0.9); // told from what is kept by more than its hue
    }
    if (kept === 0) continue;
    const share = Math.max(kind === IDLE ? 2 : 3, (height * kept) / Math.max(data.written[k], 1));
    const part = Math.min(kind === IDLE ? height : height / 2, share);
    context.fillStyle = palette.kept;
    context.fillRect(x, data.rail[k] ? y : y + height - part, width, part);
  }
}

function drawArcsAndNames(context, data, scale, palette) {
  const crowded = data.skips.length > CROWDED;
  const passes = crowded ? [[palette.ink, 0.8, 0.28]] : [[palette.ground, 3.6, 0.75], [palette.ink, 1.4, 0.75]];
  for (const [colour, width, alpha] of passes) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.globalAlpha = alpha;
    for (const [a, b] of data.skips) {
      context.beginPath();
      curve(context, scale, arcOf(data, a, b));
      context.stroke();
    }
  }
  context.globalAlpha = 1;
  Object.assign(context, { fillStyle: palette.ink, strokeStyle: palette.ground, lineWidth: 3, lineJoin: "round" });
  context.font = "10px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const [, upper, lower] = data.lanes;
  const least = Math.min(1, ...data.labels.map((label) => label[3]));
  const between = (lower - upper) * scale.line;
  const fitting = Math.max(Math.min(Math.floor(between / NAME_HEIGHT), data.lines), 1); // lines that do not touch
  const step = between / fitting;
  for (const [left, right, row, line, text] of data.labels) {
    if (line - least >= fitting) continue;
    if (context.measureText(text).width > (right - left) * scale.column) continue;
    const y = scale.y(row + upper) + (line - least + 0.5) * step;
    const place = [text, scale.x((left + right) / 2), y + 0.5];
    context.strokeText(...place); // legible where an edge passes under it
    context.fillText(...place);
  }
}

function outline(context, scale, k, colour, width, dash = []) {
  const [x, y, across, down] = scale.box(k);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.strokeRect(x - width / 2, y - width / 2, across + width, down + width);
  context.setLineDash([]);
}

// An edge of the selection. Within a row the two rails face each other: there the outlines say enough, and names stay
// legible.
function link(context, data, scale, palette, a, b, { dash, thin }) {
  if (data.row[a] === data.row[b] && data.rail[a] !== data.rail[b]) return;
  const strokes = thin ? [[palette.cursor, 1, dash]] : [[palette.ground, 3.6, []], [palette.cursor, 1.8, dash]];
  for (const [colour, width, pattern] of strokes) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(pattern);
    context.beginPath();
    curve(context, scale, arcOf(data, a, b));
    context.stroke();
  }
  context.setLineDash([]);
}

// The selected value's operation with what it reads (solid) and who reads the value (dashed); what is found and hovered.
function drawCursor(context, data, scale, palette, { value, found, hovered }) {
  for (const k of found) {
    if (k >= data.operations.length) continue;
    const [x, y, across, down] = scale.box(k);
    outline(context, scale, k, palette.ink, 1.2);
    context.fillStyle = palette.ink;
    context.beginPath();
    context.arc(x + across / 2, data.rail[k] ? y + down + 5 : y - 5, 2.6, 0, 7);
    context.fill();
  }
  if (hovered >= 0) outline(context, scale, hovered, palette.ink, 1, [3, 2]);
  if (!data.values[value]) return;
  const chosen = data.values[value][2];
  const others = (operations) => [...new Set(operations.map((k) => data.standsFor[k]))].filter((k) => k !== data.standsFor[chosen]);
  const [makers, readers] = [others(data.operations[chosen][5].map((v) => data.values[v][2])), others(data.readers[value])];
  const thin = makers.length + readers.length > 12;
  for (const k of makers) link(context, data, scale, palette, k, chosen, { dash: [], thin });
  for (const k of readers) link(context, data, scale, palette, chosen, k, { dash: [4, 3], thin });
  for (const k of makers) outline(context, scale, k, palette.cursor, 1.5);
  for (const k of readers) outline(context, scale, k, palette.cursor, 1.5, [4, 3]);
  outline(context, scale, chosen, palette.cursor, 3);
}

// Where the step has come to: a head beside the rail, on its way from one operation to another.
function drawPlayhead(context, data, scale, palette, computations, from, to, share) {
  const [a, b] = [computations[from], computations[to]].map(({ operation }) => scale.box(operation));
  const [x, y, across, down] = a.map((part, i) => part + (b[i] - part) * share);
  const again = computations[to].again;
  const middle = x + across / 2;
  context.strokeStyle = palette.ground;
  context.lineWidth = 5;
  context.strokeRect(x - 1, y - 1, across + 2, down + 2);
  context.strokeStyle = again ? palette.recompute : palette.ink;
  context.lineWidth = 2.5;
  context.strokeRect(x - 1, y - 1, across + 2, down + 2);
  context.fillStyle = again ? palette.recompute : palette.ink;
  context.beginPath();
  const [tip, way] = data.rail[computations[to].operation] ? [y + down + 2, 1] : [y - 2, -1]; // away from the names
  context.moveTo(middle, tip);
  context.lineTo(middle - 6, tip + way * 10);
  context.lineTo(middle + 6, tip + way * 10);
  context.closePath();
  context.fill();
  context.strokeStyle = palette.ground;
  context.lineWidth = 1;
  context.stroke();
}
