// Pointer and keys of the map.
const DRAWN_FROM = 4; // pixels from which a press is a range of time and no click

function listenToMapPointer({ root, frame, tip, data, space, said, hover, brush, select, zoomStages, zoomWhole, brushing, drawCursor, leave }) {
  const placeOf = (event) => pointerIn(frame, event);
  const stageAt = (x) => data().stageAt(Math.max(space().from, Math.min(space().to - 1, space().computation(x))));

  function showTip(i, event) {
    const { x: left, y: top, width, height } = pointerIn(root, event);
    tip.replaceChildren(element("b", "", nameIn(data(), data().value[i])), ` ${said(i)}`);
    tip.style.display = "block";
    const right = left + 14 + tip.offsetWidth > width;
    tip.style.left = `${Math.max(0, right ? left - tip.offsetWidth - 14 : left + 14)}px`;
    tip.style.top = `${top + 16 + tip.offsetHeight > height ? top - tip.offsetHeight - 8 : top + 16}px`;
  }

  frame.addEventListener("pointerdown", (event) => {
    const { x, y } = placeOf(event);
    if (event.button !== 0 || data().count === 0 || !space().holds(x, y)) return;
    frame.focus({ preventScroll: true });
    if (event.shiftKey || brushing()) {
      event.preventDefault(); // else the browser selects text
      brush({ from: x, to: x });
      frame.setPointerCapture(event.pointerId);
      return;
    }
    const i = rectangleAt(data(), space(), x, y);
    select(stageAt(x), i >= 0 && data().value[i] >= 0 ? data().value[i] : null);
  });
  frame.addEventListener("pointermove", (event) => {
    const { x, y } = placeOf(event);
    if (brush()) {
      brush({ ...brush(), to: Math.max(space().left, Math.min(space().left + space().width, x)) });
      return leave();
    }
    const i = data().count && space().holds(x, y) ? rectangleAt(data(), space(), x, y) : -1;
    hover(i);
    if (i >= 0) showTip(i, event);
    else tip.style.display = "none";
    return drawCursor();
  });
  frame.addEventListener("pointerup", () => {
    const drawn = brush();
    if (!drawn) return;
    brush(null);
    const [first, last] = [drawn.from, drawn.to].sort((a, b) => a - b).map(stageAt);
    if (Math.abs(drawn.to - drawn.from) >= DRAWN_FROM) zoomStages(first, last);
    drawCursor();
  });
  frame.addEventListener("pointercancel", () => {
    brush(null);
    drawCursor();
  });
  frame.addEventListener("pointerleave", () => brush() || leave());
  frame.addEventListener("dblclick", zoomWhole);
}

function listenToMapKeys({ model, frame, data, select, scale, zoomWhole, isZoomed, brush, brushing, setBrushing, drawCursor, leave, pin, recolour }) {
  // The value above or below the selected one among those in memory at the stage's peak.
  function climb(by) {
    const [stage, value] = [Math.min(model.get("stage"), data().stages - 1), model.get("value")];
    const alive = data().aliveAt(data().peakOf(stage)).filter((i) => data().value[i] >= 0);
    const at = alive.findIndex((i) => data().value[i] === value);
    const next = at < 0 ? (by > 0 ? 0 : alive.length - 1) : Math.max(0, Math.min(alive.length - 1, at + by));
    if (alive.length) select(stage, data().value[alive[next]]);
  }

  function escape() {
    if (brush()) brush(null);
    else if (brushing()) setBrushing(false);
    else if (isZoomed()) zoomWhole();
    else if (model.get("moment") !== null) pin(null);
    else return false;
    drawCursor();
    return true;
  }

  frame.addEventListener("keydown", (event) => {
    const stage = model.get("stage");
    const keys = {
      ArrowLeft: () => select(stage - 1, null),
      ArrowRight: () => select(stage + 1, null),
      ArrowUp: () => climb(1),
      ArrowDown: () => climb(-1),
      PageUp: () => select(stage - 10, null),
      PageDown: () => select(stage + 10, null),
      Home: () => select(0, null),
      End: () => select(data().stages - 1, null),
      "+": () => scale(0.5),
      "=": () => scale(0.5),
      "-": () => scale(2),
      Escape: escape,
      p: () => pin(model.get("moment") === stage ? null : stage),
      c: recolour,
      n: () => model.send({ found: 1 }),
      N: () => model.send({ found: -1 }),
      " ": () => {
        model.set("playing", !model.get("playing"));
        model.save_changes();
      },
    };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (data().count === 0 || keys[event.key]() === false) return;
    leave(); // what is pointed at is no longer what is asked for
    event.preventDefault();
    event.stopPropagation();
  });
}
