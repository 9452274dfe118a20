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

// What the cells of R, S and U mean: their colours, their texts, and which value a column stands for.
const NEAR = 0.98; // share of the budget from which a cell of U is outlined
const ROUNDED = 1.00002; // memory arrives in 65,535 steps
const HERE = ["in neither schedule", "in both schedules", "only in the schedule on the screen", "only in the compared schedule"];

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function ramp(colours, share) {
  const at = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(at), colours.length - 2);
  const [from, to] = [colours[low], colours[low + 1]];
  return from.map((part, i) => Math.round(part + (to[i] - part) * (at - low)));
}

// Whether the colours of R tell implementations.
const waysShown = (model, data) => data.rows > 0 && !data.comparedR && model.get("colouring") === "implementation";

// What may be kept, though nothing reads it there.
const pale = ({ empty, kept }) => ramp([rgb(empty), rgb(kept)], 0.3);

function panels(model, data, part) {
  const { operations, values, stages, comparedR, comparedS } = data;
  const [byWay, kindColours] = [waysShown(model, data), model.get("kinds")];
  const memory = (level) => (level / 65535) * model.get("largest");
  const kinds = ["not computed in this stage", "computed for the first time", "computed for the first time", "recomputed"];
  const differences = (palette) => [palette.empty, palette.both, palette.only_first, palette.only_second].map(rgb);
  const describe = (k) => `${operations[k][0]} (operation ${k}, ${operations[k][1]}, ${operations[k][2]})`;
  const none = (t) => (t < stages ? "" : "; the schedule on the screen has no such stage");
  const operationOf = (v) => (values[v] ? values[v][2] : -1);
  const withOperations = {
    describe,
    title: "operation",
    ids: part.operations,
    at: (k) => (k >= part.operations[0] && k <= part.operations[part.operations.length - 1] ? placeIn(part.operations, k) : -1),
    name: (k) => operations[k][0],
    operation: (k) => k,
    valueOf: (k) => operations[k][3],
    idOf: operationOf,
    count: operations.length,
  };
  const inLayers = (layers) => (t, id) => layers.some((layer) => hasBit(layer, t, id));
  return {
    R: {
      ...withOperations,
      sparse: true, // single cells are drawn at least two pixels wide
      layers: comparedR,
      computations: byWay ? data.byWay() : data.R,
      isFilled: comparedR ? inLayers(comparedR) : (t, k) => data.codeAt(t, k) > 0,
      colours(palette) {
        if (comparedR) return differences(palette);
        const [light, { forward, backward, recompute }] = [palette === model.get("palettes").light, palette];
        const kinds = byWay ? kindColours.map((kind) => kind[light ? 1 : 2]) : [forward, backward, recompute];
        return [palette.empty, ...kinds].map(rgb);
      },
      colour: (level, colours) => colours[level],
      text(t, k) {
        const cell = data.codeAt(t, k);
        const way = operations[k][4].length && cell ? ` by its implementation ${operations[k][4][(cell >> 2) - 1]}` : "";
        const differs = comparedR ? levelIn(comparedR, t, k) : 0;
        if (differs || t >= stages) return `${describe(k)}: computed ${HERE[differs]}${way}${none(t)}`;
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
      count: values.length,
      layers: comparedS || data.S,
      isFilled: inLayers(comparedS || data.S),
      colours: (palette) => (comparedS ? differences(palette) : [rgb(palette.empty), rgb(palette.kept), pale(palette)]),
      colour: (level, colours) => colours[level],
      text(t, v) {
        const differs = comparedS ? levelIn(comparedS, t, v) : 0;
        const away = model.get("journeys")?.some(([value, , freed, fetched]) => value === v && t > freed && t <= fetched);
        let kept = away ? "on the host when the stage begins" : data.keptAt(t, v) ? "kept from the stage before" : "not in memory when the stage begins";
        if (data.inVainAt(t, v)) kept = "may be kept, but nothing reads it there, and the plan does not hold it";
        if (differs || t >= stages) kept = `kept ${HERE[differs]}${none(t)}`;
        return `${values[v][0]} (value ${v}, ${formatBytes(values[v][1])}): ${kept}`;
      },
      picked: (t, v) => `${formatBytes(values[v][1])} · ${values[v][0]}`,
    },
    U: {
      ...withOperations,
      memory: data.U,
      isFilled: (t, k) => data.memoryAt(t, k) > 0,
      colours: ({ empty, over, scale }) => ({ empty: rgb(empty), over: rgb(over), scale: scale.map(rgb) }),
      near: () => [NEAR, ROUNDED].map((share) => (65535 * share * model.get("budget")) / model.get("largest")),
      colour(level, colours) {
        if (level === 0) return colours.empty;
        const budget = model.get("budget");
        if (budget && memory(level) > ROUNDED * budget) return colours.over;
        const floor = model.get("resident");
        return ramp(colours.scale, (memory(level) - floor) / Math.max(model.get("largest") - floor, 1));
      },
      text(t, k) {
        const level = data.memoryAt(t, k);
        if (level === 0) return `${describe(k)}: the stage ends before it${none(t)}`;
        const budget = model.get("budget");
        const share = budget ? `, ${((100 * memory(level)) / budget).toFixed(0)} % of the budget` : "";
        const when = data.codeAt(t, k) ? "in use while it runs" : "held while others run (it does not)";
        return `${describe(k)}: ${formatBytes(memory(level))} ${when}${share}`;
      },
      picked: (t, k) => (data.memoryAt(t, k) ? formatBytes(memory(data.memoryAt(t, k))) : ""),
    },
  };
}

// Cells to pixels: once for each change of the matrices, the zoom or the colours.

// The pixels from which to which each of `count` cells reaches.
function edges(count, pixels, least, gap) {
  const [from, to] = [new Int32Array(count), new Int32Array(count)];
  for (let i = 0; i < count; i++) {
    from[i] = Math.floor((i * pixels) / count);
    to[i] = Math.min(pixels, Math.max(from[i] + least, Math.floor(((i + 1) * pixels) / count) - gap));
  }
  return { from, to };
}

// The bits of rows `first` to `end`, the last one not included, put over one another.
function mergedRows(bits, width, first, end) {
  const [from, to] = [first * width, Math.min(bits.length, end * width)];
  const merged = bits.slice(from, from + width);
  if (from >= to || width % 4 || (bits.byteOffset + from) % 4) {
    for (let start = from + width; start < to; start += width) for (let i = 0; i < width; i++) merged[i] |= bits[start + i];
    return merged;
  }
  const [words, all, count] = [new Uint32Array(merged.buffer), new Uint32Array(bits.buffer, bits.byteOffset + from, Math.max(0, to - from) >> 2), width >> 2];
  for (let start = count; start < all.length; start += count) for (let i = 0; i < count; i++) words[i] |= all[start + i];
  return merged;
}

// The levels of the rows `first` to `last`, put over one another into a line of pixels: the highest is seen.
function traceLayers(layers, at, across, first, last, line) {
  for (const { bits, width, level } of layers) {
    const merged = mergedRows(bits, width, first, last + 1);
    for (let byte = 0; byte < merged.length; byte++) {
      if (merged[byte] === 0) continue;
      for (let bit = 0; bit < 8; bit++) {
        const column = merged[byte] & (128 >> bit) ? at(8 * byte + bit) : -1;
        if (column >= 0) for (let x = across.from[column]; x < across.to[column]; x++) if (level > line[x]) line[x] = level;
      }
    }
  }
}

function traceComputations({ starts, columns, levels }, at, across, first, last, line) {
  const end = starts[Math.min(last + 1, starts.length - 1)];
  for (let i = starts[first]; i < end; i++) {
    const column = at(columns[i]);
    if (column >= 0) for (let x = across.from[column]; x < across.to[column]; x++) if (levels[i] > line[x]) line[x] = levels[i];
  }
}

// Memory of the columns `ids`, which follow one another; between two cells without a gap no pixel is left out.
function traceMemory(memory, ids, across, gap, first, last, line) {
  function fill(from, to, level) {
    for (let x = from; x < to; x++) if (level > line[x]) line[x] = level;
  }
  function trace(from, to, level) {
    const [left, right] = [Math.max(from - ids[0], 0), Math.min(to - ids[0], ids.length) - 1];
    if (left > right) return;
    if (gap) for (let column = left; column <= right; column++) fill(across.from[column], across.to[column], level);
    else fill(across.from[left], across.to[right], level);
  }
  for (let t = first; t <= last && t + 1 < memory.starts.length; t++) eachLevel(memory, t, trace);
}

// The levels of rows of a folded matrix.
function traceFolded({ folded: { cells, width }, places, ids }, rows, across, line) {
  for (const row of rows)
    for (let column = 0; column < ids.length; column++) {
      const level = cells[row * width + places.at[ids[column]]];
      if (level === 0) continue;
      for (let x = across.from[column]; x < across.to[column]; x++) if (level > line[x]) line[x] = level;
    }
}

// The highest level under every device pixel: nothing thin disappears, and large cells keep sharp edges.
function raster(panel, part, width, height, ratio) {
  const { ids } = panel;
  const rows = part.rows.length;
  const gap = ids.length * 9 < width && rows * 9 < height ? 1 : 0;
  const least = panel.sparse ? Math.round(2 * ratio) : 1;
  const [across, down] = [edges(ids.length, width, least, gap), edges(rows, height, least, gap)];
  const [levels, line] = [new Uint16Array(width * height), new Uint16Array(width)];
  for (let row = 0, next = 0, filled = 0; row < rows; row = next) {
    for (next = row + 1; next < rows && down.from[next] === down.from[row] && down.to[next] === down.to[row]; ) next++;
    const [first, last] = [part.first + row, part.first + next - 1];
    line.fill(0);
    if (panel.folded) traceFolded(panel, part.rows.subarray(row, next).map((t) => panel.rowOf(t)), across, line);
    else if (panel.layers) traceLayers(panel.layers, panel.at, across, first, last, line);
    else if (panel.computations) traceComputations(panel.computations, panel.at, across, first, last, line);
    else traceMemory(panel.memory, ids, across, gap, first, last, line);
    for (let y = down.from[row]; y < down.to[row]; y++)
      if (y >= filled) levels.set(line, y * width);
      else for (let x = 0, at = y * width; x < width; x++, at++) if (line[x] > levels[at]) levels[at] = line[x];
    filled = Math.max(filled, down.to[row]);
  }
  return levels;
}

// What is computed again, large enough to be found in any matrix, and beside it how much of it there is in each stage.
const LEAST_AGAIN = 6; // pixels
const AGAIN = 3; // the kind of such a computation

function drawAgain(context, model, panel, part, data, palette, box) {
  if (data.comparedR || waysShown(model, data)) return;
  const counts = new Uint32Array(part.rows.length);
  const [across, down] = [box.width / panel.ids.length, box.height / part.rows.length];
  const [wide, high] = [Math.max(across, LEAST_AGAIN), Math.max(down, LEAST_AGAIN)];
  context.fillStyle = palette.recompute;
  const cell = (row, column) => {
    const left = Math.max(box.left, Math.min(box.left + box.width - wide, box.left + (column + 0.5) * across - wide / 2));
    const top = Math.max(box.top, Math.min(box.top + box.height - high, box.top + (row + 0.5) * down - high / 2));
    if (across < LEAST_AGAIN || down < LEAST_AGAIN) context.fillRect(left, top, wide, high);
    counts[row] += 1;
  };
  if (panel.folded) eachFoldedAgain(panel, part, cell);
  else {
    const { starts, columns } = data.computations;
    part.rows.forEach((t, row) => {
      for (let i = starts[t]; i < (starts[t + 1] ?? 0); i++) {
        const column = (data.codes[i] & 3) === AGAIN ? panel.at(columns[i]) : -1;
        if (column >= 0) cell(row, column);
      }
    });
  }
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  const least = Math.max(down, 1.5);
  counts.forEach((count, row) => {
    if (count) context.fillRect(box.left + box.width + 4, box.top + (row + 0.5) * down - least / 2, 2 + (10 * count) / most, least);
  });
}

// In S what is kept on the host, not here; in R, at what writes it, where a value leaves and where it is back.
function drawJourneys(context, model, panel, part, name, palette, box) {
  const [across, down] = [box.width / panel.ids.length, box.height / part.rows.length];
  const place = (stage) => box.top + (stage - part.first) * down;
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.width, box.height);
  context.clip();
  context.fillStyle = palette.sent;
  for (const [value, sent, freed, fetched] of model.get("journeys") ?? []) {
    const column = panel.at(name === "R" ? model.get("values")[value][2] : value);
    if (column < 0) continue;
    const left = box.left + column * across;
    if (name === "S") context.fillRect(left, place(freed + 1), Math.max(across - 0.5, 1.5), (fetched - freed) * down);
    else {
      const [size, middle] = [Math.max(3, Math.min(5, across / 2)), left + across / 2];
      for (const [stage, up] of [[sent, 1], [fetched, -1]]) {
        const at = place(stage) + down / 2;
        context.beginPath();
        context.moveTo(middle - size, at + up * size);
        context.lineTo(middle + size, at + up * size);
        context.lineTo(middle, at - up * size);
        context.fill();
      }
    }
  }
  context.restore();
}

