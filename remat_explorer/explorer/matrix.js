// R, S and U on canvases with one cursor. Hover never asks the kernel; a click or a key sets `stage` and `value`.
const MARGIN = { left: 44, right: 6, top: 4, bottom: 32 };

function luminance(colour) {
  const [r, g, b, a] = (colour.match(/[\d.]+/g) || []).map(Number);
  return a === 0 || r === undefined ? null : 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function themeOf(element) {
  const lab = document.body.dataset.jpThemeLight;
  if (lab !== undefined) return lab === "false" ? "dark" : "light";
  for (let node = element; node; node = node.parentElement) {
    const light = luminance(getComputedStyle(node).backgroundColor);
    if (light !== null) return light < 128 ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function tickStep(count, pixels, apart) {
  const least = (count * apart) / Math.max(pixels, 1);
  let step = 1;
  for (const factor of [2, 2.5, 2, 2, 2.5, 2, 2, 2.5, 2]) {
    if (step >= least) break;
    step *= factor;
  }
  return Math.round(step);
}

// The highest level under every device pixel: nothing thin disappears, and large cells keep sharp edges.
function raster(panel, rows, width, height, ratio) {
  const least = panel.sparse ? Math.round(2 * ratio) : 1;
  const levels = new Uint16Array(width * height);
  const gap = panel.columns * 9 < width && rows * 9 < height ? 1 : 0;
  for (let t = 0; t < rows; t++) {
    const top = Math.floor((t * height) / rows);
    const bottom = Math.min(height, Math.max(top + least, Math.floor(((t + 1) * height) / rows) - gap));
    for (let c = 0; c < panel.columns; c++) {
      const level = panel.level(t, c);
      if (level === 0) continue;
      const left = Math.floor((c * width) / panel.columns);
      const right = Math.min(width, Math.max(left + least, Math.floor(((c + 1) * width) / panel.columns) - gap));
      for (let y = top; y < bottom; y++)
        for (let x = left; x < right; x++) if (level > levels[y * width + x]) levels[y * width + x] = level;
    }
  }
  return levels;
}

function paint(context, panel, rows, palette, box, ratio) {
  const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  if (width < 1 || height < 1) return;
  const image = context.createImageData(width, height);
  const colours = panel.colours(palette);
  const known = new Map();
  raster(panel, rows, width, height, ratio).forEach((level, i) => {
    if (!known.has(level)) known.set(level, panel.colour(level, colours));
    const [r, g, b] = known.get(level);
    image.data.set([r, g, b, 255], 4 * i);
  });
  context.putImageData(image, Math.round(box.left * ratio), Math.round(box.top * ratio));
}

function axes(context, panel, rows, palette, box) {
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = palette.ink;
  context.strokeStyle = palette.grid;
  context.lineWidth = 1;
  context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
  context.textAlign = "center";
  context.textBaseline = "top";
  const across = tickStep(panel.columns, box.width, 34);
  for (let c = 0; c < panel.columns; c += across)
    context.fillText(c, box.left + ((c + 0.5) * box.width) / panel.columns, box.top + box.height + 4);
  context.fillText(panel.title, box.left + box.width / 2, box.top + box.height + 18);
  context.textAlign = "right";
  context.textBaseline = "middle";
  const down = tickStep(rows, box.height, 18);
  for (let t = 0; t < rows; t += down)
    context.fillText(t, box.left - 4, box.top + ((t + 0.5) * box.height) / rows);
  context.save();
  context.translate(7, box.top + box.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText("stage", 0, 0);
  context.restore();
}

function band(context, panel, rows, box, stage, value, colour, style) {
  const column = panel.columnOf(value);
  context.strokeStyle = colour;
  context.lineWidth = style.width;
  context.setLineDash(style.dash);
  if (stage >= 0 && stage < rows) {
    const height = Math.max(box.height / rows, 3);
    const middle = box.top + ((stage + 0.5) * box.height) / rows;
    context.strokeRect(box.left, middle - height / 2, box.width, height);
  }
  if (column >= 0 && column < panel.columns) {
    const width = Math.max(box.width / panel.columns, 3);
    const middle = box.left + ((column + 0.5) * box.width) / panel.columns;
    context.strokeRect(middle - width / 2, box.top, width, box.height);
  }
}

function legend(name, palette, model) {
  const swatch = (colour, text) => `<span><i style="background:${colour}"></i>${text}</span>`;
  if (name === "R")
    return swatch(palette.forward, "forward") + swatch(palette.backward, "backward") + swatch(palette.recompute, "recompute");
  if (name === "S") return swatch(palette.kept, "kept (checkpoint)");
  const bar = `<i class="scale" style="background:linear-gradient(to right,${palette.scale.join(",")})"></i>`;
  const ends = [model.get("resident"), model.get("largest")].map(formatBytes);
  const near = model.get("budget") ? swatch(palette.budget, "≥ 98 % of budget") : "";
  return `<span>${ends[0]} ${bar} ${ends[1]}</span>${near}`;
}

const TITLES = {
  R: ["R", "computed in the stage"],
  S: ["S", "kept into the stage"],
  U: ["U", "memory in use, predicted"],
};

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-matrices";
  root.tabIndex = 0;
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab keeps its hands off the arrow keys in here
  const tip = document.createElement("div");
  tip.className = "remat-tip";
  const views = Object.keys(TITLES).map((name) => {
    const figure = document.createElement("figure");
    figure.innerHTML =
      `<figcaption><span><b>${TITLES[name][0]}</b> ${TITLES[name][1]}</span><span class="remat-picked"></span></figcaption>` +
      `<div class="remat-canvas"><canvas></canvas><canvas></canvas></div><div class="remat-legend"></div>`;
    root.append(figure);
    const [cells, overlay] = figure.querySelectorAll("canvas");
    const [frame, legend, picked] = [".remat-canvas", ".remat-legend", ".remat-picked"].map((part) => figure.querySelector(part));
    return { name, cells, overlay, frame, legend, picked };
  });
  root.append(tip);
  el.append(root);

  let shown = panels(model);
  let hovered = null; // {stage, value}
  const palette = () => model.get("palettes")[root.dataset.theme];
  const rows = () => model.get("rows");
  const box = (view) => ({
    left: MARGIN.left,
    top: MARGIN.top,
    width: view.frame.clientWidth - MARGIN.left - MARGIN.right,
    height: view.frame.clientHeight - MARGIN.top - MARGIN.bottom,
  });

  function drawCursor() {
    const ratio = window.devicePixelRatio || 1;
    const [stage, value] = [model.get("stage"), model.get("value")];
    Object.assign(root.dataset, { stage, value });
    const name = model.get("values")[value];
    root.setAttribute("aria-label", `Schedule matrices, stage ${stage}, value ${name ? name[0] : "none"}`);
    for (const view of views) {
      const context = view.overlay.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, view.overlay.width, view.overlay.height);
      const colours = palette();
      const column = shown[view.name].columnOf(value);
      const inside = stage < rows() && column >= 0 && column < shown[view.name].columns;
      view.picked.textContent = inside ? shown[view.name].picked(stage, column) : "";
      if (rows() === 0) continue;
      band(context, shown[view.name], rows(), box(view), stage, value, colours.cursor, { width: 1.5, dash: [] });
      if (hovered)
        band(context, shown[view.name], rows(), box(view), hovered.stage, hovered.value, colours.ink, { width: 0.75, dash: [3, 3] });
    }
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    shown = panels(model);
    root.dataset.rows = rows();
    for (const view of views) {
      for (const canvas of [view.cells, view.overlay]) {
        canvas.width = Math.round(view.frame.clientWidth * ratio);
        canvas.height = Math.round(view.frame.clientHeight * ratio);
      }
      view.legend.innerHTML = rows() ? legend(view.name, palette(), model) : "";
      if (rows() === 0) continue;
      const context = view.cells.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      axes(context, shown[view.name], rows(), palette(), box(view));
      paint(context, shown[view.name], rows(), palette(), box(view), ratio);
    }
    drawCursor();
  }

  let waiting = false;
  function redraw(attempts = 10) {
    if (waiting) return;
    waiting = true; // several traits arrive in one message: draw once
    requestAnimationFrame(() => {
      waiting = false;
      if (!root.isConnected) return;
      if (views[0].frame.clientWidth > 0) draw();
      else if (attempts > 0) redraw(attempts - 1); // JupyterLab hides the page for a moment when its theme changes
    });
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
    const last = model.get("values").length - 1;
    model.set("stage", Math.max(0, Math.min(rows() - 1, stage)));
    model.set("value", Math.max(0, Math.min(last, value)));
    model.save_changes();
  }

  function cellAt(view, event) {
    const bounds = view.overlay.getBoundingClientRect();
    const area = box(view);
    const [x, y] = [event.clientX - bounds.left - area.left, event.clientY - bounds.top - area.top];
    if (rows() === 0 || x < 0 || y < 0 || x >= area.width || y >= area.height) return null;
    const panel = shown[view.name];
    return { stage: Math.floor((y * rows()) / area.height), column: Math.floor((x * panel.columns) / area.width) };
  }

  function showTip(view, cell, event) {
    const bounds = root.getBoundingClientRect();
    tip.innerHTML = "";
    const heading = document.createElement("b");
    heading.textContent = `stage ${cell.stage}`;
    tip.append(heading, ` ${shown[view.name].text(cell.stage, cell.column)}`);
    tip.style.display = "block";
    const left = event.clientX - bounds.left + 14;
    const top = event.clientY - bounds.top + 16;
    tip.style.left = `${Math.max(0, Math.min(left, bounds.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${top + tip.offsetHeight > bounds.height ? top - tip.offsetHeight - 26 : top}px`;
  }

  for (const view of views) {
    view.overlay.addEventListener("pointermove", (event) => {
      const cell = cellAt(view, event);
      hovered = cell && { stage: cell.stage, value: shown[view.name].valueOf(cell.column) };
      if (cell) showTip(view, cell, event);
      else tip.style.display = "none";
      if (cell && event.buttons & 1) select(hovered.stage, hovered.value);
      drawCursor();
    });
    view.overlay.addEventListener("pointerdown", (event) => {
      const cell = cellAt(view, event);
      root.focus({ preventScroll: true });
      if (cell) select(cell.stage, shown[view.name].valueOf(cell.column));
    });
    view.overlay.addEventListener("pointerleave", () => {
      hovered = null;
      tip.style.display = "none";
      drawCursor();
    });
  }

  root.addEventListener("keydown", (event) => {
    const [stage, value] = [model.get("stage"), model.get("value")];
    const moves = {
      ArrowUp: [stage - 1, value],
      ArrowDown: [stage + 1, value],
      ArrowLeft: [stage, value - 1],
      ArrowRight: [stage, value + 1],
      PageUp: [stage - 10, value],
      PageDown: [stage + 10, value],
      Home: [0, value],
      End: [rows() - 1, value],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    select(...moves[event.key]);
  });

  for (const name of ["R", "S", "U", "rows", "operations", "values", "budget", "largest", "resident"])
    model.on(`change:${name}`, () => redraw());
  for (const name of ["stage", "value"]) model.on(`change:${name}`, drawCursor);
  const sizes = new ResizeObserver(() => redraw());
  sizes.observe(root);
  const themes = new MutationObserver(checkTheme);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  checkTheme();
  draw();
  return () => {
    sizes.disconnect();
    themes.disconnect();
  };
}

export default { render };
