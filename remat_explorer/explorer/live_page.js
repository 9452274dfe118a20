// Texts and numbers as recording.py writes them.
const GAP = "\ue002";

// A column of numbers, of which each is written less the one before it.
function sums(column) {
  let sum = 0;
  return column.map((step) => (sum += step));
}

// Texts that differ in their numbers alone.
function textsOf({ patterns, which, columns }) {
  const pieces = patterns.map((pattern) => pattern.split(GAP));
  const numbers = columns.map((own) => own.map(sums));
  const rows = patterns.map(() => 0);
  return which.map((pattern) => {
    const row = rows[pattern]++;
    return pieces[pattern].reduce((text, piece, gap) => text + numbers[pattern][gap - 1][row] + piece);
  });
}

// Of each stage of a point its parts by their names.
function stagesOf(parts) {
  const texts = Object.entries(parts).map(([name, packed]) => [name, textsOf(packed)]);
  return texts[0][1].map((_, stage) => Object.fromEntries(texts.map(([name, own]) => [name, own[stage]])));
}

// Of each value its texts, what is said with them, and which of that is said at each point.
function valuesOf({ texts, values }) {
  const every = textsOf(texts);
  let begin = 0;
  return values.map(([count, said, which]) => [every.slice(begin, (begin += count)), said, which]);
}

// The explorer without a kernel. The widgets' own modules draw; here each of them gets a model, and what the kernel does
// between them is done: where the budget or the stage changes in one, the others follow.
const SETTLE = 60; // milliseconds without a move before the figure is drawn, which takes as long
const PICTURES = { overview: ["matrices", "memory"], memory: ["memory"], matrices: ["matrices"], model: ["model"], plots: ["plots"] };
const PLACE = /\ue000(\w+)\ue001/g;
const STATEMENT = /\ue000@(\d+)\.(\d+)(?:,(\d+)\.(\d+))?\ue001/g; // a statement by its stage; or from one to another

const EMBEDDED = location.protocol === "about:"; // in a notebook's frame, which has no address

const at = (id) => document.getElementById(id);

// Documents in the page are unpacked when they are first needed.
const READ = {
  overview: (entry) => ({ ...withBytes(entry), templates: textsOf(entry.templates) }),
  point: (entry) => ({ ...entry, stages: stagesOf(entry.stages) }),
  values: valuesOf,
};
const documents = new Map();
function opened(id) {
  const read = READ[id.split("-")[0]] ?? ((entry) => entry);
  if (!documents.has(id)) documents.set(id, unpacked(id).then(JSON.parse).then(read));
  return documents.get(id);
}

// A widget's model, as far as its module uses it; `heard` gets what would be sent to the kernel.
function modelWith(traits, heard = () => {}) {
  const hearers = {};
  return {
    get: (name) => traits[name],
    set(name, value) {
      if (traits[name] === value) return;
      traits[name] = value;
      for (const hear of hearers[`change:${name}`] ?? []) hear();
    },
    on: (event, hear) => (hearers[event] ??= []).push(hear),
    save_changes() {},
    send: heard,
  };
}

const wholeNumbers = (numbers) => new DataView(Int32Array.from(numbers).buffer);

// Traits as they are in the page: {bytes: base64} stands for bytes.
function withBytes(entry) {
  if (Array.isArray(entry)) return entry.map(withBytes);
  if (entry === null || typeof entry !== "object") return entry;
  if (typeof entry.bytes === "string") return new DataView(bytesOf64(entry.bytes).buffer);
  return Object.fromEntries(Object.entries(entry).map(([name, part]) => [name, withBytes(part)]));
}

function filled(template, parts) {
  while (template.search(PLACE) >= 0) template = template.replace(PLACE, (_, name) => parts[name]);
  return template;
}

// Statements are told by their stages: what is said of a value is then the same for many points of the curve.
function numbered(html, stages) {
  const number = (stage, offset) => Number(stages[stage].begin) + Number(offset);
  return html.replace(STATEMENT, (_, stage, offset, last, end) =>
    last === undefined ? number(stage, offset) : number(last, end) - number(stage, offset) + 1,
  );
}

// Where an address says to look: #budget=60%&stage=55&value=12; null for what it does not say.
function addressed(address, whole) {
  const wanted = new URLSearchParams(new URL(address).hash.slice(1).replaceAll("%&", "%25&").replace(/%$/, "%25"));
  const budget = wanted.get("budget") ?? "";
  const bytes = Math.floor(budget.endsWith("%") ? (whole * Number(budget.slice(0, -1))) / 100 + 1e-6 : Number(budget));
  const count = (name) => (/^\d+$/.test(wanted.get(name) ?? "") ? Number(wanted.get(name)) : null);
  return { budget: bytes > 0 ? bytes : null, stage: count("stage"), value: count("value") };
}

