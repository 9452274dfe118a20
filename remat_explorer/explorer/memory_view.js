// The elements of the map: heading with its buttons, canvas, legend, and the table of two moments.
const MAP_KEYS =
  "Click: select a value and the stage. Arrow left and right: stage; arrow up and down: the next value in memory; " +
  "Page up, Page down, Home, End: further; Space: play the stages; Shift and drag, + and -: zoom in time; " +
  "Escape or double click: show the whole; P: compare with this stage; C: colours of kinds or of layers.";
const TIME_WORDS = "stage, as wide as what it computes";
const UNFOLDED_WORDS = "not folded, because each copy of a block has its own bytes";
const CHOICES = {
  kind: ["Kind", "Colours show which values are kept, temporary, gradients, or computed again (key C)."],
  layer: ["Layer", "Colours show the layer that a value belongs to (key C)."],
};
const COMPARISONS = {
  pin: ["Pin stage", "Compare the memory of this stage with that of each stage you select next (key P)."],
  peaks: ["Peaks", "Compare the peak with that of the pinned schedule, or of keeping everything."],
  stop: ["×", "Stop comparing."],
};

function buildMap() {
  const root = element("div", "remat-map");
  const buttons = {};
  const caption = element("div", "caption");
  const [heading, words, picked] = [element("b", "", "Memory map"), element("span", "words"), element("span", "remat-picked")];
  const tools = element("span", "remat-zoom");
  tools.append(element("span", "said", "Colours"));
  addButtons(tools, CHOICES, buttons);
  tools.append(element("span", "said", "Compare"));
  addButtons(tools, COMPARISONS, buttons);
  tools.append(element("span", "said", ""), ...zoomButtons(buttons).children);
  caption.append(heading, words, picked, tools);
  const [body, frame, table] = [element("div", "body"), element("div", "remat-canvas"), element("div", "remat-moments")];
  frame.tabIndex = 0;
  frame.setAttribute("role", "application");
  frame.setAttribute("aria-roledescription", "memory map");
  table.hidden = true;
  table.tabIndex = 0;
  table.setAttribute("role", "region");
  table.setAttribute("aria-label", "Two moments compared");
  const [cells, overlay] = [document.createElement("canvas"), document.createElement("canvas")];
  frame.append(cells, overlay);
  body.append(frame, table);
  const [legendLine, tip, live] = [element("div", "remat-legend"), element("div", "remat-tip"), liveRegion()];
  root.append(caption, body, legendLine, tip, live);
  return { root, words, picked, buttons, frame, cells, overlay, table, legend: legendLine, tip, live };
}

function mapLegend(parts, model, data, space, colours, moments) {
  const made = [];
  const entry = (look, text) => {
    const item = element("span", "");
    const mark = document.createElement("i");
    Object.assign(mark.style, look);
    item.append(mark, text);
    made.push(item);
  };
  const line = (colour, style) => ({ height: "0", borderTop: `2px ${style} ${colour}`, verticalAlign: "3px", borderRadius: "0" });
  if (moments) {
    [colours.only_first, colours.both, colours.only_second].forEach((colour, i) => entry({ background: colour }, moments.words[i]));
  } else if (model.get("map_colours") === "kind") {
    model.get("kinds").forEach((kind, i) => data.kind?.includes(i) && entry({ background: colours.kinds[i] }, KIND_WORDS[kind] ?? kind));
  } else {
    data.groups.slice(0, GROUPS_NAMED).forEach((name, i) => entry({ background: groupColour(colours, i) }, name));
    if (data.groups.length > GROUPS_NAMED) made.push(element("span", "", `… ${data.groups.length} in all, colours repeat`));
  }
  entry(line(colours.predicted, "solid"), "in use, predicted");
  if (data.measured.length) entry(line(colours.measured, "dotted"), "measured");
  const budget = model.get("budget");
  if (budget) entry(line(colours.budget, "dashed"), `budget ${formatBytes(budget)}${space.budgetFits ? "" : ", above"}`);
  parts.legend.replaceChildren(...made);
}

// What colours mean, said in the heading, where there is no legend.
function mapWords(model, data, colours, moments) {
  const word = (text, colour) => Object.assign(element("u", "", text), { style: `--mark: ${colour}` });
  if (!data.count) return [];
  const named = moments
    ? [colours.only_first, colours.both, colours.only_second].map((colour, i) => word(moments.words[i], colour))
    : model.get("kinds").flatMap((kind, i) => (data.kind.includes(i) && kind !== "resident" ? [word(KIND_WORDS[kind] ?? kind, colours.kinds[i])] : []));
  const waiting = model.get("lanes")?.waiting;
  return waiting ? [...named, word(`computing waits ${waiting}`, colours.over)] : named;
}

const KIND_WORDS = { recomputed: "again", fetched: "back from the host", temporaries: "in use for a moment" };
const GROUPS_NAMED = 9;

// Pointer and keys of the map.
const DRAWN_FROM = 4; // pixels from which a press is a range of time and no click

