// Folded blocks: one copy's rows and columns stand for those of all copies. A cell whose row and column are of the same
// block says of how many copies the column is filled in the row of that very copy ("own"), or else only in the rows of
// other copies ("other"). A cell that has one of both outside says in how many copies it is filled.
const OWN = 4096; // added to the level of a cell that is filled in its own copy; else it is so only while others run
const SHADES = 255; // of a level, after its kind in the bits above: the share of the copies
const WHOLE = OWN + 255;

// The block and the copy of each of `count` things, and the one of the first copy that stands for it.
function placesOf(count, rows, chosen) {
  const places = {
    block: new Int32Array(count).fill(-1),
    copy: new Int32Array(count),
    first: Int32Array.from({ length: count }, (_, i) => i),
  };
  for (const number of chosen)
    rows[number].forEach((row, copy) =>
      row.forEach((id, i) => {
        places.block[id] = number;
        places.copy[id] = copy;
        places.first[id] = rows[number][0][i];
      }),
    );
  places.shown = Int32Array.from(places.first.keys()).filter((id) => places.first[id] === id);
  const at = new Int32Array(count);
  places.shown.forEach((id, i) => (at[id] = i));
  places.at = Int32Array.from(places.first, (id) => at[id]); // of each, its place among what is shown
  return places;
}

// The operation that each stage computes for the first time; null where the schedule does not advance like that.
function ownOperations({ computations: { starts, columns }, stages, operations }) {
  const own = Array.from({ length: stages }, (_, t) => (starts[t] < starts[t + 1] ? columns[starts[t + 1] - 1] : -1));
  const advances = own.every((k, t) => k > (t ? own[t - 1] : -1));
  return advances && own.length <= operations.length ? own : null;
}

// Why nothing can be folded, or "".
function noFolding(model, data) {
  if (!data.rows || !(model.get("blocks") ?? []).length) return "There are no repeated blocks.";
  if (data.comparedR) return "Two schedules are compared: everything is unfolded.";
  if (model.get("editing")) return "A schedule is edited by hand: everything is unfolded.";
  return ownOperations(data) ? "" : "The stages of this schedule do not belong to operations.";
}

// Where each operation, value and stage goes. Schedules of one graph mostly have the same places.
let lastPlaces = null;
function placesFor(blocks, chosen, own, operations, values) {
  const asked = { blocks, chosen: String(chosen), operations, values, stages: own.length };
  const isSame = (one) => Object.keys(asked).every((name) => one.asked[name] === asked[name]) && one.own.every((k, t) => k === own[t]);
  if (lastPlaces && isSame(lastPlaces)) return lastPlaces.places;
  const stageOf = new Int32Array(operations).fill(-1);
  own.forEach((k, t) => (stageOf[k] = t));
  const rows = {
    operations: blocks.map((block) => block.operations),
    values: blocks.map((block) => block.values),
    stages: blocks.map((block) => block.operations.map((row) => row.map((k) => stageOf[k]).filter((t) => t >= 0))),
  };
  const places = {
    blocks,
    chosen,
    rows, // of each block and copy, the ids of its operations, values and stages
    operations: placesOf(operations, rows.operations, chosen),
    values: placesOf(values, rows.values, chosen),
    stages: placesOf(own.length, rows.stages, chosen),
  };
  places.repeats = repeatsIn(places.operations);
  lastPlaces = { asked, own, places };
  return places;
}

// What is folded, and which rows and columns are shown; null where everything stands for itself.
function foldingOf(model, data) {
  const blocks = model.get("blocks") ?? [];
  const chosen = (model.get("folded") ?? []).filter((number) => number < blocks.length);
  if (chosen.length === 0 || noFolding(model, data)) return null;
  const own = ownOperations(data);
  const folding = { own, ...placesFor(blocks, chosen, own, data.operations.length, data.values.length) };
  folding.R = foldedComputations(data, folding, (k, code) => code & 3);
  folding.byWay = once(() => foldedComputations(data, folding, (k, code) => ((data.operations[k][5] || [])[(code >> 2) - 1] || 0) + 1));
  folding.S = foldedCheckpoints(data, folding);
  folding.U = once(() => foldedMemory(data, folding));
  return folding;
}

function once(make) {
  let made = null;
  return () => (made = made ?? make());
}