// A figure with what differs in it by the choice, such as the colours, and the budget's lines where the budget is.
function figureOf(figure, different, lines, budget, place) {
  const shown = structuredClone(figure);
  for (const [path, value] of different) {
    const holder = path.slice(0, -1).reduce((part, key) => part[key], shown);
    holder[path.at(-1)] = value;
  }
  for (const [axis, line] of Object.entries(lines))
    shown.data[line][axis] = [budget, budget].map((count) => count / shown.units[axis]);
  return { data: shown.data, layout: { ...shown.layout, width: place.clientWidth, height: place.clientHeight } };
}

async function begin() {
  const overview = await opened("overview");
  const { steps, templates, places, budget: range } = overview;
  const { frames } = overview.matrices;
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => (darkness.matches ? "dark" : "light");
  const here = { budget: 0, point: -1, stage: 0, value: 0, playing: false, methods: false, picture: "" };
  let [settling, drawn, bits, mapped, along, before, plotly] = [0, "", -1, -1, [], null, null];

  const look = { stage: 0, value: 0, theme: theme() };
  const empty = Object.fromEntries([...PARTS, "compared_computed", "compared_kept"].map((name) => [name, NOTHING]));
  const beside = { zoom: [], budget: 0, playing: false, compact: true, hovered: -1 };
  const matrices = modelWith({ ...overview.matrices, ...empty, ...look, ...beside, rows: 0, dragged: 0 });
  const tanks = { steps: NOTHING, plain: wholeNumbers(overview.plain), computation: 0, budget: 0, playing: false, speed: 1 };
  const graph = modelWith({ ...overview.model, ...look, ...tanks, R: NOTHING, S: NOTHING, stages: 0 });
  const map = { columns: {}, lines: {}, lanes: {}, arena: {}, map_colours: "kind", moment: null };
  const memory = modelWith({ ...overview.memory, ...look, ...beside, ...map });
  const slider = modelWith({ ...range, value: 0, moving: 0, answered: 0, dragged: 0, curve: {} }, ({ point }) => setBudget(curve().points[point][0]));
  const story = modelWith({ html: "", label: "What the step needs and costs" }, pressed);
  const twice = modelWith({ html: "", label: "What runs twice", hovered: -1 }, ({ value, stage }) => select(stage, value));
  const band = modelWith({ start: 0, end: 0, colour: "", revision: 0 }, clicked);
  const panel = modelWith({ html: "", label: "The selected value, in words" }, ({ value, stage }) => select(stage, value));
  const bar = modelWith({ stage: 0, stages: 0, playing: false, clocked: true, speed: 1 });
  const run = modelWith({ drawings: 0, moments: [], duration: 0, ...overview.run });
  const presenter = modelWith({ scene: -1, count: overview.scenes.length, caption: "" }, () => presenter.set("scene", 0));
  const step = () => steps[lastWithin(steps, here.budget)];
  const curve = () => overview.curves[here.methods ? "every" : "best"];
  const stages = () => (here.point < 0 ? 1 : frames[here.point][1]);

  function select(stage, value) {
    const inside = (count, most) => Math.max(0, Math.min(most - 1, count));
    here.stage = inside(stage ?? here.stage, stages());
    here.value = inside(value ?? here.value, templates.length);
    for (const model of [matrices, memory, graph, bar]) model.set("stage", here.stage);
    for (const model of [matrices, memory, graph]) model.set("value", here.value);
    show();
  }

  // The best schedule for a budget: its story and its matrices at once, the rest when the budget rests.
  function setBudget(count) {
    here.budget = Math.round(Math.max(range.low, Math.min(range.high, count)));
    here.point = step()[1] >= 0 ? step()[1] : Math.max(here.point, 0); // where nothing fits, the picture stays
    tell();
    bar.set("stages", stages());
    slider.set("value", here.budget);
    for (const model of [matrices, memory, graph]) model.set("budget", here.budget);
    matrices.set("dragged", Math.max(here.budget, frames[here.point][0]));
    clearTimeout(settling);
    settling = setTimeout(() => select(null, null), SETTLE);
  }

  function tell() {
    const [used, budget] = [frames[here.point][0], here.budget].map(formatBytes);
    const [count, unit] = used.split(" ");
    const run = overview.run;
    const parts = { budget, used: budget.endsWith(` ${unit}`) ? count : used, run: overview.not_run, proof: "" };
    if (run) parts.run = run.point === here.point ? run.here : run.away;
    if (run?.point === here.point) parts.proof = run.proof;
    story.set("html", filled(step()[2], parts));
  }

  function pressed({ action }) {
    if (action === "draw") drawRun();
    else if (action) setBudget(step()[3]);
  }

  async function show() {
    const { point, stage, value, budget } = here;
    if (point < 0) return;
    const [one, chunk] = await Promise.all([opened(`point-${point}`), opened(`values-${Math.floor(value / overview.chunk)}`)]);
    const isLate = () => point !== here.point || stage !== here.stage || value !== here.value || budget !== here.budget;
    if (isLate()) return; // somebody went on meanwhile
    const [texts, said, which] = chunk[value % overview.chunk];
    along = one.along;
    explain(one, texts, said[which[point]]);
    repeat(one);
    showBits(one);
    showMap();
    await drawFigure(one);
    if (isLate()) return;
    ["start", "end"].forEach((name, i) => band.set(name, one.spans[stage][i]));
    remember();
    document.body.dataset.shown = `${point} ${stage} ${value}`;
  }

  function explain(one, texts, [ofSchedule, columns]) {
    const [from, ...ofReason] = columns.map(sums);
    const place = from.findLastIndex((stage) => stage <= here.stage);
    const names = [...places.schedule, ...places.reason];
    const numbers = [...ofSchedule, ...ofReason.map((column) => column[place])];
    const parts = Object.fromEntries(numbers.map((number, i) => [names[i], texts[number]]));
    const said = numbered(filled(templates[here.value], { ...overview.sources, ...one.margins, ...parts, ...one.stages[here.stage], total: one.total }), one.stages);
    const style = overview.colours[theme()];
    panel.set("html", `<div class="remat-panel explain" data-scroll="${here.value}" style="${style}">${said}</div>`);
  }

  function repeat({ twice: table }) {
    const row = `<tr data-value="${here.value}"`;
    const marked = table.replace(row, `${row} aria-current="true" class="selected"`);
    twice.set("html", `<div class="remat-panel" data-scroll="${here.point}" style="${overview.colours[theme()]}">${marked}</div>`);
  }

  async function showBits(one) {
    const point = here.point;
    if (at("model").hidden || bits === point) return;
    bits = point;
    graph.set("host", one.host);
    graph.set("steps", wholeNumbers(one.steps));
    const frame = await unpackFrame(frames[point]);
    if (bits !== point) return;
    graph.set("stages", frame.rows);
    graph.set("S", frame.S);
    graph.set("R", frame.runs);
  }

  async function showMap() {
    const point = here.point;
    if (at("memory").hidden || mapped === point) return;
    mapped = point;
    const placed = await opened(`map-${point}`);
    if (mapped === point) for (const [name, value] of Object.entries(placed)) memory.set(name, value);
  }

  async function drawFigure(one) {
    const place = at("figure");
    if (at("plots").hidden) return;
    const wanted = `${here.point} ${here.budget} ${theme()} ${here.methods} ${place.clientWidth} ${place.clientHeight}`;
    if (drawn === wanted) return;
    drawn = wanted;
    const different = [...(theme() === "dark" ? one.dark : []), ...(here.methods ? one.methods : [])];
    const { data, layout } = figureOf(one.figure, different, overview.lines, here.budget, place);
    await (plotly ??= runPacked("plotly"));
    await Plotly.react(place, data, layout, { displayModeBar: false });
    at("legend").innerHTML = curve().legend[theme()];
    band.set("colour", overview.matrices.palettes[theme()].ink);
  }

  async function clicked({ trace, point }) {
    if (trace === overview.timeline) return select((await opened(`point-${here.point}`)).hits[point], null);
    const points = curve().points.filter(([, , , , strategy]) => strategy === trace);
    return points[point] && setBudget(points[point][0]);
  }

  const showCurve = () => slider.set("curve", { ...curve(), marks: curve().marks[theme()], colour: curve().colour?.[theme()] });

  // The points of other methods on the curve, where it has any; a click on one shows the best for its memory.
  function showMethods(on) {
    here.methods = on;
    at("methods").setAttribute("aria-pressed", String(on));
    showCurve();
    show();
  }

  function play(on) {
    here.playing = on;
    for (const model of [matrices, memory, graph, bar]) model.set("playing", on);
  }

  function remember() {
    if (EMBEDDED) return;
    const share = (Math.ceil((1e5 * here.budget) / range.keep_all) / 1000).toFixed(3); // up: no budget is read as a smaller one
    history.replaceState(null, "", `#budget=${share}%25&stage=${here.stage}&value=${here.value}`);
  }

  // What an address does not say is as it was, and at first as the page was saved.
  function lookThere(address) {
    const { budget, stage, value } = addressed(address, range.keep_all);
    const saved = here.point < 0 && budget === null ? overview.begin : [null, null, null];
    setBudget(budget ?? saved[0] ?? (here.budget || (overview.run ?? { peak: frames[Math.floor(frames.length / 3)][0] }).peak));
    const wanted = [stage ?? saved[1], value ?? saved[2]];
    select(...(wanted.every((count) => count === null) ? overview.first[here.point] : wanted));
  }

  function retheme() {
    document.body.classList.add("remat-explorer");
    document.body.classList.toggle("dark", theme() === "dark");
    for (const model of [matrices, memory, graph]) model.set("theme", theme());
    showCurve();
    show();
  }

  // A scene of the presentation; what it does not name stays, and after the last one all is as it was.
  function enter() {
    const scene = overview.scenes[presenter.get("scene")];
    presenter.set("caption", scene?.caption ?? "");
    play(false);
    before ??= { ...here };
    const { budget, picture, stage, value } = scene ?? before;
    if (!scene) before = null;
    if (budget !== null) setBudget(budget);
    if (picture in PICTURES) showPicture(picture);
    select(stage, value);
    if (!scene) return;
    if (scene.draw) drawRun();
    if (scene.play) play(true);
  }

  // The measured line draws itself in the plots.
  function drawRun() {
    if (here.point !== overview.run.point) setBudget(overview.run.peak);
    showPicture("plots");
    run.set("drawings", run.get("drawings") + 1);
  }

  function showPicture(name) {
    here.picture = name;
    for (const other of Object.keys(PICTURES)) at(`show-${other}`).setAttribute("aria-pressed", String(other === name));
    for (const place of ["matrices", "memory", "model", "plots"]) at(place).hidden = !PICTURES[name].includes(place);
    for (const model of [matrices, memory]) model.set("compact", name === "overview");
    play(false);
    bar.set("clocked", name !== "model"); // it goes by computations
    show();
  }

  slider.on("change:dragged", () => slider.get("dragged") && setBudget(slider.get("dragged")));
  slider.on("change:moving", () => slider.set("answered", slider.get("moving")));
  slider.on("change:value", () => slider.get("value") === here.budget || setBudget(slider.get("value")));
  for (const [name, follow] of Object.entries({
    stage: (model) => model.get("stage") === here.stage || select(model.get("stage"), here.playing ? along[model.get("stage")] : null),
    value: (model) => model.get("value") === here.value || select(null, model.get("value")),
    playing: (model) => model.get("playing") === here.playing || play(model.get("playing")),
  }))
    for (const model of [matrices, memory, graph, bar]) model.on(`change:${name}`, () => follow(model));
  bar.on("change:speed", () => graph.set("speed", bar.get("speed")));
  // What is folded in the matrices is so in the model, as far as the page knows where its operations stand then; the map
  // says why it has all copies.
  function fold(numbers) {
    for (const model of [matrices, memory]) if (String(model.get("folded")) !== String(numbers)) model.set("folded", numbers);
    const found = overview.layouts.find(([folded]) => String(folded) === String(numbers)) ?? overview.layouts[0];
    if (String(graph.get("folded")) === String(numbers) && String(graph.get("picture").folded) === String(found[1].folded)) return;
    graph.set("folded", numbers);
    graph.set("picture", { ...graph.get("picture"), ...found[1] });
    graph.set("boxes", found[2]);
  }
  for (const model of [matrices, graph]) model.on("change:folded", () => fold(model.get("folded")));
  matrices.on("change:zoom", () => memory.set("zoom", matrices.get("zoom")));
  memory.on("change:zoom", () => matrices.set("zoom", memory.get("zoom")));
  twice.on("change:hovered", () => [matrices, memory].forEach((model) => model.set("hovered", twice.get("hovered"))));
  for (const name of Object.keys(PICTURES)) at(`show-${name}`).addEventListener("click", () => showPicture(name));
  at("copy").hidden = EMBEDDED;
  at("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(location.href);
    at("copy").textContent = "Copied";
  });
  at("methods").hidden = !overview.curves.every;
  [at("methods").textContent, at("methods").title] = overview.curves.words;
  at("methods").addEventListener("click", () => showMethods(!here.methods));
  presenter.on("change:scene", enter);
  darkness.addEventListener("change", retheme);
  // not where the page is now: it may have remembered a point since
  addEventListener("hashchange", ({ newURL }) => lookThere(newURL));

  retheme();
  const models = { curve: slider, bar, matrices, memory, model: graph, panel, band, run, presenter, story, twice };
  for (const [place, model] of Object.entries(models)) {
    const module = MODULES[["story", "twice"].includes(place) ? "panel" : place];
    module.initialize?.({ model });
    module.render({ model, el: at(place) });
  }
  lookThere(location.href);
  showPicture("overview");
  new ResizeObserver(() => show()).observe(at("figure"));
  document.body.dataset.ready = "yes";
}

begin();
