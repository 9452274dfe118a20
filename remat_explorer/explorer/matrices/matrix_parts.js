// The elements of the widget, and the theme of the page that they stand in.
const TITLES = {
  R: ["R", "computed in the stage", "What each stage computes (rows are stages, columns operations)."],
  S: ["S", "kept into the stage", "The values that are kept in memory from one stage into the next (columns are values)."],
  U: ["U", "memory, predicted", "The predicted memory in use while each operation of a stage runs."],
};
const KEYS =
  "Click or arrow keys: select a stage and a value; Page up, Page down, Home, End: further; Space: play the stages; " +
  "Shift and drag, + and -: zoom; Escape or double click: show the whole; n and N: next and previous found operation; " +
  "f: fold or unfold the block of the selected value, F: all blocks.";
const BUTTONS = {
  brush: ["Zoom", "Drag a rectangle over the cells to zoom in, also without holding Shift."],
  out: ["−", "Zoom out around the cursor (key -)."],
  in: ["+", "Zoom in around the cursor (key +)."],
  whole: ["All", "Show every stage and operation (Escape, or a double click on the cells)."],
};

function element(kind, name, text = "") {
  const made = document.createElement(kind);
  made.className = name;
  made.textContent = text;
  return made;
}

function build() {
  const root = element("div", "remat-matrices");
  root.tabIndex = 0;
  root.setAttribute("role", "application");
  root.setAttribute("aria-roledescription", "schedule matrices");
  root.setAttribute("aria-label", `Matrices R, S and U of the schedule. ${KEYS}`);
  const buttons = {};
  const views = Object.entries(TITLES).map(([name, [letter, title, hint]]) => {
    const figure = document.createElement("figure");
    const [caption, subtitle, picked] = [document.createElement("figcaption"), element("span", ""), element("span", "remat-picked")];
    const heading = element("span", "");
    heading.append(element("b", "", letter), " ", subtitle);
    caption.append(heading, picked);
    caption.title = `${hint}\n${KEYS}`;
    const frame = element("div", "remat-canvas");
    const [cells, overlay] = [document.createElement("canvas"), document.createElement("canvas")];
    const labels = element("div", "remat-folds");
    frame.append(cells, overlay, labels);
    const legend = element("div", "remat-legend");
    figure.append(caption, frame, legend);
    root.append(figure);
    if (name === "U") caption.append(zoomButtons(buttons));
    return { name, title, cells, overlay, frame, labels, legend, picked, subtitle };
  });
  const [tip, live] = [element("div", "remat-tip"), element("div", "remat-live")];
  live.setAttribute("role", "status");
  live.setAttribute("aria-live", "polite");
  root.append(tip, live);
  return { root, views, tip, live, buttons };
}

function zoomButtons(buttons) {
  const group = element("span", "remat-zoom");
  for (const [name, [text, hint]] of Object.entries(BUTTONS)) {
    const button = (buttons[name] = element("button", "", text));
    button.type = "button";
    button.title = hint;
    button.setAttribute("aria-label", hint);
    group.append(button);
  }
  buttons.brush.setAttribute("aria-pressed", "false");
  return group;
}

// What shades and hatching mean where one copy of a block stands for all.
function foldedLegend(name, palette) {
  if (name === "U") return "<span>the most of all copies</span>";
  const [few, all] = name === "R" ? [palette.recompute, palette.recompute] : [palette.kept, palette.kept];
  const shades = `linear-gradient(to right,${palette.empty},${few} 70%,${all})`;
  const hatch = `repeating-linear-gradient(135deg,${palette.ground} 0 1px,color-mix(in srgb,${all} 40%,${palette.empty}) 1px 4px)`;
  return (
    `<span><i class="scale shades" style="background:${shades}"></i>few to all copies</span>` +
    `<span><i style="background:${hatch}"></i>only while others run</span>`
  );
}

function legend(name, palette, model, compared, folded) {
  return ownLegend(name, palette, model, compared) + (folded ? foldedLegend(name, palette) : "");
}

function ownLegend(name, palette, model, compared) {
  const swatch = (colour, text) => `<span><i style="background:${colour}"></i>${text}</span>`;
  if (compared && name !== "U")
    return swatch(palette.only_first, "only here") + swatch(palette.only_second, "only in the compared") + swatch(palette.both, "in both");
  if (name === "R" && model.get("colouring") === "implementation")
    return swatch(model.get("kinds")[0][palette === model.get("palettes").light ? 1 : 2], "default; others as marked above");
  if (name === "R")
    return swatch(palette.forward, "forward") + swatch(palette.backward, "backward") + swatch(palette.recompute, "recompute");
  if (name === "S") {
    const vain = model.get("in_vain")?.byteLength ? swatch(`rgb(${pale(palette).join(",")})`, "kept in vain") : "";
    return swatch(palette.kept, "kept (checkpoint)") + vain;
  }
  const bar = `<i class="scale" style="background:linear-gradient(to right,${palette.scale.join(",")})"></i>`;
  const ends = [model.get("resident"), model.get("largest")].map(formatBytes);
  const budget = model.get("budget");
  const near = budget ? `<span><i class="near" style="border-color:${palette.ink}"></i>≥ 98 % of budget</span>` : "";
  const over = budget && model.get("largest") > ROUNDED * budget ? swatch(palette.over, "over it") : "";
  return `<span>${ends[0]} ${bar} ${ends[1]}</span>${near}${over}`;
}

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
