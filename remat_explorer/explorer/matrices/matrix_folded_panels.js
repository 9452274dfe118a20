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

// Beside each other: columns, or rows, of one block; those of another or of none part them.
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
