// Which part of the matrices is on the screen, and which comes next.
const LEAST = 4; // stages or operations that + stops at

// The part that `zoom` names, clipped; S shows the values that its operations write. Where blocks are folded, the rows and
// columns of one copy stand for those of all.
function partOf(data, zoom, folding = null) {
  const { rows, operations, values } = data;
  const inside = (edge, count) => Math.max(0, Math.min(count - 1, edge));
  const whole = zoom.length !== 4 || rows === 0;
  const [first, last, left, right] = !whole ? zoom : [0, rows - 1, 0, operations.length - 1];
  const part = {
    first: inside(first, rows),
    last: inside(last, rows),
    left: inside(left, operations.length),
    right: inside(right, operations.length),
    whole,
    column: new Int32Array(values.length).fill(-1), // of each value
  };
  part.rows = shownBetween(part.first, part.last, rows, folding?.stages);
  part.operations = shownBetween(part.left, part.right, operations.length, folding?.operations);
  const place = (t) => (folding && t < folding.stages.first.length ? folding.stages.at[t] - folding.stages.at[part.rows[0]] : t - part.first);
  part.rowOf = (t) => (place(t) >= 0 && place(t) < part.rows.length ? place(t) : -1);
  const [shown, columns] = [[], new Set(folding ? part.operations : [])];
  values.forEach(([, , producer], v) => {
    if (folding ? folding.values.first[v] !== v || !columns.has(producer) : producer < part.left || producer > part.right) return;
    part.column[v] = shown.length;
    shown.push(v);
  });
  part.values = Int32Array.from(shown);
  return part;
}

// The place of a number among ascending ones, -1 where it is not there.
function placeIn(ids, id) {
  if (ids[id - ids[0]] === id) return id - ids[0]; // nothing is folded
  let [low, high] = [0, ids.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ids[middle] < id) low = middle + 1;
    else high = middle;
  }
  return ids[low] === id ? low : -1;
}

// Rows or columns from one to another; of folded ones those that stand for them.
function shownBetween(first, last, count, places) {
  if (!places) return Int32Array.from({ length: count && last - first + 1 }, (_, i) => first + i);
  const inside = places.shown.filter((id) => id >= first && id <= last);
  if (inside.length) return inside;
  const at = places.at.slice(first, last + 1); // all of them are folded away
  return places.shown.slice(Math.min(...at), Math.max(...at) + 1);
}

// A range `factor` times as long that keeps `position` where it is on the screen.
function scaled(first, last, position, count, factor) {
  const size = last - first + 1;
  const next = Math.max(Math.min(LEAST, count), Math.min(count, Math.round(size * factor)));
  const kept = position >= first && position <= last ? position + 0.5 : (first + last + 1) / 2;
  const start = Math.round(kept - ((kept - first) / size) * next);
  const inside = Math.max(0, Math.min(count - next, start));
  return [inside, inside + next - 1];
}

function zoomed(part, data, stage, operation, factor, folding = null) {
  if (!folding) {
    const stages = scaled(part.first, part.last, stage, data.rows, factor);
    return [...stages, ...scaled(part.left, part.right, operation, data.operations.length, factor)];
  }
  const along = ({ shown, at }, ids, position) =>
    scaled(at[ids[0]], at[ids[ids.length - 1]], at[position], shown.length, factor).map((place) => shown[place]);
  return [...along(folding.stages, part.rows, stage), ...along(folding.operations, part.operations, operation)];
}

// The part under a rectangle from one cell to another of the same panel.
function brushed(panel, from, to) {
  const stages = [from.stage, to.stage].sort((a, b) => a - b);
  const [left, right] = [from.column, to.column].sort((a, b) => a - b);
  const operations = Array.from(panel.ids.slice(left, right + 1), panel.operation);
  return [...stages, operations.reduce((a, b) => Math.min(a, b)), operations.reduce((a, b) => Math.max(a, b))];
}