// Levels of a folded matrix out of the numbers of copies: its own, or else others.
function levelsOf(folding, columns, own, other, kinds) {
  const { shown: rows, block: ofStage } = folding.stages;
  const [width, cells] = [columns.shown.length, new Uint16Array(own.length)];
  for (let row = 0, i = 0; row < rows.length; row++)
    for (let column = 0; column < width; column++, i++) {
      if (own[i] === 0 && other[i] === 0) continue;
      const [block, across] = [columns.block[columns.shown[column]], ofStage[rows[row]]];
      const copies = block >= 0 ? folding.blocks[block].operations.length : across >= 0 ? folding.blocks[across].operations.length : 1;
      const share = Math.max(1, Math.min(SHADES, Math.floor((SHADES * (own[i] || other[i])) / copies)));
      cells[i] = (own[i] ? OWN : 0) + (kinds[i] << 8) + share;
    }
  return { cells, width };
}

// Whether a column's cell in a stage counts as the copy's own.
const isOwn = (stages, t, columns, id) => stages.block[t] < 0 || columns.block[id] < 0 || (stages.block[t] === columns.block[id] && stages.copy[t] === columns.copy[id]);

function foldedComputations({ computations: { starts, columns }, codes }, folding, kindOf) {
  const { stages, operations } = folding;
  const width = operations.shown.length;
  const size = stages.shown.length * width;
  const [own, other, kinds, othersKinds] = [new Uint16Array(size), new Uint16Array(size), new Uint8Array(size), new Uint8Array(size)];
  const met = new Uint8Array(stages.shown.length * operations.first.length); // whether a copy was counted for others
  for (let t = 0; t + 1 < starts.length; t++)
    for (let i = starts[t]; i < starts[t + 1]; i++) {
      const k = columns[i];
      const kind = kindOf(k, codes[i]);
      const cell = stages.at[t] * width + operations.at[k];
      if (isOwn(stages, t, operations, k)) {
        own[cell]++;
        kinds[cell] = Math.max(kinds[cell], kind);
      } else if (!met[stages.at[t] * operations.first.length + k]) {
        met[stages.at[t] * operations.first.length + k] = 1;
        other[cell]++;
        othersKinds[cell] = Math.max(othersKinds[cell], kind);
      }
    }
  own.forEach((count, i) => (kinds[i] = count ? kinds[i] : othersKinds[i]));
  return levelsOf(folding, operations, own, other, kinds);
}

function foldedCheckpoints({ S: [{ bits, width: bytes }] }, folding) {
  const { stages, values } = folding;
  const width = values.shown.length;
  const size = stages.shown.length * width;
  const [own, other] = [new Uint16Array(size), new Uint16Array(size)];
  const set = (t, v) => (bits[t * bytes + (v >> 3)] >> (7 - (v & 7))) & 1;
  const words = new Uint32Array(bits.buffer, 0, bits.length >> 2);
  const once = new Uint8Array(bytes); // kept in a stage of the row
  const onceWords = new Uint32Array(once.buffer);
  stages.shown.forEach((t, row) => {
    const block = stages.block[t];
    const members = membersOf(folding, "stages", t);
    once.fill(0);
    for (const stage of members)
      for (let i = 0, at = (stage * bytes) >> 2; i < onceWords.length; i++, at++) onceWords[i] |= words[at];
    for (let byte = 0; byte < bytes; byte++) {
      if (once[byte] === 0) continue;
      for (let v = 8 * byte, end = Math.min(v + 8, values.first.length); v < end; v++) {
        if (!((once[byte] >> (7 - (v & 7))) & 1)) continue;
        const cell = row * width + values.at[v];
        if (block < 0) own[cell]++;
        else if (values.block[v] < 0) for (const stage of members) own[cell] += set(stage, v);
        else if (values.block[v] === block && set(members[values.copy[v]], v)) own[cell]++;
        else other[cell]++;
      }
    }
  });
  return levelsOf(folding, values, own, other, new Uint8Array(size).fill(1));
}

// The largest memory of all copies' cells. What covers one copy says nothing more by covering the next ones, too.
function foldedMemory({ U }, folding) {
  const { stages, operations } = folding;
  const width = operations.shown.length;
  const [cells, { at }, { begins, ends }] = [new Uint16Array(stages.shown.length * width), operations, folding.repeats];
  for (let t = 0; t + 1 < U.starts.length; t++) {
    const row = stages.at[t] * width;
    eachLevel(U, t, (from, to, level) => {
      for (let k = from; k < to; k++) {
        if (ends[k] && begins[k] >= from) k = ends[k];
        if (k < to && level > cells[row + at[k]]) cells[row + at[k]] = level;
      }
    });
  }
  return { cells, width };
}

