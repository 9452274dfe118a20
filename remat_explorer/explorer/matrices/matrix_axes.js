// What stands around and over the cells: ticks, names where they fit, marks of the search, and the cursor.
const MARGIN = { left: 44, right: 6, top: 10, bottom: 32, names: 96 };
const NAMED = 9; // pixels that a column needs to carry its name
const AROUND_NAMES = 20; // pixels above a name and for the title below it
const FONT = "system-ui, sans-serif";
const NAME_FONT = `10px ${FONT}`;

function tickStep(count, pixels, apart) {
  const least = (count * apart) / Math.max(pixels, 1);
  let step = 1;
  for (const factor of [2, 2.5, 2, 2, 2.5, 2, 2, 2.5, 2]) {
    if (step >= least) break;
    step *= factor;
  }
  return Math.round(step);
}

const namesFit = (panel, width) => panel.ids.length > 0 && width / panel.ids.length >= NAMED;

// Room below the cells, the same for all panels: for the longest name where names fit, else for numbers.
function footOf(context, panels) {
  context.font = NAME_FONT;
  const named = panels.filter(([panel, width]) => namesFit(panel, width)).map(([panel]) => panel);
  const lengths = named.flatMap((panel) => Array.from(panel.ids, (id) => context.measureText(panel.name(id)).width));
  return Math.min(MARGIN.names, Math.max(MARGIN.bottom, Math.ceil(Math.max(0, ...lengths)) + AROUND_NAMES));
}

// A name is cut in its middle: both ends tell layers apart. "blocks.1…backward_4"
function fitted(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  const cut = (kept) => `${name.slice(0, kept >> 1)}…${name.slice(name.length - kept + (kept >> 1))}`;
  let kept = name.length - 1;
  while (kept > 1 && context.measureText(cut(kept)).width > width) kept -= 1;
  return cut(kept);
}

function upright(context, x, y, align, text) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(text, 0, 0);
  context.restore();
}

