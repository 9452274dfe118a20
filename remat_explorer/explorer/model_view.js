// The model's graph on five canvases, and the step beside it. A move of the stage or the cursor draws its own layer only; hover never asks the
// kernel; a click or a key sets `value`, and the page keys `stage`.
const LAYERS = ["ground", "stage", "lines", "cursor", "playhead"];

function legendOf(palette) {
  const swatch = (colour, text) => `<span><i style="background:${colour}"></i>${text}</span>`;
  const line = (style, text) => `<span><i class="line" style="border-top:2px ${style} ${palette.cursor}"></i>${text}</span>`;
  return (
    swatch(palette.forward, "forward") +
    swatch(palette.backward, "backward") +
    swatch(palette.recompute, "recomputed") +
    swatch(palette.kept, "kept into the stage") +
    `<span><i class="pale" style="background:${palette.forward}"></i>not in this stage</span>` +
    line("solid", "reads") +
    line("dashed", "read by") +
    `<span><i class="head">▸</i>highest until now</span>` +
    `<span title="The square root of the bytes written; each rail has its own scale.">height: bytes</span>`
  );
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-model";
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.innerHTML =
    `<div class="remat-model-caption"><span><b>Model</b> <span class="what"></span></span><span class="folds"></span><span class="picked"></span></div>` +
    `<div class="remat-model-body">` +
    `<div class="remat-model-canvas">${LAYERS.map((name) => `<canvas data-layer="${name}"></canvas>`).join("")}</div>` +
    `<div class="remat-step"></div></div><div class="remat-step-row"></div>` +
    `<div class="remat-model-legend"></div><div class="remat-model-tip"></div>`;
  el.append(root);
  const part = (name) => root.querySelector(name);
  const [frame, tip, what, picked] = [".remat-model-canvas", ".remat-model-tip", ".what", ".picked"].map(part);
  const canvases = Object.fromEntries(LAYERS.map((name) => [name, part(`[data-layer=${name}]`)]));

  let data = modelData(model);
  let bits = scheduleBits(model, data);
  let hovered = -1;
  const palette = () => model.get("palettes")[model.get("theme")];
  const scale = () => scaleOf(data, frame.clientWidth, frame.clientHeight);
  const [place, row] = [".remat-step", ".remat-step-row"].map(part);
  const step = stepView({ model, root, place, row, playhead: movePlayhead, seen: () => root.isConnected });

  function layer(name) {
    const ratio = sharpness(frame);
    const context = canvases[name].getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, frame.clientWidth, frame.clientHeight);
    return context;
  }

  function moveStage() {
    const t = model.get("stage");
    root.dataset.stage = t;
    const context = layer("stage");
    if (data && bits && t < bits.stages) drawStage(context, data, bits, scale(), palette(), t, step.reached);
    say();
  }

  function movePlayhead(from, to, share, computations) {
    if (data && frame.clientWidth > 0) drawPlayhead(layer("playhead"), data, scale(), palette(), computations, from, to, share);
  }

  function moveCursor() {
    root.dataset.value = model.get("value");
    const context = layer("cursor");
    if (data) drawCursor(context, data, scale(), palette(), { value: model.get("value"), found: model.get("found"), hovered });
    say();
  }

  function say() {
    const chosen = data && data.values[model.get("value")];
    what.textContent = data ? "forward above, backward below; arrow keys follow the order of execution" : "";
    picked.textContent = chosen ? `${formatBytes(chosen[1])} · ${chosen[0]}` : "";
    root.setAttribute(
      "aria-label",
      `Model graph, stage ${model.get("stage")}, value ${chosen ? chosen[0] : "none"}. Left and right: the operation before ` +
        "and after; up and down: the other rail; Page Up and Page Down: the stage; comma and full stop: the computation " +
        "before and after; f: fold or unfold the block of the selected value, F: all; Space: play.",
    );
  }

  function draw() {
    const ratio = sharpness(frame);
    root.dataset.operations = data ? data.operations.length : 0;
    root.dataset.theme = model.get("theme");
    showFolds();
    for (const canvas of Object.values(canvases)) {
      canvas.width = Math.round(frame.clientWidth * ratio);
      canvas.height = Math.round(frame.clientHeight * ratio);
    }
    part(".remat-model-legend").innerHTML = data ? legendOf(palette()) : "";
    if (data) {
      drawGround(layer("ground"), data, scale(), palette());
      drawArcsAndNames(layer("lines"), data, scale(), palette());
    }
    moveStage();
    moveCursor();
    step.redraw();
  }

  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true; // several traits arrive in one message: draw once
    requestAnimationFrame(() => {
      waiting = false;
      if (root.isConnected && frame.clientWidth > 0) draw();
    });
  }

  function fold(numbers) {
    model.set("folded", numbers.sort((a, b) => a - b));
    model.save_changes();
  }
  const folded = () => model.get("folded") ?? [];
  const toggle = (number) => fold(folded().includes(number) ? folded().filter((one) => one !== number) : [...folded(), number]);

  // A button for each repeated block, beside the caption.
  function showFolds() {
    const place = part(".folds");
    const blocks = data?.blocks ?? [];
    while (place.children.length > blocks.length) place.lastChild.remove();
    blocks.forEach(([label, copies], number) => {
      const button = place.children[number] ?? place.appendChild(document.createElement("button"));
      const isFolded = data.folded.includes(number);
      Object.assign(button, { type: "button", onclick: () => toggle(number), textContent: `${isFolded ? "▸" : "▾"} ${label} × ${copies}` });
      button.setAttribute("aria-label", `${isFolded ? "Unfold" : "Fold"} ${label} × ${copies}`);
      button.setAttribute("aria-expanded", String(!isFolded));
    });
    root.dataset.folded = data?.folded ?? "";
  }

  function operationAt(event) {
    if (!data) return -1;
    const { x, y } = pointerIn(frame, event);
    const column = Math.floor((x - BESIDE) / scale().column);
    const row = Math.floor(y / scale().line);
    if (column < 0 || column >= data.columns || row < 0 || row >= data.rows) return -1;
    const rail = y / scale().line - row < (data.lanes[1] + data.lanes[2]) / 2 ? 0 : 1;
    return data.places[(2 * row + rail) * data.columns + column];
  }

  function select(k) {
    const writes = k >= 0 ? data.operations[k][6] : [];
    if (writes.length === 0 || writes.includes(model.get("value"))) return;
    model.set("value", writes[0]);
    model.save_changes();
  }

  function showTip(event) {
    const { x, y, width, height } = pointerIn(root, event);
    tip.replaceChildren(
      ...describeOperation(data, bits, model.get("stage"), hovered).map((text, i) => {
        const line = document.createElement(i ? "div" : "b");
        line.textContent = text;
        return line;
      }),
    );
    tip.style.display = "block";
    const [left, top] = [x + 14, y + 16];
    tip.style.left = `${Math.max(0, Math.min(left, width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${top + tip.offsetHeight > height ? top - tip.offsetHeight - 26 : top}px`;
  }

  function hover(k, event) {
    if (k >= 0) {
      const before = hovered;
      hovered = k;
      showTip(event);
      if (before === k) return;
    } else {
      tip.style.display = "none";
      if (hovered === -1) return;
      hovered = -1;
    }
    moveCursor();
  }
  frame.addEventListener("pointermove", (event) => hover(operationAt(event), event));
  frame.addEventListener("pointerleave", (event) => hover(-1, event));
  frame.addEventListener("pointerdown", (event) => {
    root.focus({ preventScroll: true });
    const k = operationAt(event);
    const node = k >= 0 ? data.blockOf.get(data.standsFor[k]) : undefined;
    if (node === undefined) select(k);
    else toggle(node);
  });

  const PAGES = { PageUp: -1, PageDown: 1 };
  const STEPS = { ",": -1, ".": 1 };
  root.addEventListener("keydown", (event) => {
    const ways = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", " "];
    const known = event.key in PAGES || event.key in STEPS || event.key === "f" || event.key === "F" || (event.target === root && ways.includes(event.key));
    if (!data || !known || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "f" || event.key === "F") {
      const all = data.blocks.map((_, number) => number);
      const chosen = data.values[model.get("value")];
      const own = chosen ? all.filter((number) => data.blocks[number][2].includes(chosen[2]) || data.blocks[number][3].includes(chosen[2])) : [];
      if (event.key === "f" && own.length) toggle(own[0]);
      else fold(folded().length === all.length ? [] : all);
    } else if (event.key in STEPS) step.move(STEPS[event.key]);
    else if (event.key === " ") {
      model.set("playing", !model.get("playing"));
      model.save_changes();
    } else if (event.key in PAGES) {
      model.set("stage", Math.max(0, Math.min(model.get("stages") - 1, model.get("stage") + PAGES[event.key])));
      model.save_changes();
    } else {
      const chosen = data.values[model.get("value")];
      select(neighbour(data, chosen ? chosen[2] : 0, event.key));
    }
  });

  const renew = () => {
    data = modelData(model);
    bits = scheduleBits(model, data);
    hovered = -1;
    tip.style.display = "none";
    step.renew(data);
    redraw();
  };
  let renewing = false;
  for (const name of ["picture", "boxes", "R", "S", "stages", "steps", "plain"])
    model.on(`change:${name}`, () => {
      if (renewing) return;
      renewing = true; // after the last of the traits that one message brings
      queueMicrotask(() => {
        renewing = false;
        renew();
      });
    });
  model.on("change:theme", redraw);
  for (const name of ["stage", "computation"]) model.on(`change:${name}`, moveStage);
  for (const name of ["value", "found"]) model.on(`change:${name}`, moveCursor);
  const sizes = new ResizeObserver(redraw);
  sizes.observe(root);
  step.renew(data);
  draw();
  return () => sizes.disconnect();
}

export default { render };