// Of operations that begin a copy with the columns of the copy right before it: where that one begins, and where the last
// such copy ends; 0 of all others.
function repeatsIn({ at, block, copy }) {
  const [begins, ends] = [new Int32Array(at.length), new Int32Array(at.length)];
  const starts = Array.from(at.keys()).filter((k) => k === 0 || block[k] !== block[k - 1] || copy[k] !== copy[k - 1]);
  for (let i = starts.length - 1; i > 0; i--) {
    const [before, start, end] = [starts[i - 1], starts[i], starts[i + 1] ?? at.length];
    if (end - start !== start - before || at.subarray(start, end).some((column, j) => column !== at[before + j])) continue;
    begins[start] = before;
    ends[start] = ends[end] || end;
  }
  return { begins, ends };
}

// The ids of all copies that a shown row or column stands for.
function membersOf(folding, kind, id) {
  const { block, first } = folding[kind];
  if (block[id] < 0) return [id];
  const rows = folding.rows[kind][block[id]];
  const place = rows[0].indexOf(first[id]);
  return rows.map((row) => row[place]);
}

// Of a cell: the copies of which it is filled, in their own rows and only in those of others; `pairs` has a stage and a
// column for each of them.
function copiesIn(folding, kind, t, id, isSet) {
  const [rows, columns] = [membersOf(folding, "stages", t), membersOf(folding, kind, id)];
  const [across, down] = [folding[kind].block[id], folding.stages.block[t]];
  const [own, other, pairs] = [[], [], []];
  const note = (list, copy, stage, column) => list.push(copy) && pairs.push([copy, stage, column]);
  if (across < 0) rows.forEach((stage, copy) => isSet(stage, id) && note(own, copy, stage, id));
  else
    columns.forEach((column, copy) => {
      const stage = down < 0 ? t : rows[copy];
      if ((down < 0 || down === across) && isSet(stage, column)) return note(own, copy, stage, column);
      const another = down < 0 ? undefined : rows.find((one) => isSet(one, column));
      if (another !== undefined) note(other, copy, another, column);
    });
  const block = folding.blocks[across >= 0 ? across : down];
  return { own, other, pairs, total: across >= 0 ? columns.length : rows.length, names: block ? block.short : [""] };
}

// Copies in words: "all 12", "8 of 12: not in 3, 5, 7 and 9" or "2 of 12: 0–1".
function copiesInWords(copies, total, names) {
  if (copies.length === total) return `all ${total}`;
  if (copies.length === 0) return `none of ${total}`;
  const missing = Array.from({ length: total }, (_, copy) => copy).filter((copy) => !copies.includes(copy));
  const few = missing.length < copies.length;
  return `${copies.length} of ${total}: ${few ? "not in " : ""}${ranges(few ? missing : copies, names)}`;
}

function ranges(copies, names) {
  const parts = [];
  for (let i = 0, j; i < copies.length; i = j) {
    for (j = i + 1; j < copies.length && copies[j] === copies[j - 1] + 1; ) j++;
    parts.push(j - i > 2 ? `${names[copies[i]]}–${names[copies[j - 1]]}` : copies.slice(i, j).map((copy) => names[copy]).join(", "));
  }
  return parts.length > 8 ? `${parts.slice(0, 7).join(", ")} and others` : parts.join(", ");
}

// The panels where blocks are folded: what a cell says of all copies, and how it looks.
const LARGE = 6; // pixels of a cell that has room for an outline
const FAINT = 0.4; // how strong the colour of a cell is that is filled in the fewest copies, or only while others run

