// The trade-off curve, drawn on a canvas under a slider: what is proven, the best known, the points, and the budget.
const EDGE = { left: 44, right: 12, top: 9, bottom: 21 }; // pixels around the curve, at least
const BESIDE = 9; // pixels from the numbers to the axis: the handle's ring has room there
const PATIENCE = 1000; // milliseconds after which an answer to a position is no longer waited for
const REACH = 7; // pixels within which a press means a point
const BEYOND_TOP = 1.12; // times the dearest point that is shown

// The overhead of the best known schedule within a budget, or null.
function bestWithin(best, budget) {
  let found = null;
  for (const [peak, overhead] of best) if (peak <= budget) found = overhead;
  return found;
}

const formatOverhead = (percent) => `+${percent >= 9.95 ? percent.toFixed(0) : percent.toFixed(1)}\u2009%`;

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-curve";
  root.innerHTML = `<canvas aria-hidden="true"></canvas><input type="range" step="any" aria-label="Memory budget"><div class="remat-tip"></div>`;
  el.append(root);
  const [canvas, slider, tip] = root.children;

  let [width, height, ratio] = [0, 0, 1];
  let start = EDGE.left; // where the axis begins: right of the longest number
  let look = null; // font and colours, read when they may have changed: each reading has the page styled anew
  const low = () => model.get("low");
  const span = () => Math.max(model.get("high") - low(), 1);
  const x = (budget) => start + ((budget - low()) / span()) * (width - start - EDGE.right);
  const curve = () => ({ sent: [], others: [], best: [], bound: [], points: [], marks: {}, infeasible: 0, ...model.get("curve") });
  // Points may cost many times as much as the best ones, which they would press onto the axis.
  const top = (points, best) => {
    const dearest = Math.max(1, ...best.map(([, overhead]) => overhead));
    return BEYOND_TOP * Math.min(3 * dearest, Math.max(dearest, ...points.map(([, overhead]) => overhead)));
  };
  const scale = ({ points, best }) => {
    const most = top(points, best);
    return (overhead) => height - EDGE.bottom - (Math.max(0, Math.min(overhead, most)) / most) * (height - EDGE.top - EDGE.bottom);
  };

  function send(count) {
    model.set("value", Math.round(count));
    model.save_changes();
  }

  // Positions while dragging: one per frame at most, and none before the one that was sent is on the screen.
  let [wished, sentAt, frame] = [null, 0, 0];
  function follow() {
    frame = 0;
    const waiting = sentAt && performance.now() - sentAt < PATIENCE;
    if (wished === null || waiting) return;
    const count = Math.round(wished);
    wished = null;
    if (count === model.get("moving")) return;
    sentAt = performance.now();
    model.set("moving", count);
    model.save_changes();
    setTimeout(plan, PATIENCE + 50); // a kernel that restarted never answers
  }
  function plan() {
    if (!frame && wished !== null) frame = requestAnimationFrame(follow);
  }
  function answered() {
    sentAt = 0;
    root.dataset.answered = model.get("answered");
    plan();
  }

  function draw() {
    slider.min = low();
    slider.max = model.get("high");
    const shown = model.get("dragged") || model.get("value"); // the handle stays under the pointer, whatever comes
    slider.value = shown;
    slider.disabled = model.get("high") <= low();
    slider.setAttribute("aria-valuetext", formatBytes(shown));
    Object.assign(root.dataset, { value: shown, points: curve().points.length });
    paint(shown);
  }

  function getLook() {
    const style = getComputedStyle(root);
    const colours = ["ink", "ground", "axis", "shadow", "handle"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
    return { family: style.fontFamily, ...Object.fromEntries(colours) };
  }

  function paint(budget) {
    if (!width) return;
    const wide = Math.round(width * ratio);
    if (canvas.width !== wide) [canvas.width, canvas.height] = [wide, Math.round(height * ratio)];
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (slider.disabled) return;
    look ??= getLook();
    const colour = (name) => look[name];
    const [{ best, bound, points, marks, infeasible, sent, others, rate, colour: sentColour }, base] = [curve(), height - EDGE.bottom];
    const y = scale({ best, points });
    context.font = `11px ${look.family}`;
    const dearest = best.length ? formatOverhead(best[0][1]) : "";
    start = Math.max(EDGE.left, Math.ceil(context.measureText(dearest).width) + BESIDE + 2);
    shade(context, colour, bound, infeasible, y, base);
    line(context, colour("axis"), [[start, base + 0.5], [width - EDGE.right, base + 0.5]], 1);
    if (best.length) stairs(context, colour("ink"), best, y, sent.length ? [2, 3] : []);
    if (sent.length) {
      stairs(context, sentColour, sent, y);
      for (const [peak, overhead] of others) dot(context, x(peak), y(overhead), sentColour);
      for (const [peak, overhead] of sent) if (!best.some((one) => one[0] === peak && one[1] === overhead)) dot(context, x(peak), y(overhead), sentColour, true);
    }
    for (const [peak, overhead, proven, , strategy] of points) mark(context, marks[strategy], x(peak), y(overhead), proven, colour("ground"));
    const right = explain(context, colour, points, marks);
    if (sent.length) explainSent(context, sentColour, colour("ground"), rate, right);
    write(context, colour, budget, { best: sent.length ? sent : best, y, base });
  }

  // What a filled point is, and a hollow one, above the curve, where it is low.
  function explain(context, colour, points, marks) {
    Object.assign(context, { fillStyle: colour("ink"), textAlign: "right", textBaseline: "middle" });
    let right = width - EDGE.right;
    for (const [proven, words] of [[false, "best found"], [true, "proven best"]]) {
      const point = points.find((one) => one[2] === proven);
      if (!point) continue;
      context.fillStyle = colour("ink");
      context.fillText(words, right, EDGE.top + 3);
      right -= context.measureText(words).width + 9;
      mark(context, marks[point[4]], right, EDGE.top + 3, proven, colour("ground"));
      right -= 16;
    }
    return right;
  }

  // Left of that, how fast values travel where they may be sent.
  function explainSent(context, stroke, ground, rate, right) {
    const words = `sending at ${rate}`;
    Object.assign(context, { strokeStyle: ground, lineWidth: 4 });
    context.strokeText(words, right, EDGE.top + 3);
    context.fillStyle = stroke;
    context.fillText(words, right, EDGE.top + 3);
    const left = right - context.measureText(words).width - 6;
    line(context, stroke, [[left - 18, EDGE.top + 3], [left, EDGE.top + 3]], 1.5);
  }

  function line(context, stroke, places, thick, dash = []) {
    Object.assign(context, { strokeStyle: stroke, lineWidth: thick });
    context.setLineDash(dash);
    context.beginPath();
    places.forEach(([across, down], i) => (i ? context.lineTo(across, down) : context.moveTo(across, down)));
    context.stroke();
    context.setLineDash([]);
  }

  // Where it is proven that no schedule lies.
  function shade(context, colour, bound, infeasible, y, base) {
    context.fillStyle = colour("shadow");
    let from = low();
    if (infeasible > from) {
      context.fillRect(x(from), EDGE.top, x(infeasible) - x(from), base - EDGE.top);
      from = infeasible;
    }
    for (const [budget, overhead] of bound) {
      if (budget <= from) continue;
      const [left, right] = [x(from), x(Math.min(budget, model.get("high")))];
      context.fillRect(left, y(overhead), right - left, base - y(overhead));
      from = budget;
    }
    name(context, colour("ink"), bound, infeasible, y, base);
  }

  // What the shadow means, in the highest part of it that has room for the words.
  function name(context, ink, bound, infeasible, y, base) {
    const words = curve().sent.length ? "without sending, nothing lies here: proven" : "nothing lies here: proven";
    const room = context.measureText(words).width + 8;
    let [from, longest] = [Math.max(low(), infeasible), null];
    for (const [budget, overhead] of bound) {
      const [left, right, high] = [x(from), x(Math.min(budget, model.get("high"))), base - y(overhead)];
      if (budget > from && right - left >= room && high >= 14 && (!longest || high > longest.high)) longest = { left, right, high };
      from = Math.max(from, budget);
    }
    if (!longest) return;
    Object.assign(context, { fillStyle: ink, textAlign: "center", textBaseline: "middle" });
    context.fillText(words, (longest.left + longest.right) / 2, base - longest.high / 2);
  }

  function dot(context, across, down, stroke, filled = false) {
    context.beginPath();
    context.arc(across, down, 3, 0, 7);
    Object.assign(context, { fillStyle: stroke, strokeStyle: stroke, lineWidth: 1.2 });
    if (filled) context.fill();
    context.stroke();
  }

  function stairs(context, stroke, best, y, dash = []) {
    const places = [];
    best.forEach(([peak, overhead], i) => {
      if (i) places.push([x(peak), y(best[i - 1][1])]);
      places.push([x(peak), y(overhead)]);
    });
    places.push([width - EDGE.right, y(best[best.length - 1][1])]);
    line(context, stroke, places, 1.5, dash);
  }

  function mark(context, look, across, down, proven, ground) {
    if (!look) return;
    const [corners, stroke] = look;
    context.beginPath();
    corners.forEach(([dx, dy], i) => context[i ? "lineTo" : "moveTo"](across + 0.8 * dx, down + 0.8 * dy));
    context.closePath();
    Object.assign(context, { fillStyle: proven ? stroke : ground, strokeStyle: stroke, lineWidth: 1.2 });
    context.fill();
    context.stroke();
  }

  // The budget's handle, and the numbers that one wants to know: of the budget, of both ends, of the cost.
  function write(context, colour, budget, { best, y, base }) {
    const [at, overhead] = [x(budget), bestWithin(best, budget)];
    line(context, colour("handle"), [[at, EDGE.top - 4], [at, base]], 1.5);
    context.beginPath();
    context.arc(at, overhead === null ? base : y(overhead), 6, 0, 7);
    Object.assign(context, { fillStyle: colour("ground"), strokeStyle: colour("handle"), lineWidth: 3 });
    context.fill();
    context.stroke();
    Object.assign(context, { fillStyle: colour("ink"), textBaseline: "middle", textAlign: "right" });
    if (best.length && best[0][1] >= 0.05) context.fillText(formatOverhead(best[0][1]), start - BESIDE, Math.max(EDGE.top + 2, y(best[0][1])));
    if (at > start + 12) context.fillText("+0\u2009%", start - BESIDE, base - 3);
    const names = [];
    const name = (text, place, bold) => {
      context.font = `${bold ? "bold " : ""}11px ${look.family}`;
      const half = context.measureText(text).width / 2;
      const middle = Math.max(half + 2, Math.min(width - half - 2, place));
      if (names.some(([left, right]) => middle - half < right + 8 && middle + half > left - 8)) return;
      names.push([middle - half, middle + half]);
      context.textAlign = "center";
      context.textBaseline = "bottom";
      context.fillText(text, middle, height);
    };
    name(formatBytes(budget), at, true);
    name(`keep everything ${formatBytes(model.get("keep_all"))}`, x(model.get("keep_all")), false);
    if (model.get("known")) name(`least ${formatBytes(model.get("known"))}`, x(model.get("known")), false);
  }

  // The point at a place, or null.
  function pointAt(across, down) {
    const { best, points } = curve();
    const y = scale({ best, points });
    let [found, least] = [-1, REACH];
    points.forEach(([peak, overhead], i) => {
      const away = Math.hypot(x(peak) - across, y(overhead) - down);
      if (away <= least) [found, least] = [i, away];
    });
    return found < 0 ? null : found;
  }

  // The mark below the axis at a place: an end of what makes a difference.
  function endAt(across, down) {
    if (down < height - EDGE.bottom + 2) return null;
    return [model.get("known"), model.get("keep_all")].find((count) => count && Math.abs(x(count) - across) < 50) ?? null;
  }

  root.addEventListener("pointerdown", (event) => {
    const { x: across, y: down } = pointerIn(root, event);
    const [point, end] = [pointAt(across, down), endAt(across, down)];
    if (slider.disabled || event.button !== 0) return;
    event.preventDefault(); // the slider's own places have a margin of half a thumb
    slider.focus({ preventScroll: true });
    if (point !== null) model.send({ point });
    else if (end !== null) send(end);
    else {
      root.setPointerCapture(event.pointerId);
      drag(across);
    }
  });
  const budgetAt = (across) => low() + (Math.max(0, Math.min(1, (across - start) / (width - start - EDGE.right)))) * span();

  function drag(across) {
    tip.style.display = "none";
    wished = budgetAt(across);
    model.set("dragged", wished); // the page draws it
    draw();
    plan(); // and the kernel is told
  }

  function letGo() {
    wished = null; // the budget is set, which shows its schedule, too
    const count = model.get("dragged");
    model.set("dragged", 0);
    if (count) send(count);
  }

  root.addEventListener("pointermove", (event) => {
    const { x: across, y: down } = pointerIn(root, event);
    if (root.hasPointerCapture(event.pointerId)) return drag(across);
    const point = slider.disabled ? null : pointAt(across, down);
    tip.style.display = point === null ? "none" : "block";
    root.style.cursor = point === null && endAt(across, down) === null ? "ew-resize" : "pointer";
    if (point === null) return;
    tip.textContent = curve().points[point][3];
  });
  root.addEventListener("pointerup", (event) => root.hasPointerCapture(event.pointerId) && letGo());
  root.addEventListener("pointercancel", letGo);
  root.addEventListener("pointerleave", () => (tip.style.display = "none"));
  slider.addEventListener("input", () => {
    wished = Number(slider.value);
    model.set("dragged", wished);
    draw();
    plan();
  });
  slider.addEventListener("change", letGo);
  slider.addEventListener("keydown", (event) => {
    const [peaks, value] = [curve().best.map(([peak]) => peak), model.get("value")];
    const end = {
      Home: model.get("known") || low(),
      End: model.get("keep_all"),
      PageUp: peaks.find((peak) => peak > value),
      PageDown: peaks.findLast((peak) => peak < value),
    }[event.key];
    if (end === undefined) return;
    send(end);
    event.preventDefault();
  });

  model.on("change:answered", answered);
  for (const name of ["low", "high", "value", "known", "keep_all", "dragged"]) model.on(`change:${name}`, draw);
  model.on("change:curve", () => {
    look = null; // it comes with each theme
    draw();
  });
  const sizes = new ResizeObserver(() => {
    [width, height, ratio] = [root.clientWidth, root.clientHeight, sharpness(root)];
    canvas.width = 0;
    look = null;
    draw();
  });
  sizes.observe(root);
  return () => sizes.disconnect();
}

export default { render };