function axes(context, panel, part, palette, box, marked) {
  const count = panel.ids.length;
  const bottom = box.top + box.height;
  const middle = (column) => box.left + ((column + 0.5) * box.width) / count;
  context.font = `11px ${FONT}`;
  context.fillStyle = palette.ink;
  context.strokeStyle = palette.grid;
  context.lineWidth = 1;
  context.setLineDash([]);
  context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText(count ? panel.title : "no values", box.left + box.width / 2, box.foot);
  if (namesFit(panel, box.width)) {
    context.font = NAME_FONT;
    panel.ids.forEach((id, column) =>
      upright(context, middle(column), bottom + 4, "right", fitted(context, panel.name(id), box.foot - bottom - AROUND_NAMES)),
    );
  } else {
    context.textBaseline = "top";
    const step = tickStep(count, box.width, 34);
    panel.ids.forEach((id, column) => {
      if ((panel.folded ? column : id) % step !== 0) return;
      const last = box.left + box.width + MARGIN.right - context.measureText(id).width / 2;
      context.fillText(id, Math.min(middle(column), last), bottom + 4);
    });
  }
  context.font = `11px ${FONT}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const rows = part.rows.length;
  const step = tickStep(rows, box.height, 12.5);
  part.rows.forEach((t, row) => {
    if ((panel.folded ? row : t) % step === 0) context.fillText(t, box.left - 6, box.top + ((row + 0.5) * box.height) / rows);
  });
  upright(context, 5, box.top + box.height / 2, "center", "stage");
  if (marked.size) marks(context, panel, palette, box, marked);
}

// Columns of the operations that the search has found: a triangle at the top edge and a tint.
function marks(context, panel, palette, box, marked) {
  const width = box.width / panel.ids.length;
  panel.ids.forEach((id, column) => {
    if (!marked.has(panel.operation(id))) return;
    const middle = box.left + (column + 0.5) * width;
    context.beginPath();
    context.moveTo(middle - 4, box.top - 8);
    context.lineTo(middle + 4, box.top - 8);
    context.lineTo(middle, box.top - 1);
    context.closePath();
    context.fillStyle = palette.found;
    context.strokeStyle = palette.ink;
    context.fill();
    context.stroke();
  });
}

function tint(context, panel, palette, box, marked) {
  const width = box.width / panel.ids.length;
  context.fillStyle = palette.found;
  context.globalAlpha = 0.35;
  panel.ids.forEach((id, column) => {
    if (marked.has(panel.operation(id)))
      context.fillRect(box.left + (column + 0.5) * width - Math.max(width, 1.5) / 2, box.top, Math.max(width, 1.5), box.height);
  });
  context.globalAlpha = 1;
}

// Cells of U that nearly fill the budget, those beside each other in one outline: a full budget is a good one.
function outlines(context, panel, part, palette, box) {
  const [least, most] = panel.near();
  const [across, down] = [box.width / panel.ids.length, box.height / part.rows.length];
  context.setLineDash([]);
  function frame(from, to, row) {
    const [width, height] = [Math.max((to - from) * across, 3), Math.max(down, 3)];
    const [x, y] = [box.left + ((from + to) * across) / 2, box.top + (row + 0.5) * down];
    for (const [colour, thick] of [[palette.ground, 3], [palette.ink, 1]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: thick }); // seen on dark and on light cells
      context.strokeRect(x - width / 2, y - height / 2, width, height);
    }
  }
  if (panel.folded) return aroundCells(context, panel, part, palette, box, (level) => level >= least && level <= most);
  const [left, right] = [panel.ids[0], part.right + 1];
  for (let t = part.first; t <= part.last && t + 1 < panel.memory.starts.length; t++) {
    let begun = -1; // where the cells inside begin that go on
    const end = (at) => {
      if (begun >= 0 && begun < at) frame(begun - left, at - left, t - part.first);
      begun = -1;
    };
    let reached = left;
    eachLevel(panel.memory, t, (from, to, level) => {
      const [first, behind] = [Math.max(from, left), Math.min(to, right)];
      if (first >= behind) return;
      if (level < least || level > most) end(first);
      else if (begun < 0) begun = first;
      reached = behind;
    });
    end(reached);
  }
}

// The edge of all cells of a folded matrix whose level is `inside`: rows next to each other are mostly alike there.
function aroundCells(context, panel, part, palette, box, inside) {
  const [{ cells, width }, { rows }, { ids }] = [panel.folded, part, panel];
  const [across, down] = [box.width / ids.length, box.height / rows.length];
  const is = (row, column) =>
    row >= 0 && column >= 0 && row < rows.length && column < ids.length && inside(cells[panel.rowOf(rows[row]) * width + panel.places.at[ids[column]]]);
  const edge = new Path2D();
  function line(column, row, dx, dy) {
    edge.moveTo(box.left + column * across, box.top + row * down);
    edge.lineTo(box.left + (column + dx) * across, box.top + (row + dy) * down);
  }
  for (let row = 0; row < rows.length; row++)
    for (let column = 0; column < ids.length; column++) {
      if (!is(row, column)) continue;
      if (!is(row - 1, column)) line(column, row, 1, 0);
      if (!is(row + 1, column)) line(column, row + 1, 1, 0);
      if (!is(row, column - 1)) line(column, row, 0, 1);
      if (!is(row, column + 1)) line(column + 1, row, 0, 1);
    }
  for (const [colour, thick] of [[palette.ground, 3], [palette.ink, 1]]) {
    Object.assign(context, { strokeStyle: colour, lineWidth: thick });
    context.stroke(edge);
  }
}

// The row of a stage and the column of a value, outlined.
function band(context, panel, part, box, stage, value, colour, style) {
  const [rows, row, column] = [part.rows.length, part.rowOf(stage), panel.at(panel.idOf(value))];
  context.strokeStyle = colour;
  context.lineWidth = style.width;
  context.setLineDash(style.dash);
  if (row >= 0) {
    const height = Math.max(box.height / rows, 3);
    const middle = box.top + ((row + 0.5) * box.height) / rows;
    context.strokeRect(box.left, middle - height / 2, box.width, height);
  }
  if (column >= 0) {
    const width = Math.max(box.width / panel.ids.length, 3);
    const middle = box.left + ((column + 0.5) * box.width) / panel.ids.length;
    context.strokeRect(middle - width / 2, box.top, width, box.height);
  }
}
