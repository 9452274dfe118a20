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

  function play() {
    model.set("playing", !model.get("playing"));
    model.save_changes();
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
      "+": () => scale(0.5),
      "=": () => scale(0.5),
      "-": () => scale(2),
      Escape: escape,
      n: () => model.send({ found: 1 }),
      N: () => model.send({ found: -1 }),
      " ": play,
    };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target !== root) return; // a button's own key
    if (data().rows === 0 || keys[event.key]() === false) return;
    event.preventDefault();
    event.stopPropagation();
  });
}
