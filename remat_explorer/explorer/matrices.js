// Pointer and keys of the matrices: select, hover, draw a rectangle to zoom.
const MOVED = 4; // pixels from which a press is a rectangle and no click
const NEAR_ENOUGH = 6; // pixels within which a pointer beside a filled cell means that cell

function listenToPointer({ root, views, tip, box, data, part, panel, select, zoomTo, brushing, drawCursor, hover, brush, edits }) {
  function placeOf(view, event) {
    const [{ x, y }, area] = [pointerIn(view.overlay, event), box(view)];
    return { x: x - area.left, y: y - area.top, area };
  }

  // The cell at a place, or the nearest one; null outside unless `nearest`.
  function cellAt(view, event, nearest = false) {
    const { x, y, area } = placeOf(view, event);
    const [{ rows }, { ids }] = [part(), panel(view)];
    if (data().rows === 0 || ids.length === 0) return null;
    if (!nearest && (x < 0 || y < 0 || x >= area.width || y >= area.height)) return null;
    const inside = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    const column = inside(x / area.width, ids.length);
    return { stage: rows[inside(y / area.height, rows.length)], column, id: ids[column] };
  }

  // The cell under the pointer, or if it is empty the nearest filled one close by.
  function targetAt(view, event) {
    const under = cellAt(view, event);
    const { isFilled, ids } = panel(view);
    if (!under || isFilled(under.stage, under.id)) return under;
    const { x, y, area } = placeOf(view, event);
    const { rows } = part();
    const [across, down] = [area.width / ids.length, area.height / rows.length];
    const range = (at, size, most) => [-NEAR_ENOUGH, NEAR_ENOUGH].map((by) => Math.max(0, Math.min(most, Math.floor((at + by) / size))));
    const away = (at, size, number) => Math.max(0, number * size - at, at - (number + 1) * size);
    const [[left, right], [top, bottom]] = [range(x, across, ids.length - 1), range(y, down, rows.length - 1)];
    let [found, least] = [under, NEAR_ENOUGH ** 2];
    for (let row = top; row <= bottom; row++)
      for (let column = left; column <= right; column++) {
        const distance = away(x, across, column) ** 2 + away(y, down, row) ** 2;
        if (distance > least || !isFilled(rows[row], ids[column])) continue;
        if (distance < least || found === under) found = { stage: rows[row], column, id: ids[column] };
        least = distance;
      }
    return found;
  }

  // Below the matrix that it speaks of, so that it covers no cells.
  function showTip(view, cell) {
    const { left: clientX, bottom: clientY, width } = view.frame.getBoundingClientRect();
    const corner = pointerIn(root, { clientX, clientY });
    const { text, tip: ofCopies, stages } = panel(view);
    const heading = element("b", "", ofCopies ? stages(cell.stage) : `stage ${cell.stage}`);
    tip.replaceChildren(heading, ` ${(ofCopies ?? text)(cell.stage, cell.id)}${view.name === "S" ? edits.hint(cell.stage, cell.id) : ""}`);
    tip.style.display = "block";
    tip.style.maxWidth = `${width / enlarged(root) - MARGIN.left}px`;
    tip.style.left = `${corner.x + MARGIN.left}px`;
    tip.style.top = `${corner.y}px`;
  }

  // Selects a cell; where it stands for those of several copies, that of the selected copy if it can be.
  function choose(view, cell) {
    const { resolve, valueOf } = panel(view);
    const { stage, id } = resolve ? resolve(cell.stage, cell.id) : cell;
    select(stage, valueOf(id));
  }

  function clear() {
    hover(null);
    tip.style.display = "none";
    drawCursor();
  }

  function drag(view, event) {
    const { x, y, area } = placeOf(view, event);
    const drawn = brush();
    drawn.x[1] = area.left + Math.max(0, Math.min(area.width, x));
    drawn.y[1] = area.top + Math.max(0, Math.min(area.height, y));
    drawn.to = cellAt(view, event, true);
    clear();
  }

  for (const view of views) {
    view.overlay.addEventListener("pointerdown", (event) => {
      const [cell, target] = [cellAt(view, event), targetAt(view, event)];
      root.focus({ preventScroll: true });
      if (!cell || event.button !== 0) return;
      const changes = edits.at(view) && !event.shiftKey && !brushing();
      if (changes) select(cell.stage, cell.id);
      else if (!event.shiftKey && !brushing()) return choose(view, target);
      event.preventDefault(); // else the browser selects text
      const { x, y, area } = placeOf(view, event);
      brush({ view, changes, from: cell, to: cell, x: [x + area.left, x + area.left], y: [y + area.top, y + area.top] });
      view.overlay.setPointerCapture(event.pointerId);
    });
    view.overlay.addEventListener("pointermove", (event) => {
      if (brush()) return drag(view, event);
      const cell = targetAt(view, event);
      hover(cell && { stage: cell.stage, value: panel(view).valueOf(cell.id) });
      if (cell) showTip(view, cell);
      else tip.style.display = "none";
      if (cell && event.buttons & 1) choose(view, cell);
      return drawCursor();
    });
    view.overlay.addEventListener("pointerup", () => {
      const drawn = brush();
      if (!drawn) return;
      brush(null);
      const moved = Math.max(Math.abs(drawn.x[1] - drawn.x[0]), Math.abs(drawn.y[1] - drawn.y[0]));
      if (drawn.changes) edits.end(view, drawn, moved < MOVED);
      else if (moved >= MOVED) zoomTo(brushed(panel(view), drawn.from, drawn.to));
      else choose(view, drawn.from);
      drawCursor();
    });
    view.overlay.addEventListener("pointercancel", () => {
      brush(null);
      drawCursor();
    });
    view.overlay.addEventListener("pointerleave", clear);
    view.overlay.addEventListener("dblclick", () => edits.at(view) || zoomTo([]));
  }
}

