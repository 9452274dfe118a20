// The matrices as they were sent: bits, most significant first, rows padded to bytes, and what the set bits mean.
// They are never unpacked: 1,000 stages are drawn by merging the bytes of the rows that share a pixel.
function bytesOf(model, name) {
  const view = model.get(name);
  return view && view.byteLength ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(0);
}

function wordsOf(model, name, Words) {
  const raw = bytesOf(model, name);
  const aligned = raw.byteOffset % Words.BYTES_PER_ELEMENT === 0 ? raw : raw.slice();
  return new Words(aligned.buffer, aligned.byteOffset, aligned.byteLength / Words.BYTES_PER_ELEMENT);
}

const hasBit = ({ bits, width }, t, c) => ((bits[t * width + (c >> 3)] >> (7 - (c & 7))) & 1) === 1;

// Which operations a stage computes, in order.
function runsOf({ bits, width }, t) {
  const found = [];
  for (let byte = 0; byte < width; byte++)
    for (let rest = bits[t * width + byte], k = 8 * byte; rest; rest = (rest << 1) & 255, k++) if (rest & 128) found.push(k);
  return found;
}

// U up to each stage's last computation: between two computations it is what is held before the second one.
function memoryOf(runs, levels, stages) {
  const [starts, lengths, computed] = [new Uint32Array(stages), new Uint32Array(stages), []];
  let total = 0;
  for (let t = 0; t < stages; t++) {
    computed.push(runsOf(runs, t));
    [starts[t], lengths[t]] = [total, computed[t].length ? computed[t][computed[t].length - 1] + 1 : 0];
    total += lengths[t];
  }
  const [cells, count] = [new Uint16Array(total), levels.length / 2];
  let next = 0;
  for (let t = 0; t < stages; t++) {
    let at = starts[t];
    for (const k of computed[t]) {
      cells.fill(levels[next], at, starts[t] + k);
      cells[starts[t] + k] = levels[count + next++];
      at = starts[t] + k + 1;
    }
  }
  return { cells, lengths, starts };
}

// Layers of bits, one for each kind of computation from 1 to 3, and how many computations come before each stage.
function kindsOf(runs, codes, stages) {
  const layers = [1, 2, 3].map((level) => ({ bits: new Uint8Array(runs.bits.length), width: runs.width, level }));
  const before = new Uint32Array(stages + 1);
  let next = 0;
  for (let t = 0; t < stages; t++) {
    before[t] = next;
    for (let at = t * runs.width; at < (t + 1) * runs.width; at++) {
      if (runs.bits[at] === 0) continue;
      for (let bit = 128; bit; bit >>= 1) if (runs.bits[at] & bit) layers[(codes[next++] & 3) - 1].bits[at] |= bit;
    }
  }
  return { layers, before };
}

// Layers of bits, one for each kind of implementation from 1, the default, on.
function waysOf(runs, codes, operations, kinds) {
  const layers = kinds.map((_, i) => ({ bits: new Uint8Array(runs.bits.length), width: runs.width, level: i + 1 }));
  let next = 0;
  for (let at = 0; at < runs.bits.length; at++) {
    if (runs.bits[at] === 0) continue;
    for (let bit = 128, c = 8 * (at % runs.width); bit; bit >>= 1, c++) {
      if ((runs.bits[at] & bit) === 0) continue;
      const code = codes[next++] >> 2;
      layers[(operations[c][5] || [])[code - 1] || 0].bits[at] |= bit;
    }
  }
  return layers;
}

// The planes of a comparison as layers: in both (1), only in the first (2), only in the second (3).
function differenceOf(model, name, width) {
  const packed = bytesOf(model, name);
  if (packed.length === 0) return null;
  const [low, high] = [packed.subarray(0, packed.length / 2), packed.subarray(packed.length / 2)];
  const layers = [1, 2, 3].map((level) => ({ bits: new Uint8Array(low.length), width, level }));
  const [both, first, second] = layers.map((layer) => layer.bits);
  for (let at = 0; at < low.length; at++) {
    if ((low[at] | high[at]) === 0) continue;
    both[at] = low[at] & ~high[at];
    first[at] = high[at] & ~low[at];
    second[at] = low[at] & high[at];
  }
  return layers;
}

function levelIn(layers, t, c) {
  const layer = layers.find((one) => hasBit(one, t, c));
  return layer ? layer.level : 0;
}

function unpack(model) {
  const [rows, operations, values] = [model.get("rows"), model.get("operations"), model.get("values")];
  if (rows === 0) return { rows, stages: 0, operations: [], values: [], comparedR: null, comparedS: null };
  const [n, widthR, widthS] = [operations.length, Math.ceil(operations.length / 8), Math.ceil(values.length / 8)];
  const codes = bytesOf(model, "R");
  const [runs, S] = [{ bits: bytesOf(model, "runs"), width: widthR }, { bits: bytesOf(model, "S"), width: widthS, level: 1 }];
  const stages = runs.bits.length / widthR;
  const { layers, before } = kindsOf(runs, codes, stages);
  let ways = null; // made when somebody looks at them
  const U = memoryOf(runs, wordsOf(model, "U", Uint16Array), stages);
  return {
    rows,
    stages,
    operations,
    values,
    R: layers,
    byWay: () => (ways = ways || waysOf(runs, codes, operations, model.get("kinds"))),
    S: [S],
    U,
    comparedR: differenceOf(model, "compared_computed", widthR),
    comparedS: differenceOf(model, "compared_kept", widthS),
    // What the stage computes: 0, or the kind plus 4 times the number of the implementation.
    codeAt(t, k) {
      if (t >= stages || !hasBit(runs, t, k)) return 0;
      let at = before[t];
      for (let c = 0; c < k; c++) at += hasBit(runs, t, c);
      return codes[at];
    },
    keptAt: (t, v) => t < stages && hasBit(S, t, v),
    memoryAt: (t, k) => (t < stages && k < U.lengths[t] && k < n ? U.cells[U.starts[t] + k] : 0),
  };
}