const known = new Uint32Array(65536); // the colours of the levels met so far; 0, which is transparent, is not yet

function paint(context, panel, part, palette, box, ratio) {
  const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  if (width < 1 || height < 1) return;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = panel.colours(palette);
  known.fill(0);
  const levels = raster(panel, part, width, height, ratio);
  for (let i = 0, level = -1, colour = 0; i < levels.length; i++) {
    if (levels[i] !== level) {
      level = levels[i];
      if (known[level] === 0) {
        const [r, g, b] = panel.colour(level, colours);
        known[level] = (255 << 24) | (b << 16) | (g << 8) | r;
      }
      colour = known[level];
    }
    pixels[i] = colour;
  }
  context.putImageData(image, Math.round(box.left * ratio), Math.round(box.top * ratio));
}

// The labels of repeated blocks over the columns: a click folds a block, or unfolds it; so do the keys f and F.
const STRIP = 18; // pixels above the cells for them

// Brings the buttons over a matrix up to date; those over R are in the order of the Tab key, others say the same again.
function showLabels(view, panel, area, { blocks, folded, blockOf, reason, toggle }) {
  const wanted = reason ? [] : stretchesOf(panel.ids, blockOf);
  while (view.labels.children.length > wanted.length) view.labels.lastChild.remove();
  wanted.forEach(({ block, from, to }, i) => {
    const button = view.labels.children[i] ?? view.labels.appendChild(element("button", "remat-fold"));
    const { label, operations } = blocks[block];
    const isFolded = folded.includes(block);
    const across = area.width / panel.ids.length;
    const name = `${label} × ${operations.length}`;
    Object.assign(button, { type: "button", tabIndex: view.name === "R" ? 0 : -1, onclick: () => toggle(block) });
    button.textContent = textFor(view.overlay.getContext("2d"), isFolded ? "▸" : "▾", name, operations.length, (to + 1 - from) * across);
    button.title = isFolded
      ? `One copy stands for ${operations.length}: ${label}. Click, or press f, to unfold them.`
      : `${operations.length} copies of ${operations[0].length} operations: ${label}. Click, or press f, to fold them.`;
    button.setAttribute("aria-label", `${isFolded ? "Unfold" : "Fold"} ${name}`);
    button.setAttribute("aria-expanded", String(!isFolded));
    button.dataset.block = block;
    Object.assign(button.style, { left: `${area.left + from * across}px`, width: `${(to + 1 - from) * across}px` });
  });
}