function listenToKeys({ model, root, data, part, select, zoomTo, scale, brushing, setBrushing, drawCursor, brush }) {
  function escape() {
    if (brush()) brush(null);
    else if (brushing()) setBrushing(false);
    else if (!part().whole) zoomTo([]);
    else return false;
    drawCursor();
    return true;
  }

  root.addEventListener("keydown", (event) => {
    const [stage, value] = [model.get("stage"), model.get("value")];
    const keys = {
      ArrowUp: () => select(stage - 1, value),
      ArrowDown: () => select(stage + 1, value),
      ArrowLeft: () => select(stage, value - 1),
      ArrowRight: () => select(stage, value + 1),
      PageUp: () => select(stage - 10, value),
      PageDown: () => select(stage + 10, value),
      Home: () => select(0, value),
      End: () => select(data().stages - 1, value),
      ...commonKeys(model, scale),
      Escape: escape,
    };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target !== root) return; // a button's own key
    if (data().rows === 0 || keys[event.key]() === false) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

// Editing S by hand. A page without a kernel has no `editing`, and then none of this is there.
const EDIT = "Keep and drop values by hand: click a cell of S, or drag over several; Enter at the cursor; u undoes.";

// What `listenToPointer` asks: whether a press in a view edits, and what to do when it ends.
function editsOf({ model, data, part, panel }) {
  const on = () => Boolean(model.get("editing"));
  const fixed = (value) => model.get("fixed").includes(value);
  const ask = (cells) => model.send({ cells });
  const flip = (stage, value) => ask({ stage, value });
  // A rectangle keeps or drops, whichever its first cell is not.
  function paint(view, from, to) {
    const [left, right] = [from.column, to.column].sort((a, b) => a - b);
    const values = Array.from(panel(view).ids.slice(left, right + 1));
    ask({ stages: [from.stage, to.stage], values, keep: !data().mayKeep(from.stage, from.id) });
  }
  function end(view, { from, to }, still) {
    if (still || (from.stage === to.stage && from.id === to.id)) flip(from.stage, from.id);
    else paint(view, from, to);
  }
  function hint(stage, value) {
    if (!on()) return "";
    if (fixed(value)) return " – cannot be changed: " + (data().keptAt(part().last, value) ? "it stays to the end" : "nothing reads it");
    if (stage <= data().values[value][2]) return ` – not computed before stage ${data().values[value][2]}`;
    return data().mayKeep(stage, value) ? " – click: drop it up to its next use" : " – click: keep it up to its next use";
  }
  return { at: (view) => on() && view.name === "S", flip, end, hint };
}

// The button over S, and the keys; returns what takes the keys away again.
function listenToEdits({ model, root, views }, edits) {
  if (model.get("editing") === undefined) return () => {};
  const view = views.find(({ name }) => name === "S");
  const button = element("button", "remat-edit", "Edit");
  button.type = "button";
  const group = element("span", "remat-zoom");
  group.append(button);
  view.picked.after(group);
  button.addEventListener("click", () => model.send({ edit: !model.get("editing") }));

  function show() {
    const [on, reason] = [model.get("editing"), model.get("no_editing")];
    button.setAttribute("aria-pressed", String(on));
    button.disabled = Boolean(reason);
    button.title = reason || EDIT;
    button.setAttribute("aria-label", reason ? `Edit by hand: ${reason}` : `Edit by hand. ${EDIT}`);
    root.dataset.editing = on;
  }

  root.addEventListener("keydown", (event) => {
    if (!model.get("editing") || event.target !== root || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      Enter: () => edits.flip(model.get("stage"), model.get("value")),
      u: () => model.send({ step: "undo" }),
      U: () => model.send({ step: "redo" }),
    };
    if (!(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });

  // Ctrl or Cmd with Z and Y are the schedule's while it is edited here, before the notebook takes them for its cells.
  function undoKeys(event) {
    if (!model.get("editing") || !(event.ctrlKey || event.metaKey) || event.altKey || !root.contains(event.target)) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    model.send({ step: key === "y" || event.shiftKey ? "redo" : "undo" });
    event.preventDefault();
    event.stopImmediatePropagation();
  }
  window.addEventListener("keydown", undoKeys, true);
  for (const name of ["editing", "no_editing"]) model.on(`change:${name}`, show);
  show();
  return () => window.removeEventListener("keydown", undoKeys, true);
}

// R, S and U on canvases with one cursor. Hover never asks the kernel; clicks and keys set `stage`, `value`, `zoom`.
const CELLS = ["runs", "R", "S", "U", "compared_computed", "compared_kept", "in_vain", "journeys", "rows", "operations", "values", "kinds"];
const PATIENCE = 1000; // milliseconds for the kernel to show what was let go
const SHOWN = ["blocks", "folded", "editing", "zoom", "found", "budget", "largest", "resident", "colouring"];
const COUNTS = 18; // pixels beside R for how much each stage computes again

function render({ model: kept, el }) {
  const { root, views, tip, live, buttons } = build();
  el.append(root);
  let frame = null; // of the trade-off curve, shown in place of what the kernel has sent
  const dragging = (name) => frame && (name === "budget" ? kept.get("dragged") || undefined : frame[name]);
  const model = { ...bound(kept), get: (name) => dragging(name) ?? kept.get(name) };
  const curve = frameStore(kept);
  let [data, folding, part, shown] = [null, null, null, null];
  let folded = { data: null }; // what `folding` was made of
  let hovered = null; // {stage, value}
  let brush = null; // {view, from, to, x, y}: the rectangle that is being drawn
  let [head, foot] = [MARGIN.top, MARGIN.bottom];
  const palette = () => model.get("palettes")[root.dataset.theme];
  const producer = () => (data.values[model.get("value")] || [0, 0, 0])[2];
  // Sizes are read when they change: between changes of the page, each reading would lay it out anew.
  let ratio = 1;
  function measure() {
    ratio = sharpness(root);
    for (const view of views) Object.assign(view, { across: view.frame.clientWidth, down: view.frame.clientHeight, room: view.picked.clientWidth });
  }
  const box = (view) => ({
    left: MARGIN.left,
    top: head,
    width: view.across - MARGIN.left - MARGIN.right - (view.name === "R" ? COUNTS : 0),
    height: view.down - head - foot,
    foot: view.down,
  });
  const isOnScreen = () => root.isConnected && views[0].across > 0;
  const seen = () => views.filter(({ across }) => across > 0); // beside another picture U is hidden

  function drawCursor() {
    const [stage, value, colours] = [model.get("stage"), model.get("value"), palette()];
    for (const view of seen()) {
      const context = view.overlay.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, view.overlay.width, view.overlay.height);
      const [panel, area] = [shown[view.name], box(view)];
      if (data.rows === 0) continue;
      band(context, panel, part, area, stage, value, { ofStage: colours.ink, ofValue: colours.cursor, width: 1.5, dash: [] });
      if (hovered) band(context, panel, part, area, hovered.stage, hovered.value, { ofStage: colours.ink, ofValue: colours.ink, width: 0.75, dash: [3, 3] });
      if (brush && brush.view === view) drawBrush(context, colours);
    }
    for (const view of model.get("compact") ? [] : views) {
      const [panel, context] = [shown[view.name], view.overlay.getContext("2d")];
      context.font = `12px ${FONT}`;
      const id = panel.idOf(value);
      const picked = stage < data.stages && id >= 0 && id < panel.count ? panel.picked(stage, id) : "";
      view.picked.title = picked;
      view.picked.textContent = fitted(context, picked, view.room);
    }
    const known = stage < data.stages && data.values[value];
    const spoken = (panel) => panel.text(stage, panel.idOf(value));
    live.textContent = known ? `Stage ${stage}. ${spoken(shown.R)}. ${spoken(shown.S)}. ${spoken(shown.U)}.` : "";
    Object.assign(root.dataset, { stage, value });
  }

  function drawBrush(context, colours) {
    const sides = [brush.x[0], brush.y[0], brush.x[1] - brush.x[0], brush.y[1] - brush.y[0]];
    context.setLineDash([]);
    context.globalAlpha = 0.15;
    context.fillStyle = context.strokeStyle = colours.ink;
    context.fillRect(...sides);
    context.globalAlpha = 1;
    context.strokeRect(...sides);
  }

  // Rows, columns and what cells mean, once the data, the zoom or what is folded has changed.
  function arrange() {
    const wanted = { data, blocks: model.get("blocks"), folded: String(model.get("folded") ?? []), editing: model.get("editing") };
    if (Object.keys(wanted).some((name) => wanted[name] !== folded[name])) {
      [folding, folded, hovered] = [foldingOf(model, data), wanted, null];
      tip.style.display = "none"; // it speaks of what was there
    }
    part = partOf(data, model.get("zoom"), folding);
    shown = panels(model, data, part);
    if (folding) shown = foldedPanels(shown, model, data, folding);
  }

  function draw() {
    arrange();
    const marked = new Set(model.get("found"));
    head = noFolding(model, data) ? MARGIN.top : MARGIN.top + STRIP;
    foot = data.rows ? footOf(views[0].cells.getContext("2d"), seen().map((view) => [shown[view.name], box(view).width])) : MARGIN.bottom;
    for (const view of seen()) {
      const [panel, area, context] = [shown[view.name], box(view), view.cells.getContext("2d", { willReadFrequently: true })];
      const [width, height] = [view.across * ratio, area.foot * ratio].map(Math.round);
      for (const canvas of [view.cells, view.overlay])
        if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, width, height);
      if (data.rows === 0) continue;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      axes(context, panel, part, palette(), area, marked, model.get("compact"));
      paint(context, panel, part, palette(), area, ratio);
      if (view.name === "R") drawAgain(context, model, panel, part, data, palette(), area);
      if (view.name !== "U" && !folding && !data.comparedS) drawJourneys(context, model, panel, part, view.name, palette(), area);
      if (panel.near && model.get("budget")) outlines(context, panel, part, palette(), area);
      if (folding) drawFolds(context, panel, part, folding, palette(), area);
      if (marked.size) tint(context, panel, palette(), area, marked);
    }
    folds.show(seen(), shown, box);
    for (const view of seen()) {
      const explained = data.rows ? legend(view.name, palette(), model, data.comparedR !== null, folding !== null) : "";
      if (view.explained !== explained) view.legend.innerHTML = view.explained = explained;
    }
    const [top, bottom] = [part.rows[0], part.rows[part.rows.length - 1]];
    const named = model.get("compact") && part.whole;
    for (const view of views) {
      view.subtitle.textContent = view.title;
      view.words.replaceChildren(...(named && data.rows ? colourWords(view.name, palette(), data.comparedR !== null, model.get("journeys")?.length > 0) : []));
      view.words.style.top = `${head}px`;
    }
    if (!part.whole) views[0].subtitle.textContent = `computed in stages ${top}–${bottom} of ${data.rows}`;
    buttons.whole.disabled = buttons.out.disabled = part.whole;
    Object.assign(root.dataset, { rows: data.rows, foot, zoom: model.get("zoom"), compared: Boolean(data.comparedR), colouring: model.get("colouring"), folded: folding ? folding.chosen : "" });
    drawCursor();
    root.dataset.drawn = Number(root.dataset.drawn || 0) + 1;
  }

  // Also where nothing is drawn yet: the cursor asks the panels, which have to be those of the data.
  function reread() {
    data = unpack(model);
    arrange();
  }

  let [unpacked, waiting] = [true, false];
  // Several traits arrive in one message: draw once, when all of them are there.
  function changed(cells) {
    if (cells && frame && kept.get("dragged")) return; // what is dragged is newer
    if (cells) frame = null;
    unpacked = unpacked && !cells;
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      if (!unpacked) reread();
      unpacked = true;
      if (isOnScreen()) draw();
      else redraw();
    });
  }

  function compress() {
    root.dataset.compact = Boolean(model.get("compact"));
    redraw();
  }

  function pointed() {
    const value = model.get("hovered");
    hovered = value >= 0 ? { stage: model.get("stage"), value } : null;
    drawCursor();
  }

  const redraw = whenSeen(root, () => {
    measure();
    if (isOnScreen()) draw();
    return isOnScreen();
  });

  // A budget that is dragged: its schedule is drawn at once. When it is let go, the kernel shows the same, or a better one.
  function drag() {
    const budget = kept.get("dragged");
    if (!budget && frame) setTimeout(() => kept.get("dragged") || changed(true), PATIENCE);
    const next = budget ? curve.within(budget) : null;
    if (next === null) return;
    if (next === frame) return redraw(); // what is near the budget, or above it
    if (data.rows > 0) views.forEach((view) => leaveBehind(view.cells));
    frame = next;
    reread();
    if (isOnScreen()) draw();
    else redraw();
  }

  function checkTheme() {
    const theme = themeOf(el);
    if (root.dataset.theme === theme) return;
    root.dataset.theme = theme;
    if (model.get("theme") !== theme) {
      model.set("theme", theme);
      model.save_changes();
    }
    redraw();
  }

  function select(stage, value) {
    model.set("stage", Math.max(0, Math.min(data.stages - 1, stage)));
    model.set("value", Math.max(0, Math.min(data.values.length - 1, value)));
    model.save_changes();
  }

  function zoomTo(zoom) {
    const whole = [0, data.rows - 1, 0, data.operations.length - 1];
    if (data.rows === 0) return;
    model.set("zoom", zoom.every((edge, i) => edge === whole[i]) ? [] : zoom);
    model.save_changes();
  }

  const scale = (factor) => zoomTo(zoomed(part, data, model.get("stage"), producer(), factor, folding));
  const { brushing, setBrushing } = listenToZoom(buttons, scale, () => zoomTo([]));

  const handlers = { model, root, views, tip, box, select, zoomTo, scale, brushing, setBrushing, drawCursor };
  handlers.data = () => data;
  handlers.part = () => part;
  handlers.panel = (view) => shown[view.name];
  handlers.hover = (cell) => (hovered = cell);
  handlers.brush = (drawn) => (drawn === undefined ? brush : (brush = drawn));
  reread();
  const folds = foldsOf(handlers);
  const edits = (handlers.edits = editsOf(handlers));
  listenToPointer(handlers);
  listenToKeys(handlers);
  const editedNoMore = listenToEdits(handlers, edits);

  for (const name of CELLS) model.on(`change:${name}`, () => changed(true));
  for (const name of SHOWN) model.on(`change:${name}`, () => changed(false));
  model.on("change:frames", curve.load);
  model.on("change:dragged", drag);
  model.on("change:compact", compress);
  model.on("change:hovered", pointed);
  for (const name of ["stage", "value"]) model.on(`change:${name}`, () => waiting || drawCursor());
  const sizes = new ResizeObserver(() => redraw());
  for (const view of views) sizes.observe(view.frame);
  const themes = new MutationObserver(checkTheme);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  checkTheme();
  compress();
  curve.load().then(drag);
  return () => {
    sizes.disconnect();
    redraw.end();
    themes.disconnect();
    editedNoMore();
  };
}

export default { render };
