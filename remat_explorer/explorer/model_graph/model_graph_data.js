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
