// Which part of the matrices is on the screen, and which comes next.
const LEAST = 4; // stages or operations that + stops at

// The part that `zoom` names, clipped; S shows the values that its operations write.
function partOf(data, zoom) {
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
  part.operations = Int32Array.from({ length: operations.length && part.right - part.left + 1 }, (_, i) => part.left + i);
  const shown = [];
  values.forEach(([, , producer], v) => {
    if (producer < part.left || producer > part.right) return;
    part.column[v] = shown.length;
    shown.push(v);
  });
  part.values = Int32Array.from(shown);
  return part;
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

function zoomed(part, data, stage, operation, factor) {
  const stages = scaled(part.first, part.last, stage, data.rows, factor);
  return [...stages, ...scaled(part.left, part.right, operation, data.operations.length, factor)];
}

// The part under a rectangle from one cell to another of the same panel.
function brushed(panel, from, to) {
  const stages = [from.stage, to.stage].sort((a, b) => a - b);
  const [left, right] = [from.column, to.column].sort((a, b) => a - b);
  const operations = Array.from(panel.ids.slice(left, right + 1), panel.operation);
  return [...stages, operations.reduce((a, b) => Math.min(a, b)), operations.reduce((a, b) => Math.max(a, b))];
}
