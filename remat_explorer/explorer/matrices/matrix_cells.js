// The matrices as they were sent. S is bits, most significant first, rows padded to bytes: thousands of stages are drawn
// by merging the bytes of the rows that share a pixel. R and U stay what they were sent as, one entry a computation.
const bytesOf = (model, name) => bytesIn(model.get(name));

function wordsOf(model, name) {
  const raw = bytesOf(model, name);
  const aligned = raw.byteOffset % 2 === 0 ? raw : raw.slice();
  return new Uint16Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 2);
}

const hasBit = ({ bits, width }, t, c) => ((bits[t * width + (c >> 3)] >> (7 - (c & 7))) & 1) === 1;

// Says the memory of a stage from left to right, as `say(from, to, level)`: what is held before each computation, and
// what there is while it runs. Nothing comes after the last one.
function eachLevel({ starts, columns, held, during }, t, say) {
  for (let i = starts[t], from = 0; i < starts[t + 1]; i++) {
    const k = columns[i];
    if (k > from) say(from, k, held[i]);
    say(k, k + 1, during[i]);
    from = k + 1;
  }
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
  const [widthR, widthS] = [operations, values].map((things) => Math.ceil(things.length / 8));
  const codes = bytesOf(model, "R");
  const computations = rowLists(model.get("runs"));
  const stages = computations.starts.length - 1;
  const S = { ...bitsOfChanges(rowLists(model.get("S")), values.length), level: 1 };
  // The implementations of computations, from the default one on: an operation knows which kind each of its own is of.
  const makeWays = () => codes.map((code, i) => 1 + ((operations[computations.columns[i]][5] || [])[(code >> 2) - 1] || 0));
  let ways = null; // made when somebody looks at them
  const vain = { bits: bytesOf(model, "in_vain"), width: widthS, level: 2 };
  const isVain = (t, v) => vain.bits.length > 0 && t < stages && hasBit(vain, t, v);
  const levels = wordsOf(model, "U");
  const U = { ...computations, held: levels.subarray(0, codes.length), during: levels.subarray(codes.length) };
  return {
    rows,
    stages,
    operations,
    values,
    computations,
    codes,
    R: { ...computations, levels: codes.map((code) => code & 3) },
    byWay: () => ({ ...computations, levels: (ways = ways || makeWays()) }),
    S: vain.bits.length ? [S, vain] : [S],
    U,
    comparedR: differenceOf(model, "compared_computed", widthR),
    comparedS: differenceOf(model, "compared_kept", widthS),
    // What the stage computes: 0, or the kind plus 4 times the number of the implementation.
    codeAt(t, k) {
      const at = t < stages ? findColumn(computations, t, k) : -1;
      return at < 0 ? 0 : codes[at];
    },
    keptAt: (t, v) => t < stages && hasBit(S, t, v),
    inVainAt: isVain,
    mayKeep: (t, v) => (t < stages && hasBit(S, t, v)) || isVain(t, v),
    memoryAt(t, k) {
      const at = t < stages ? placeOf(computations, t, k) : -1;
      if (at < 0 || at === computations.starts[t + 1]) return 0;
      return computations.columns[at] === k ? U.during[at] : U.held[at];
    },
  };
}