function listenToMapPointer({ model, root, frame, tip, data, space, said, hover, brush, select, zoomStages, zoomWhole, brushing, drawCursor, leave }) {
  const placeOf = (event) => pointerIn(frame, event);
  const stageAt = (x) => data().stageAt(Math.max(space().from, Math.min(space().to - 1, space().computation(x))));

  function showTip(words, event) {
    const { x: left, y: top, width, height } = pointerIn(root, event);
    tip.replaceChildren(...words);
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
    const lane = i < 0 && data().count ? saidOfLane(model, data(), space(), x, y) : "";
    if (i >= 0) showTip([element("b", "", nameIn(data(), data().value[i])), ` ${said(i)}`], event);
    else if (lane) showTip([lane], event);
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
      ...commonKeys(model, scale),
      Escape: escape,
      p: () => pin(model.get("moment") === stage ? null : stage),
      c: recolour,
    };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (data().count === 0 || keys[event.key]() === false) return;
    leave(); // what is pointed at is no longer what is asked for
    event.preventDefault();
    event.stopPropagation();
  });
}

// The memory map on a canvas, its cursor on another. Hover never asks the kernel; clicks and keys set the traits.
const PLAN = ["columns", "lines", "lanes", "names", "arena"];
const LOOKS = ["compact", "plain", "map_colours", "theme", "budget", "zoom", "moment", "other", "resident", "folded"];

