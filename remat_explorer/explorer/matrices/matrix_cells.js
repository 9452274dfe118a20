// The matrices as they were sent: bits, most significant first, rows padded to bytes, and what the set bits mean.
// R and S are never unpacked: 1,000 stages are drawn by merging the bytes of the rows that share a pixel.
function bytesOf(model, name) {
  const view = model.get(name);
  return view && view.byteLength ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(0);
}

function wordsOf(model, name) {
  const raw = bytesOf(model, name);
  const aligned = raw.byteOffset % 2 === 0 ? raw : raw.slice();
  return new Uint16Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 2);
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
function memoryOf(computed, levels) {
  const lengths = computed.map((operations) => (operations.length ? operations[operations.length - 1] + 1 : 0));
  const starts = sumsBefore(lengths);
  const [cells, count] = [new Uint16Array(starts[computed.length]), levels.length / 2];
  let next = 0;
  computed.forEach((operations, t) => {
    let at = starts[t];
    for (const k of operations) {
      cells.fill(levels[next], at, starts[t] + k);
      cells[starts[t] + k] = levels[count + next++];
      at = starts[t] + k + 1;
    }
  });
  return { cells, lengths, starts };
}

// The sum of the numbers before each one, and of all.
function sumsBefore(numbers) {
  const sums = new Uint32Array(numbers.length + 1);
  numbers.forEach((number, i) => (sums[i + 1] = sums[i] + number));
  return sums;
}

// What is computed as layers of bits: `layerOf` says of an operation, and of its place among all, which layer it is in.
function layersOf(computed, width, count, layerOf) {
  const layers = Array.from({ length: count }, (_, i) => ({ bits: new Uint8Array(computed.length * width), width, level: i + 1 }));
  let next = 0;
  computed.forEach((operations, t) => {
    for (const k of operations) layers[layerOf(k, next++)].bits[t * width + (k >> 3)] |= 128 >> (k & 7);
  });
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
  const computed = Array.from({ length: stages }, (_, t) => runsOf(runs, t));
  const before = sumsBefore(computed.map((operations) => operations.length));
  const byKind = layersOf(computed, widthR, 3, (k, at) => (codes[at] & 3) - 1);
  // Layers of implementations from the default one on; an operation knows which kind each of its own is of.
  const makeWays = () =>
    layersOf(computed, widthR, model.get("kinds").length, (k, at) => (operations[k][5] || [])[(codes[at] >> 2) - 1] || 0);
  let ways = null; // made when somebody looks at them
  const vain = { bits: bytesOf(model, "in_vain"), width: widthS, level: 2 };
  const isVain = (t, v) => vain.bits.length > 0 && t < stages && hasBit(vain, t, v);
  const U = memoryOf(computed, wordsOf(model, "U"));
  return {
    rows,
    stages,
    operations,
    values,
    computed,
    codes,
    R: byKind,
    byWay: () => (ways = ways || makeWays()),
    S: vain.bits.length ? [S, vain] : [S],
    U,
    comparedR: differenceOf(model, "compared_computed", widthR),
    comparedS: differenceOf(model, "compared_kept", widthS),
    // What the stage computes: 0, or the kind plus 4 times the number of the implementation.
    codeAt(t, k) {
      const at = t < stages ? computed[t].indexOf(k) : -1;
      return at < 0 ? 0 : codes[before[t] + at];
    },
    keptAt: (t, v) => t < stages && hasBit(S, t, v),
    inVainAt: isVain,
    mayKeep: (t, v) => (t < stages && hasBit(S, t, v)) || isVain(t, v),
    memoryAt: (t, k) => (t < stages && k < U.lengths[t] && k < n ? U.cells[U.starts[t] + k] : 0),
  };
}
