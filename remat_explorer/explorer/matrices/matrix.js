// R, S and U on canvases with one cursor. Hover never asks the kernel; clicks and keys set `stage`, `value`, `zoom`.
const CELLS = ["runs", "R", "S", "U", "compared_computed", "compared_kept", "in_vain", "rows", "operations", "values", "kinds"];
const PATIENCE = 1000; // milliseconds for the kernel to show what was let go
const SHOWN = ["blocks", "folded", "editing", "zoom", "found", "budget", "largest", "resident", "colouring"];

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
  const measure = () => views.forEach((view) => Object.assign(view, { across: view.frame.clientWidth, down: view.frame.clientHeight, room: view.picked.clientWidth }));
  const box = (view) => ({
    left: MARGIN.left,
    top: head,
    width: view.across - MARGIN.left - MARGIN.right,
    height: view.down - head - foot,
    foot: view.down,
  });
  const isOnScreen = () => root.isConnected && views[0].across > 0;

  function drawCursor() {
    const ratio = sharpness(root);
    const [stage, value, colours] = [model.get("stage"), model.get("value"), palette()];
    for (const view of views) {
      const context = view.overlay.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, view.overlay.width, view.overlay.height);
      const [panel, area] = [shown[view.name], box(view)];
      if (data.rows === 0) continue;
      band(context, panel, part, area, stage, value, colours.cursor, { width: 1.5, dash: [] });
      if (hovered) band(context, panel, part, area, hovered.stage, hovered.value, colours.ink, { width: 0.75, dash: [3, 3] });
      if (brush && brush.view === view) drawBrush(context, colours);
    }
    for (const view of views) {
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
    if (Object.keys(wanted).some((name) => wanted[name] !== folded[name])) [folding, folded] = [foldingOf(model, data), wanted];
    part = partOf(data, model.get("zoom"), folding);
    shown = panels(model, data, part);
    if (folding) shown = foldedPanels(shown, model, data, folding);
  }

  function draw() {
    const ratio = sharpness(root);
    arrange();
    const marked = new Set(model.get("found"));
    head = noFolding(model, data) ? MARGIN.top : MARGIN.top + STRIP;
    foot = data.rows ? footOf(views[0].cells.getContext("2d"), views.map((view) => [shown[view.name], box(view).width])) : MARGIN.bottom;
    for (const view of views) {
      const [panel, area, context] = [shown[view.name], box(view), view.cells.getContext("2d", { willReadFrequently: true })];
      const [width, height] = [(area.width + MARGIN.left + MARGIN.right) * ratio, area.foot * ratio].map(Math.round);
      for (const canvas of [view.cells, view.overlay])
        if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, width, height);
      if (data.rows === 0) continue;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      axes(context, panel, part, palette(), area, marked);
      paint(context, panel, part, palette(), area, ratio);
      if (panel.near && model.get("budget")) outlines(context, panel, part, palette(), area);
      if (folding) drawFolds(context, panel, part, folding, palette(), area);
      if (marked.size) tint(context, panel, palette(), area, marked);
    }
    folds.show(views, shown, box);
    for (const view of views) {
      const explained = data.rows ? legend(view.name, palette(), model, data.comparedR !== null, folding !== null) : "";
      if (view.explained !== explained) view.legend.innerHTML = view.explained = explained;
    }
    const [top, bottom] = [part.rows[0], part.rows[part.rows.length - 1]];
    views[0].subtitle.textContent = part.whole ? views[0].title : `computed in stages ${top}–${bottom} of ${data.rows}`;
    for (const view of views.slice(1)) view.subtitle.textContent = view.title;
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

  const setBrushing = (on) => buttons.brush.setAttribute("aria-pressed", String(on));
  const brushing = () => buttons.brush.getAttribute("aria-pressed") === "true";
  const scale = (factor) => zoomTo(zoomed(part, data, model.get("stage"), producer(), factor, folding));

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
  buttons.brush.addEventListener("click", () => setBrushing(!brushing()));
  buttons.in.addEventListener("click", () => scale(0.5));
  buttons.out.addEventListener("click", () => scale(2));
  buttons.whole.addEventListener("click", () => zoomTo([]));

  for (const name of CELLS) model.on(`change:${name}`, () => changed(true));
  for (const name of SHOWN) model.on(`change:${name}`, () => changed(false));
  model.on("change:frames", curve.load);
  model.on("change:dragged", drag);
  for (const name of ["stage", "value"]) model.on(`change:${name}`, () => waiting || drawCursor());
  const sizes = new ResizeObserver(() => redraw());
  for (const view of views) sizes.observe(view.frame);
  const themes = new MutationObserver(checkTheme);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  checkTheme();
  redraw();
  curve.load().then(drag);
  return () => {
    sizes.disconnect();
    redraw.end();
    themes.disconnect();
    editedNoMore();
  };
}

export default { render };