// As much as fits: name and number of copies, their number, or nothing but whether it is folded.
function textFor(context, mark, name, copies, room) {
  context.font = `11px ${FONT}`;
  const fits = (text) => context.measureText(text).width <= room - 9; // without its margins
  return [`${mark} ${name}`, `${mark} × ${copies}`].find(fits) ?? mark;
}

// The block of each operation or value, of all blocks whether folded or not.
function blocksOf(blocks, count, kind) {
  const block = new Int32Array(count).fill(-1);
  blocks.forEach((one, number) => one[kind].forEach((row) => row.forEach((id) => (block[id] = number))));
  return block;
}

// What folds and unfolds; `panel(view)` and `data` as for the pointer.
function foldsOf({ model, root, data }) {
  const blocks = () => model.get("blocks") ?? [];
  const folded = () => model.get("folded") ?? [];
  function choose(numbers) {
    model.set("folded", numbers.sort((a, b) => a - b));
    model.save_changes();
  }
  const toggle = (number) => choose(folded().includes(number) ? folded().filter((one) => one !== number) : [...folded(), number]);
  const all = () => choose(folded().length === blocks().length ? [] : blocks().map((_, i) => i));
  let known = { blocks: null };
  function places() {
    if (known.blocks !== blocks() || known.data !== data())
      known = {
        blocks: blocks(),
        data: data(),
        operations: blocksOf(blocks(), data().operations.length, "operations"),
        values: blocksOf(blocks(), data().values.length, "values"),
      };
    return known;
  }
  root.addEventListener("keydown", (event) => {
    if (!["f", "F"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (noFolding(model, data())) return;
    const block = places().values[model.get("value")] ?? -1;
    if (event.key === "F" || block < 0) all();
    else toggle(block);
    event.preventDefault();
    event.stopPropagation();
  });
  function show(views, panels, box) {
    const reason = noFolding(model, data());
    for (const view of views) {
      const at = places()[view.name === "S" ? "values" : "operations"];
      showLabels(view, panels[view.name], box(view), { blocks: blocks(), folded: folded(), blockOf: (id) => at[id], reason, toggle });
    }
  }
  return { show };
}
