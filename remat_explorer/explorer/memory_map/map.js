// The memory map on a canvas, its cursor on another. Hover never asks the kernel; clicks and keys set the traits.
const PLAN = ["columns", "lines", "names", "arena"];
const LOOKS = ["map_colours", "theme", "budget", "zoom", "moment", "other", "resident", "folded"];

function render({ model, el }) {
  const parts = buildMap();
  const { root, buttons, frame, cells, overlay, table, tip, live } = parts;
  el.append(root);
  let data = mapData(model);
  let [space, moments, classes, tabled] = [null, null, null, null];
  let [hovered, brush] = [-1, null];
  let [stale, waiting] = [false, false];
  const colours = () => model.get("colours")[model.get("theme")];
  const isOnScreen = () => root.isConnected && frame.clientWidth > 0;
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
    compare();
    const ratio = sharpness(frame);
    const [width, height] = [frame.clientWidth, frame.clientHeight];
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
      drawNames(context, data, named.filter(({ i }) => !(space.strip && data.value[i] === RESIDENT)));
    }
    mapLegend(parts, model, data, space, colours(), moments);
    parts.words.textContent = data.count ? model.get("arena").words : "";
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
    const ratio = sharpness(frame);
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
  const brushing = () => buttons.brush.getAttribute("aria-pressed") === "true";
  const setBrushing = (on) => buttons.brush.setAttribute("aria-pressed", String(on));
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
  buttons.brush.addEventListener("click", () => setBrushing(!brushing()));
  buttons.in.addEventListener("click", () => scale(0.5));
  buttons.out.addEventListener("click", () => scale(2));
  buttons.whole.addEventListener("click", zoomWhole);
  buttons.pin.addEventListener("click", () => pin(model.get("moment") === model.get("stage") ? null : model.get("stage")));
  buttons.peaks.addEventListener("click", () => pin(model.get("moment") === "peaks" ? null : "peaks"));
  buttons.stop.addEventListener("click", () => pin(null));
  for (const name of ["kind", "layer"])
    buttons[name].addEventListener("click", () => model.get("map_colours") === name || recolour());

  for (const name of PLAN) model.on(`change:${name}`, () => changed(true));
  for (const name of LOOKS) model.on(`change:${name}`, () => changed(false));
  for (const name of ["stage", "value"]) model.on(`change:${name}`, moved);
  const sizes = new ResizeObserver(redraw);
  sizes.observe(frame);
  redraw();
  return () => {
    sizes.disconnect();
    redraw.end();
  };
}

export default { render };