// `panels` of what is shown, with the cells of all copies; `part` has the rows and columns.
function foldedPanels(plain, model, data, folding) {
  const tinted = (panel, kindColours) => (palette) => ({ empty: rgb(palette.empty), kinds: kindColours(palette) });
  function colour(level, { empty, kinds }) {
    if (level === 0) return empty;
    const share = (level & SHADES) / SHADES;
    const strength = level < OWN ? FAINT : FAINT + (1 - FAINT) * share;
    return ramp([empty, kinds[(level >> 8) & 15]], strength);
  }
  const both = (panel, kind, matrix, said, isSet) => ({
    ...panel,
    at: (id) => panel.at(folding[kind].first[id] ?? id),
    layers: null,
    folded: matrix,
    places: folding[kind],
    rowOf: (t) => folding.stages.at[t],
    section: (id) => sectionOf(folding.blocks[folding[kind].block[id]], panel.name(id)),
    rowSection: (t) => sectionOf(folding.blocks[folding.stages.block[t]], data.operations[folding.own[t]][0]),
    name: (id) => withoutCopy(panel.name(id), folding.blocks[folding[kind].block[id]]),
    differs: true, // whether a cell is the same in all copies
    isFilled: (t, id) => matrix.cells[folding.stages.at[t] * matrix.width + folding[kind].at[id]] > 0,
    stages: (t) => stagesSaid(folding, t),
    resolve: (t, id) => resolved(copiesIn(folding, kind, t, id, isSet), folding, kind, t, id, selectedCopy(model, folding, kind, id)),
    tip: (t, id) => said(t, id, copiesIn(folding, kind, t, id, isSet)),
  });
  const others = ({ other, total, names }, done) => (other.length ? `; ${done} only while other copies run, in ${copiesInWords(other, total, names)}` : "");
  const within = ({ own, total, names }) => (total > 1 ? ` in ${copiesInWords(own, total, names)}` : "");
  const kindsOfWays = (palette) => model.get("kinds").map((kind) => rgb(kind[palette === model.get("palettes").light ? 1 : 2]));
  const byWay = waysShown(model, data);
  const kindsOfR = (palette) => (byWay ? [rgb(palette.empty), ...kindsOfWays(palette)] : [palette.empty, palette.forward, palette.backward, palette.recompute].map(rgb));
  const title = (names, kind, id) => {
    const block = folding[kind].block[id];
    return block < 0 ? names : `${names}, one of ${folding.blocks[block].operations.length} alike in ${folding.blocks[block].label}`;
  };
  return {
    R: {
      ...both(plain.R, "operations", byWay ? folding.byWay() : folding.R, (t, k, found) => {
        const first = found.pairs.find(([, stage, id]) => (data.codeAt(stage, id) & 3) < 3);
        const done = found.own.length && first ? "computed for the first time" : "recomputed";
        const own = found.own.length ? `${done}${within(found)}` : "not computed in its own copy’s stage";
        const text = found.total === 1 || found.pairs.length ? `${own}${others(found, "recomputed")}` : "not computed in these stages";
        return `${title(plain.R.describe(k), "operations", k)}: ${found.pairs.length ? text : "not computed"}`;
      }, (t, k) => data.codeAt(t, k) > 0),
      colours: tinted(plain.R, kindsOfR),
      colour,
    },
    S: {
      ...both(plain.S, "values", folding.S, (t, v, found) => {
        const own = found.own.length ? `kept from the stage before${within(found)}` : "not kept for its own copy’s stage";
        const text = found.pairs.length ? `${own}${others(found, "kept")}` : "not in memory when the stage begins";
        return `${title(`${data.values[v][0]} (${formatBytes(data.values[v][1])})`, "values", v)}: ${text}`;
      }, data.keptAt),
      colours: tinted(plain.S, (palette) => [palette.empty, palette.kept].map(rgb)),
      colour,
    },
    U: {
      ...both(plain.U, "operations", folding.U(), (t, k) => `${title(plain.U.describe(k), "operations", k)}: ${memorySaid(t, k)}`, (t, k) => data.memoryAt(t, k) > 0),
      memory: null,
      differs: false,
    },
  };

  // Between which numbers of bytes the copies are, and where the largest is.
  function memorySaid(t, k) {
    const [rows, columns] = [membersOf(folding, "stages", t), membersOf(folding, "operations", k)];
    let [least, most, where] = [Infinity, 0, null];
    for (const stage of rows)
      for (const column of columns) {
        const level = data.memoryAt(stage, column);
        if (level === 0) continue;
        if (level > most) [most, where] = [level, stage];
        least = Math.min(least, level);
      }
    if (most === 0) return "the stages end before it";
    const bytes = (level) => formatBytes((level / 65535) * model.get("largest"));
    const budget = model.get("budget");
    const share = budget ? `, ${((100 * most * model.get("largest")) / 65535 / budget).toFixed(0)} % of the budget` : "";
    return bytes(least) === bytes(most) ? `${bytes(most)}${share}` : `at most ${bytes(most)}${share}, in stage ${where}; at least ${bytes(least)}`;
  }
}

// The block that a row or column stands in, or else the layer: "blocks.3", or "head".
function sectionOf(block, name) {
  const [first, second] = name.split(" ")[0].split(".");
  return block?.label ?? (/^\d+$/.test(second) ? `${first}.${second}` : first);
}

// What stands in a copy is called without that copy's name.
const withoutCopy = (name, block) => (block && name.startsWith(`${block.name}.`) ? name.slice(block.name.length + 1) : name);

// The copy that the cursor is in, of the block of a column.
function selectedCopy(model, folding, kind, id) {
  const [block, value, stage] = [folding[kind].block[id], model.get("value"), model.get("stage")];
  if (folding.values.block[value] >= 0 && (block < 0 || folding.values.block[value] === block)) return folding.values.copy[value];
  return folding.stages.block[stage] >= 0 ? folding.stages.copy[stage] : 0;
}