function render({ model, el }) {
  const parts = buildMap();
  const { root, buttons, frame, cells, overlay, table, tip, live } = parts;
  el.append(root);
  let data = mapData(model);
  let [space, moments, classes, tabled] = [null, null, null, null];
  let [hovered, brush] = [-1, null];
  let [stale, waiting] = [false, false];
  const colours = () => model.get("colours")[model.get("theme")];
  let [width, height, ratio] = [0, 0, 1]; // read when they change: between changes of the page, each reading would lay it out anew
  const isOnScreen = () => root.isConnected && width > 0;
  const said = (i) => saidOf(data, model.get("kinds"), i);

  function compare() {
    moments = momentsOf(model, data);
    classes = moments ? classesOf(data, moments) : null;
    const shown = moments && [moments.first, moments.second].map(({ label, bytes }) => `${label} ${bytes}`).join(" ");
    for (const [name, colour] of Object.entries({ first: "only_first", second: "only_second", shared: "both" }))
      table.style.setProperty(`--${name}`, colours()[colour]);
    table.hidden = !moments;
    if (!moments) table.replaceChildren();
    else if (tabled !== shown || stale) {
      table.replaceChildren(element("p", "", momentsWords(moments)), momentsTable(data, moments, (value) => select(null, value)));
    }
    tabled = shown;
    const stage = model.get("stage");
    buttons.pin.textContent = moments && model.get("moment") !== "peaks" ? `Stage ${model.get("moment")} pinned` : "Pin stage";
    buttons.pin.setAttribute("aria-pressed", String(model.get("moment") !== null && model.get("moment") !== "peaks"));
    buttons.peaks.setAttribute("aria-pressed", String(model.get("moment") === "peaks"));
    buttons.stop.disabled = model.get("moment") === null;
    buttons.pin.disabled = buttons.peaks.disabled = data.count === 0 || stage >= data.stages;
  }

  function draw() {
    root.dataset.compact = Boolean(model.get("compact"));
    compare();
    space = spaceOf(model, data, width, height);
    for (const canvas of [cells, overlay])
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio))
        Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const context = cells.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, cells.width, cells.height);
    if (data.count) {
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = colours().empty;
      context.fillRect(space.left, space.top, space.width, space.height);
      drawAxes(context, model, data, space, colours());
      context.setTransform(1, 0, 0, 1, 0, 0);
      const named = drawRectangles(context, data, space, ratio, fillOf(model, data, colours(), classes), classes);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      drawStrip(context, model, space, colours());
      drawLines(context, model, data, space, colours());
      drawWays(context, model, data, space, colours().sent, 1.5);
      drawLanes(context, model, space, colours());
      drawNames(context, data, named.filter(({ i }) => !(space.strip && data.value[i] === RESIDENT)));
      if (model.get("compact")) drawNamed(context, model, data, space, colours());
    }
    mapLegend(parts, model, data, space, colours(), moments);
    const compact = Boolean(model.get("compact"));
    if (compact) parts.words.replaceChildren(...mapWords(model, data, colours(), moments));
    else parts.words.textContent = data.count ? model.get("arena").words : "";
    for (const name of ["kind", "layer"]) buttons[name].setAttribute("aria-pressed", String(model.get("map_colours") === name));
    const folded = model.get("folded");
    frame.setAttribute("aria-label", `Memory map: time across, bytes up${folded.length ? `; ${UNFOLDED_WORDS}` : ""}. ${MAP_KEYS}`);
    buttons.whole.disabled = buttons.out.disabled = !isZoomed();
    Object.assign(root.dataset, { rectangles: data.count, zoom: model.get("zoom"), moment: model.get("moment") ?? "", colours: model.get("map_colours"), folded });
    stale = false;
    drawCursor();
    root.dataset.drawn = Number(root.dataset.drawn || 0) + 1;
  }

  function drawCursor() {
    if (!space) return;
    const context = overlay.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, overlay.width, overlay.height);
    const [stage, value] = [model.get("stage"), model.get("value")];
    if (data.count) drawOver(context, model, data, space, colours(), hovered, moments);
    if (brush) {
      const sides = [Math.min(brush.from, brush.to), space.top, Math.abs(brush.to - brush.from), space.height];
      Object.assign(context, { globalAlpha: 0.15, fillStyle: colours().ink });
      context.fillRect(...sides);
      context.globalAlpha = 1;
    }
    const known = data.values[value] && data.count;
    const rectangles = known ? data.rectanglesOf(value) : [];
    const here = rectangles.find((i) => stage < data.stages && data.begin[i] < data.starts[stage + 1] && data.end[i] > data.starts[stage]);
    const text = !known ? "" : here === undefined ? "not in memory in this stage" : said(here);
    parts.picked.textContent = known ? `${data.values[value][0]}: ${text}` : "";
    parts.picked.title = parts.picked.textContent;
    live.textContent = known ? `Stage ${stage}. ${parts.picked.textContent}.` : "";
    Object.assign(root.dataset, { stage, value });
  }

  // Several traits arrive in one message: draw once, when all of them are there.
  function changed(plan) {
    stale = stale || plan;
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      if (stale) {
        data = mapData(model);
        hovered = -1;
        tip.style.display = "none";
      }
      if (isOnScreen()) draw();
      else redraw();
    });
  }

  const redraw = whenSeen(root, () => {
    [width, height, ratio] = [frame.clientWidth, frame.clientHeight, sharpness(frame)];
    if (isOnScreen()) draw();
    return isOnScreen();
  });

  function moved() {
    if (waiting || !isOnScreen()) return;
    if (moments && model.get("moment") !== "peaks") changed(false); // the second moment is the selected stage
    else drawCursor();
  }

  function select(stage, value) {
    if (stage !== null) model.set("stage", Math.max(0, Math.min(data.stages - 1, stage)));
    if (value !== null) model.set("value", value);
    model.save_changes();
  }

  const isZoomed = () => model.get("zoom").length === 4 && space !== null && (space.first > 0 || space.last < data.stages - 1);
  function zoomStages(first, last) {
    const operations = model.get("zoom").length === 4 ? model.get("zoom").slice(2) : [0, data.operations.length - 1];
    const whole = first <= 0 && last >= data.stages - 1 && operations[0] === 0 && operations[1] === data.operations.length - 1;
    model.set("zoom", whole ? [] : [first, last, ...operations]);
    model.save_changes();
  }
  function zoomWhole() {
    model.set("zoom", []);
    model.save_changes();
  }
  const scale = (factor) => data.count && zoomStages(...scaled(space.first, space.last, model.get("stage"), data.stages, factor));
  const { brushing, setBrushing } = listenToZoom(buttons, scale, zoomWhole);
  function pin(moment) {
    model.set("moment", moment);
    model.save_changes();
  }
  function recolour() {
    model.set("map_colours", model.get("map_colours") === "kind" ? "layer" : "kind");
    model.save_changes();
  }

  function leave() {
    hovered = -1;
    tip.style.display = "none";
    drawCursor();
  }

  const handlers = { model, root, frame, tip, said, leave, select, scale, zoomStages, zoomWhole, isZoomed, brushing, setBrushing, drawCursor, pin, recolour };
  handlers.data = () => data;
  handlers.space = () => space;
  handlers.hover = (i) => (hovered = i);
  handlers.brush = (drawn) => (drawn === undefined ? brush : (brush = drawn));
  listenToMapPointer(handlers);
  listenToMapKeys(handlers);
  buttons.pin.addEventListener("click", () => pin(model.get("moment") === model.get("stage") ? null : model.get("stage")));
  buttons.peaks.addEventListener("click", () => pin(model.get("moment") === "peaks" ? null : "peaks"));
  buttons.stop.addEventListener("click", () => pin(null));
  for (const name of ["kind", "layer"])
    buttons[name].addEventListener("click", () => model.get("map_colours") === name || recolour());

  for (const name of PLAN) model.on(`change:${name}`, () => changed(true));
  for (const name of LOOKS) model.on(`change:${name}`, () => changed(false));
  for (const name of ["stage", "value"]) model.on(`change:${name}`, moved);
  model.on("change:hovered", () => {
    hovered = data.rectanglesOf(model.get("hovered"))[0] ?? -1;
    drawCursor();
  });
  const sizes = new ResizeObserver(redraw);
  sizes.observe(frame);
  redraw();
  return () => {
    sizes.disconnect();
    redraw.end();
  };
}

export default { render };
