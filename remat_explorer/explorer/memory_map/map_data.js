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
  const again = kinds[data.kind[i]] === "recomputed" ? ", computed again" : "";
  const lives = data.rectanglesOf(value).length;
  return `${place}, ${time}${again}${lives > 1 ? `; ${lives} times in memory` : ""}${where}`;
}