function stagesSaid(folding, t) {
  const block = folding.stages.block[t];
  return block < 0 ? `stage ${t}` : `stage ${t} and those of ${folding.blocks[block].operations.length - 1} copies`;
}

// The stage and the column that a click on a cell selects: of the copy that was selected, where it is filled there.
function resolved({ pairs }, folding, kind, t, id, copy) {
  const found = pairs.find(([one]) => one === copy) ?? pairs[0];
  if (found) return { stage: found[1], id: found[2] };
  const [rows, columns] = [membersOf(folding, "stages", t), membersOf(folding, kind, id)];
  return { stage: rows[copy] ?? rows[0], id: columns[copy] ?? columns[0] };
}

// Beside each other: columns, or rows, of one block, by its number or its name; those of another or of none part them.
function stretchesOf(ids, blockOf) {
  const found = [];
  ids.forEach((id, i) => {
    const [block, last] = [blockOf(id), found[found.length - 1]];
    if (block < 0) return;
    if (last && last.block === block && last.to === i - 1) last.to = i;
    else found.push({ block, from: i, to: i });
  });
  return found;
}

// Lines around the rows and columns of folded blocks, hatching over what is so only while other copies run, and outlines
// of cells in which copies differ.
function drawFolds(context, panel, part, folding, palette, box) {
  const [across, down] = [box.width / panel.ids.length, box.height / part.rows.length];
  const rows = stretchesOf(part.rows, (t) => folding.stages.block[t]);
  const columns = stretchesOf(panel.ids, (id) => panel.places.block[id]);
  context.save();
  context.setLineDash([]);
  if (panel.differs && Math.min(across, down) >= 3) drawDifferences(context, panel, part, folding, palette, box);
  Object.assign(context, { strokeStyle: palette.ink, lineWidth: 0.75, globalAlpha: 0.45 });
  context.beginPath();
  for (const { from, to } of columns)
    for (const edge of [from, to + 1]) {
      context.moveTo(box.left + edge * across, box.top);
      context.lineTo(box.left + edge * across, box.top + box.height);
    }
  for (const { from, to } of rows)
    for (const edge of [from, to + 1]) {
      context.moveTo(box.left, box.top + edge * down);
      context.lineTo(box.left + box.width, box.top + edge * down);
    }
  context.stroke();
  Object.assign(context, { lineWidth: 3, globalAlpha: 0.8, strokeStyle: palette.cursor });
  context.beginPath();
  for (const { from, to } of rows) {
    context.moveTo(box.left - 2.5, box.top + from * down + 1);
    context.lineTo(box.left - 2.5, box.top + (to + 1) * down - 1);
  }
  context.stroke();
  context.restore();
}

function drawDifferences(context, panel, part, folding, palette, box) {
  const [across, down] = [box.width / panel.ids.length, box.height / part.rows.length];
  const { cells, width } = panel.folded;
  const [hatched, outlined, edged] = [new Path2D(), new Path2D(), new Path2D()];
  part.rows.forEach((t, row) => {
    panel.ids.forEach((id, column) => {
      const level = cells[folding.stages.at[t] * width + panel.places.at[id]];
      if (level === 0) return;
      const [x, y] = [box.left + column * across, box.top + row * down];
      if (level < OWN) {
        hatched.moveTo(x, y + down);
        hatched.lineTo(x + across, y);
      } else if ((level & SHADES) < SHADES) {
        if (Math.min(across, down) >= LARGE) outlined.rect(x + 1, y + 1, across - 2, down - 2);
        else edged.rect(x, y, 1, down); // an outline would hide the colour
      }
    });
  });
  Object.assign(context, { strokeStyle: palette.ground, lineWidth: 1, globalAlpha: 0.9 });
  context.stroke(hatched);
  Object.assign(context, { strokeStyle: palette.ink, lineWidth: 1, globalAlpha: 0.75 });
  context.stroke(outlined);
  context.fillStyle = palette.ink;
  context.fill(edged);
}

// The cells of a folded R in which some copy is computed again, as `say(row, column)`.
function eachFoldedAgain({ folded: { cells, width }, places, ids, rowOf }, { rows }, say) {
  rows.forEach((t, row) => {
    for (let column = 0; column < ids.length; column++) {
      const level = cells[rowOf(t) * width + places.at[ids[column]]];
      if (level >= OWN && ((level >> 8) & 15) === AGAIN) say(row, column);
    }
  });
}
