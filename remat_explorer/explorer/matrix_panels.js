// What the cells of R, S and U mean: unpacked, with their colours, their texts, and which value a column stands for.
const NEAR = 0.98; // share of the budget from which a cell of U is marked
const HERE = ["in neither schedule", "in both schedules", "only in the schedule on the screen", "only in the compared schedule"];

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function ramp(colours, share) {
  const at = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(at), colours.length - 2);
  const [from, to] = [rgb(colours[low]), rgb(colours[low + 1])];
  return from.map((part, i) => Math.round(part + (to[i] - part) * (at - low)));
}

function bytesOf(model, name) {
  const view = model.get(name);
  return view && view.byteLength ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(0);
}

// Rows of different lengths, one after the other, become rows of equal length; what lies behind their ends is 0.
function spread(packed, lengths, rows, columns) {
  const cells = new packed.constructor(rows * columns);
  let at = 0;
  lengths.forEach((length, t) => {
    cells.set(packed.subarray(at, at + length), t * columns);
    at += length;
  });
  return cells;
}

// Bits, most significant first, rows padded to bytes; the ones are put into `cells` as `one`.
function spreadBits(packed, rows, columns, cells, one) {
  const width = Math.ceil(columns / 8);
  for (let t = 0; t < rows; t++)
    for (let byte = 0; byte < width; byte++) {
      const bits = packed[t * width + byte];
      if (bits === 0 || bits === undefined) continue;
      for (let bit = 0, at = t * columns + byte * 8; bit < 8; bit++, at++) if (bits & (128 >> bit)) cells[at] += one;
    }
  return cells;
}

// The two bit planes of a comparison, or null where nothing is compared.
function spreadPlanes(packed, rows, columns) {
  if (packed.length === 0) return null;
  const cells = spreadBits(packed, rows, columns, new Uint8Array(rows * columns), 1);
  return spreadBits(packed.subarray(packed.length / 2), rows, columns, cells, 2);
}

function unpack(model) {
  const [rows, operations, values] = [model.get("rows"), model.get("operations"), model.get("values")];
  if (rows === 0) return { rows, stages: 0, operations: [], values: [] };
  const copy = (name) => bytesOf(model, name).slice().buffer; // 16 and 32 bits must lie on even addresses
  const lengths = new Uint32Array(copy("lengths"));
  return {
    rows,
    stages: lengths.length,
    operations,
    values,
    R: spread(bytesOf(model, "R"), lengths, rows, operations.length),
    S: spreadBits(bytesOf(model, "S"), lengths.length, values.length, new Uint8Array(rows * values.length), 1),
    U: spread(new Uint16Array(copy("U")), lengths, rows, operations.length),
    comparedR: spreadPlanes(bytesOf(model, "difference_R"), rows, operations.length),
    comparedS: spreadPlanes(bytesOf(model, "difference_S"), rows, values.length),
  };
}

function panels(model, data, part) {
  const { operations, values, stages, R, S, U, comparedR, comparedS } = data;
  const n = operations.length;
  const memory = (level) => (level / 65535) * model.get("largest");
  const kinds = ["not computed in this stage", "computed for the first time", "computed for the first time", "recomputed"];
  const differences = (palette) => [palette.empty, palette.both, palette.only_first, palette.only_second].map(rgb);
  const describe = (k) => `${operations[k][0]} (operation ${k}, ${operations[k][1]}, ${operations[k][2]})`;
  const none = (t) => (t < stages ? "" : "; the schedule on the screen has no such stage");
  const operationOf = (v) => (values[v] ? values[v][2] : -1);
  const withOperations = {
    title: "operation",
    ids: part.operations,
    at: (k) => (k >= part.left && k <= part.right ? k - part.left : -1),
    name: (k) => operations[k][0],
    operation: (k) => k,
    valueOf: (k) => operations[k][3],
    idOf: operationOf,
    stride: n,
  };
  return {
    R: {
      ...withOperations,
      sparse: true, // single cells are drawn at least two pixels wide
      cells: comparedR || R,
      mask: 3,
      colours: (palette) =>
        comparedR ? differences(palette) : [palette.empty, palette.forward, palette.backward, palette.recompute].map(rgb),
      colour: (level, colours) => colours[level],
      text(t, k) {
        const cell = R[t * n + k];
        const way = operations[k][4].length && cell ? ` by its implementation ${operations[k][4][(cell >> 2) - 1]}` : "";
        if (comparedR && (comparedR[t * n + k] || t >= stages))
          return `${describe(k)}: computed ${HERE[comparedR[t * n + k]]}${way}${none(t)}`;
        return `${describe(k)}: ${kinds[cell & 3]}${way}`;
      },
      picked: (t, k) => operations[k][0],
    },
    S: {
      title: "value",
      ids: part.values,
      at: (v) => part.column[v] ?? -1,
      name: (v) => values[v][0],
      operation: operationOf,
      valueOf: (v) => v,
      idOf: (v) => v,
      stride: values.length,
      cells: comparedS || S,
      mask: 3,
      colours: (palette) => (comparedS ? differences(palette) : [palette.empty, palette.kept].map(rgb)),
      colour: (level, colours) => colours[level],
      text(t, v) {
        const at = t * values.length + v;
        let kept = S[at] ? "kept from the stage before" : "not in memory when the stage begins";
        if (comparedS && (comparedS[at] || t >= stages)) kept = `kept ${HERE[comparedS[at]]}${none(t)}`;
        return `${values[v][0]} (value ${v}, ${formatBytes(values[v][1])}): ${kept}`;
      },
      picked: (t, v) => `${formatBytes(values[v][1])} · ${values[v][0]}`,
    },
    U: {
      ...withOperations,
      cells: U,
      mask: 65535,
      colours: (palette) => palette,
      colour(level, palette) {
        if (level === 0) return rgb(palette.empty);
        const budget = model.get("budget");
        if (budget && memory(level) >= NEAR * budget) return rgb(palette.budget);
        const floor = model.get("resident");
        return ramp(palette.scale, (memory(level) - floor) / Math.max(model.get("largest") - floor, 1));
      },
      text(t, k) {
        const level = U[t * n + k];
        if (level === 0) return `${describe(k)}: the stage ends before it${none(t)}`;
        const budget = model.get("budget");
        const share = budget ? `, ${((100 * memory(level)) / budget).toFixed(0)} % of the budget` : "";
        const when = R[t * n + k] ? "in use while it runs" : "held while others run (it does not)";
        return `${describe(k)}: ${formatBytes(memory(level))} ${when}${share}`;
      },
      picked: (t, k) => (U[t * n + k] ? formatBytes(memory(U[t * n + k])) : ""),
    },
  };
}
