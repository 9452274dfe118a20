// A plan, replayed: what is in memory while each of its computations runs. `step_plan` in model_view.py says how it is
// sent.
function stepPlan(content, data) {
  if (!data || content.byteLength === 0) return null;
  const numbers = new Int32Array(content.buffer.slice(content.byteOffset, content.byteOffset + content.byteLength));
  const computations = [];
  for (let at = 0; at < numbers.length; ) {
    const [stage, operation, way, again, overwrites] = numbers.subarray(at, at + 5);
    at += 5;
    const lists = [0, 1, 2].map(() => {
      const listed = numbers.subarray(at + 1, at + 1 + numbers[at]);
      at += 1 + listed.length;
      return listed;
    });
    computations.push({ stage, operation, way, again: again === 1, overwrites, stays: lists[0], drops: lists[1], frees: lists[2] });
  }
  if (computations.some(({ operation }) => operation >= data.operations.length)) return null; // of another graph
  const size = (values) => values.reduce((sum, v) => sum + data.values[v][1], 0);
  let [reached, alive] = [-1, new Map()];

  // Blocks keep the order of their births: those above a freed one come down.
  function advance() {
    if (reached >= 0) for (const v of computations[reached].frees) alive.delete(v);
    reached += 1;
    const { stage, operation, again, overwrites, stays } = computations[reached];
    if (overwrites >= 0) alive.delete(overwrites);
    for (const v of stays) {
      const [, bytes, , persistent] = data.values[v];
      alive.set(v, { key: reached * data.values.length + v, value: v, bytes, stage, operation, again, persistent });
    }
  }

  // What is in memory while a computation runs, and the bytes that it needs only meanwhile.
  function at(c) {
    if (c < reached) [reached, alive] = [-1, new Map()];
    while (reached < c) advance();
    return { blocks: [...alive.values()], passing: passing(c) };
  }

  function passing(c) {
    const { operation, way, drops } = computations[c];
    return size(drops) + (data.operations[operation][7][way] ?? 0);
  }

  const count = computations.length;
  const [during, highest] = [new Float64Array(count), new Float64Array(count)];
  const [firsts, distinct] = [new Set(), new Int32Array(count)];
  let held = data.resident;
  computations.forEach(({ operation, overwrites, stays, frees }, c) => {
    held += size(stays) - (overwrites >= 0 ? data.values[overwrites][1] : 0);
    during[c] = held + passing(c);
    highest[c] = Math.max(during[c], c ? highest[c - 1] : 0);
    held -= size(frees);
    firsts.add(operation);
    distinct[c] = firsts.size;
  });

  // The last computation of a stage, or where it has none of the one before it.
  function lastOf(stage) {
    let [low, high] = [0, count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (computations[middle].stage <= stage) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  // The computations of a stage, as [first, behind the last].
  const within = (stage) => [stage > 0 && computations[0].stage < stage ? lastOf(stage - 1) + 1 : 0, lastOf(stage) + 1];
  return { count, computations, during, highest, distinct, at, lastOf, within, written: (c) => size(computations[c].stays) };
}

// The step in words.
const NAMED = 3; // operations of a stage that are named at most, before the rest is counted
const LETTERS = 34; // of a name

// A name that is no longer than `most` letters, shortened in its middle.
function shortened(name, most) {
  if (name.length <= most) return name;
  const end = Math.floor((most - 1) / 2);
  return `${name.slice(0, most - 1 - end)}…${name.slice(name.length - end)}`;
}

function listed(names, most) {
  const named = names.length > most + 1 ? [...names.slice(0, most), `${names.length - most} more`] : names;
  return named.length > 1 ? `${named.slice(0, -1).join(", ")} and ${named.at(-1)}` : named.join("");
}

// What a stage does: "computes norm1 again (2 MiB), then add". Of neighbours that are all first, or all again, `most` are
// named, with so many `letters`.
function stageWords(data, plan, stage, most = NAMED, letters = LETTERS) {
  const [from, to] = plan.within(stage);
  if (to <= from) return `Stage ${stage} computes nothing`;
  const runs = []; // neighbours that are all first, or all again
  for (let c = from; c < to; c++) {
    const { operation, again } = plan.computations[c];
    if (runs.at(-1)?.again !== again) runs.push({ again, names: [], bytes: 0 });
    runs.at(-1).names.push(shortened(data.operations[operation][0], letters));
    runs.at(-1).bytes += plan.written(c);
  }
  const parts = runs.map(({ again, names, bytes }) => `${listed(names, most)}${again ? ` again (${formatBytes(bytes)})` : ""}`);
  const count = runs.length;
  const more = count > 2 ? ` and so on, ${to - from} computations, last ${runs.at(-1).names.at(-1)}` : "";
  return `Stage ${stage} computes ${parts.slice(0, 2).join(", then ")}${more}`;
}

// The computation that runs: "computation 61 of 240: norm1, again".
function computationWords(data, plan, c) {
  const { operation, again } = plan.computations[c];
  const freed = plan.computations[c].frees.reduce((sum, v) => sum + data.values[v][1], 0);
  const name = shortened(data.operations[operation][0], LETTERS);
  return `Computation ${c + 1} of ${plan.count}: ${name}${again ? ", again" : ""}${freed ? `, then frees ${formatBytes(freed)}` : ""}`;
}

// Memory as a tank: its rim is the budget, its content the values that are in memory, those born first at the bottom.
const RESIDENT = 0.2; // of the height at most: resident bytes may be many times the rest
const RIM = 0.5; // of the height at least, however much keeping everything takes
const NAME = 11; // pixels of a block from which on its name fits

// From bytes to pixels above the ground: resident bytes have a scale of their own where they are most of it.
function tankScale(resident, budget, most, height) {
  const rim = Math.max(budget || most, resident + 1);
  const top = Math.max(Math.min(Math.max(most, rim), resident + (rim - resident) / RIM), rim);
  const torn = resident / top > RESIDENT;
  const ground = torn ? RESIDENT * height : (resident / top) * height;
  const unit = (height - ground) / Math.max(top - resident, 1);
  const up = (bytes) => (bytes <= resident ? (bytes / Math.max(resident, 1)) * ground : ground + (bytes - resident) * unit);
  return { up, torn, ground, rim: budget ? up(budget) : height, height, cut: most > top * 1.001 };
}

// Where each block lies: its lower and upper edge in bytes.
function piled({ blocks, passing }, resident) {
  const places = new Map();
  let held = resident;
  for (const block of blocks) {
    places.set(block.key, { block, low: held, high: held + block.bytes });
    held += block.bytes;
  }
  return { places, held, high: held + passing };
}

function blockColour(block, stage, data, palette) {
  if (block.persistent) return palette.gradients;
  if (block.stage !== stage) return palette.kept;
  return block.again ? palette.recompute : data.rail[block.operation] ? palette.backward : palette.forward;
}

// Dark or light letters, whichever are read more easily on a colour.
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => (parseInt(colour.slice(i, i + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#111111" : "#ffffff";
}

const mixed = (a, b, share) => a + (b - a) * share;

// One tank between two moments: `before` and `now` are piles, `share` how far it is from one to the other, and `flash`
// says how fresh a block that is computed again is, from 1 to 0.
function drawTank(context, box, scale, { before, now, share, stage, flash, data, palette }) {
  const [left, bottom, width] = [box.x, box.y + box.height, box.width];
  const y = (bytes) => bottom - Math.min(scale.up(bytes), scale.height + 12);
  const colour = (block) => blockColour(block, stage, data, palette);
  const labels = []; // drawn last: hatching would make them illegible
  context.save();
  context.beginPath();
  context.rect(left - 6, box.y - 2, width + 12, box.height + 4);
  context.clip();

  if (scale.ground > 0) {
    context.fillStyle = palette.resident;
    context.fillRect(left, bottom - scale.ground, width, scale.ground);
    if (scale.torn) tear(context, left, bottom - scale.ground / 6, width, palette);
    if (scale.ground >= NAME) label(context, "resident", formatBytes(data.resident), left, bottom - scale.ground, width, scale.ground, inkOn(palette.resident));
  }
  const paint = (block, low, high, alpha) => {
    const [top, height] = [y(high), y(low) - y(high)];
    if (height <= 0 || alpha <= 0) return;
    const gap = height > 3 ? 1 : 0;
    context.globalAlpha = alpha;
    context.fillStyle = colour(block);
    context.fillRect(left, top + gap, width, Math.max(height - gap, 0.35));
    const fresh = block.again ? flash(block) : 0;
    if (fresh > 0) {
      context.globalAlpha = alpha * fresh;
      context.strokeStyle = palette.ink;
      context.lineWidth = Math.min(4, height / 3);
      context.strokeRect(left - 1, top, width + 2, height);
      context.fillStyle = palette.ground;
      context.globalAlpha = 0.5 * alpha * fresh;
      context.fillRect(left, top + gap, width, Math.max(height - gap, 0.35));
      context.globalAlpha = alpha;
    }
    if (height < NAME) return;
    labels.push([alpha, data.values[block.value][0], formatBytes(block.bytes), left, top, width, height, inkOn(colour(block))]);
  };
  for (const [key, { block, low, high }] of before.places)
    if (!now.places.has(key)) paint(block, low, high, 1 - share);
  for (const [key, { block, low, high }] of now.places) {
    const old = before.places.get(key);
    if (old) paint(block, mixed(old.low, low, share), mixed(old.high, high, share), 1);
    else paint(block, low + (1 - share) * 0.1 * (high - low), high, share);
  }
  context.globalAlpha = 1;
  if (now.high > now.held) hatch(context, left, y(now.high), width, y(now.held) - y(now.high), palette.ink, 0.45 * share);
  context.restore();
  drawWalls(context, box, scale, palette);
  const over = mixed(before.high, now.high, share);
  if (scale.up(over) > scale.rim + 0.5) {
    hatch(context, left, y(over), width, bottom - scale.rim - y(over), palette.budget, 0.5);
    context.strokeStyle = palette.budget;
    context.lineWidth = 2;
    context.strokeRect(left, y(over), width, bottom - scale.rim - y(over));
  }
  context.save();
  context.beginPath();
  context.rect(left - 6, box.y - 2, width + 12, box.height + 4);
  context.clip();
  for (const [alpha, ...words] of labels) {
    context.globalAlpha = alpha;
    label(context, ...words);
  }
  context.restore();
}

// The second tank: copies on the host, in the scale of the first, between two computations.
const HOST = 44; // pixels

function drawHost(context, box, scale, before, now, share, resident, palette) {
  const bytes = mixed(before, now, share);
  const height = Math.min(scale.up(resident + bytes) - scale.up(resident), box.height);
  const bottom = box.y + box.height;
  context.fillStyle = palette.sent;
  context.fillRect(box.x, bottom - height, box.width, height);
  Object.assign(context, { fillStyle: palette.ink, strokeStyle: palette.ink, lineWidth: 2, font: "11px system-ui, sans-serif", textAlign: "center", textBaseline: "bottom" });
  context.strokeRect(box.x - 3, box.y + box.height - Math.max(scale.rim, height), box.width + 6, Math.max(scale.rim, height) + 1);
  context.fillText("host", box.x + box.width / 2, bottom - height - 3);
}

// Walls up to the rim, which is the budget.
function drawWalls(context, { x, y, width, height }, scale, palette) {
  const rim = y + height - scale.rim;
  context.strokeStyle = palette.ink;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x - 3, rim);
  context.lineTo(x - 3, y + height + 1);
  context.lineTo(x + width + 3, y + height + 1);
  context.lineTo(x + width + 3, rim);
  context.stroke();
}

// How high memory has been until now.
function drawMark(context, box, scale, bytes, palette) {
  const y = box.y + box.height - Math.min(scale.up(bytes), scale.height);
  context.fillStyle = palette.ink;
  context.beginPath();
  context.moveTo(box.x - 4, y);
  context.lineTo(box.x - 11, y - 4);
  context.lineTo(box.x - 11, y + 4);
  context.fill();
}

function tear(context, left, y, width, palette) {
  context.beginPath();
  for (let x = 0; x <= width; x += 6) context.lineTo(left + x, y + (x % 12 ? -2.5 : 2.5));
  context.strokeStyle = palette.ground;
  context.lineWidth = 3;
  context.stroke();
}

function hatch(context, left, top, width, height, colour, alpha) {
  if (height <= 0 || alpha <= 0) return;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.globalAlpha = alpha;
  context.lineWidth = 1.4;
  context.beginPath();
  for (let x = left - height; x < left + width; x += 6) {
    context.moveTo(x, top + height);
    context.lineTo(x + height, top);
  }
  context.stroke();
  context.restore();
}

// A name on the left and its bytes on the right, as far as they fit.
function label(context, name, bytes, left, top, width, height, ink) {
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = ink;
  const y = top + height / 2 + 0.5;
  const room = width - 8 - context.measureText(bytes).width;
  context.textAlign = "right";
  context.fillText(bytes, left + width - 3, y);
  context.textAlign = "left";
  let letters = Math.floor((name.length * Math.max(0, room - 8)) / Math.max(1, context.measureText(name).width));
  while (letters > 3 && context.measureText(shortened(name, letters)).width > room - 6) letters -= 1;
  if (letters > 3 || letters >= name.length) context.fillText(shortened(name, letters), left + 3, y);
}

// What moves the step: from one computation to another in short legs, and on by itself while it plays.
const WHOLE = 40_000; // milliseconds in which a plan is played at speed 1, where its computations are many
const PACES = [16, 700]; // of a computation, at least and at most
const LEG = 260; // milliseconds from one computation to another when nothing plays
const HOPS = 12; // computations of a stage that are passed one by one
const SEEN = 80; // milliseconds from which on a movement is seen as one
const FRESH = 600; // milliseconds for which a block shines

const still = matchMedia("(prefers-reduced-motion: reduce)");

// `draw` gets the computation before, the one now, and how far it is between them, 0 to 1; `arrive` each one that is
// reached by playing; `isSeen` says whether anybody looks.
function stepPlayer({ draw, arrive, isSeen }) {
  let [from, to, begun, length] = [0, 0, 0, 0];
  let [legs, playing, pace, waited, last] = [[], false, LEG, 0, 0];
  let [count, running] = [0, false];
  const born = new Map(); // when each computation was reached

  const share = (now) => (length > 0 ? Math.min(1, (now - begun) / length) : 1);
  const eased = (x) => (x < 0.5 ? 2 * x * x : 1 - 2 * (1 - x) * (1 - x));
  const fresh = (c) => (still.matches ? 0 : Math.max(0, 1 - (performance.now() - (born.get(c) ?? -1e9)) / FRESH));

  function leg(target, time) {
    [from, to, begun, length] = [to, target, performance.now(), still.matches || time < SEEN ? 0 : time];
    const near = to > from && to - from <= HOPS;
    for (let c = near ? from + 1 : to; c <= to; c++) born.set(c, begun);
    if (born.size > 200) for (const [c, time] of born) if (begun - time > FRESH) born.delete(c);
  }

  function frame(now) {
    const elapsed = Math.min(now - last, 250);
    last = now;
    if (playing && isSeen()) {
      waited += elapsed;
      const steps = Math.floor(waited / pace);
      waited -= steps * pace;
      if (steps > 0) {
        leg(Math.min(count - 1, to + steps), 0.6 * pace);
        arrive(to);
      }
    } else if (legs.length > 0 && share(now) >= 1) leg(legs.shift(), length || LEG);
    draw(from, to, eased(share(now)));
    const busy = playing || legs.length > 0 || share(now) < 1 || [...born.values()].some((time) => now - time < FRESH);
    if (busy && !(still.matches && !playing && legs.length === 0)) requestAnimationFrame(frame);
    else running = false;
  }

  function run() {
    if (running) return;
    [running, last] = [true, performance.now()];
    requestAnimationFrame(frame);
  }

  return {
    fresh,
    get now() {
      return legs.length > 0 ? legs.at(-1) : to;
    },
    // Of another plan there is nothing to move from.
    begin(computations, c) {
      [count, from, to, length, legs] = [computations, c, c, 0, []];
      born.clear();
    },
    go(c) {
      const target = Math.max(0, Math.min(count - 1, c));
      legs = [];
      const hops = target - to;
      if (hops > 1 && hops <= HOPS && !still.matches) {
        legs = Array.from({ length: hops - 1 }, (_, i) => to + 2 + i);
        leg(to + 1, Math.max(SEEN, LEG / hops));
      } else if (target !== to) leg(target, LEG);
      run();
    },
    play(on, speed) {
      [playing, pace, waited] = [on, Math.max(PACES[0], Math.min(PACES[1], WHOLE / Math.max(count, 1))) / speed, 0];
      if (on) run();
    },
    run,
  };
}

// The step beside the model: two tanks of the same size, a slider over all computations, and captions. It reads the plan
// of the schedule (`steps`) and that of plain PyTorch (`plain`), and moves `computation` with its `stage`.
const TANKS = { schedule: "this schedule", plain: "plain PyTorch, which keeps everything" };

function stepView({ model, root, place, row, playhead, seen }) {
  place.innerHTML =
    `<div class="tanks"><canvas role="img"></canvas><div class="levels">` +
    Object.entries(TANKS).map(([name, text]) => `<p data-tank="${name}"><b></b> <span>${text}</span></p>`).join("") +
    `</div></div>`;
  row.innerHTML =
    `<button type="button" aria-label="Previous computation" title="Previous computation (comma)">‹</button>` +
    `<input type="range" min="0" aria-label="The computation that the step has come to">` +
    `<button type="button" aria-label="Next computation" title="Next computation (full stop)">›</button>` +
    `<p class="remat-step-said" role="status"><b class="stage"></b> <span class="now"></span></p>`;
  const [back, forward] = row.querySelectorAll("button");
  const slider = row.querySelector("input");
  const said = row.querySelector(".remat-step-said");
  const canvas = place.querySelector("canvas");
  const levels = Object.fromEntries(Object.keys(TANKS).map((name) => [name, place.querySelector(`[data-tank=${name}]`)]));
  const palette = () => model.get("palettes")[model.get("theme")];
  let [data, plan, plain, piles, sending] = [null, null, null, new Map(), false];

  const player = stepPlayer({ draw, arrive: send, isSeen: () => seen() && canvas.clientWidth > 0 });

  // The computation that stage and computation agree on: where they do not, the last one of the stage.
  function chosen() {
    const [c, stage] = [model.get("computation"), model.get("stage")];
    return plan.computations[c]?.stage === stage ? c : plan.lastOf(stage);
  }

  function send(c) {
    sending = true; // one of the two does not go without the other
    model.set("computation", c);
    model.set("stage", plan.computations[c].stage);
    sending = false;
    if (model.get("playing") && c === plan.count - 1) model.set("playing", false);
    model.save_changes();
    follow();
  }

  const move = (by) => plan && send(Math.max(0, Math.min(plan.count - 1, player.now + by)));
  const plainAt = (c) => plain.lastOf(Math.min(plan.distinct[c], plain.count) - 1);

  function pile(which, c) {
    const key = `${which} ${c}`;
    if (!piles.has(key)) {
      if (piles.size > 8) piles.delete(piles.keys().next().value);
      piles.set(key, piled((which === "plain" ? plain : plan).at(c), data.resident));
    }
    return piles.get(key);
  }

  function draw(from, to, share) {
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!plan || !plain || width === 0) return;
    const ratio = sharpness(canvas);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio))
      [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const budget = model.get("budget");
    const inner = height - 22;
    const scale = tankScale(data.resident, budget, Math.max(plan.highest[plan.count - 1], plain.highest[plain.count - 1]), inner);
    const host = model.get("host") ?? [];
    const across = (width - 46 - (host.length ? HOST + 16 : 0)) / 2;
    const boxes = [14, 32 + across].map((x) => ({ x, y: 16, width: across, height: inner }));
    const stage = plan.computations[to].stage;
    const common = { share, data, palette: palette() };
    drawTank(context, boxes[0], scale, {
      ...common, before: pile("plan", from), now: pile("plan", to), stage,
      flash: (block) => player.fresh(Math.floor(block.key / data.values.length)),
    });
    const [before, now] = [plainAt(from), plainAt(to)];
    drawTank(context, boxes[1], scale, {
      ...common, before: pile("plain", before), now: pile("plain", now), stage: plain.computations[now].stage, flash: () => 0,
    });
    if (host.length) drawHost(context, { x: 50 + 2 * across, y: 16, width: HOST, height: inner }, scale, host[from] ?? 0, host[to] ?? 0, share, data.resident, palette());
    drawMark(context, boxes[0], scale, plan.highest[to], palette());
    drawMark(context, boxes[1], scale, plain.highest[now], palette());
    drawBudget(context, scale, boxes, width, budget);
    playhead(from, to, share, plan.computations);
    root.dataset.computation = to;
    root.dataset.moving = share < 1;
  }

  function drawBudget(context, scale, [{ y, height }], width, budget) {
    if (!budget) return;
    const rim = y + height - scale.rim;
    context.strokeStyle = palette().budget;
    context.lineWidth = 1.5;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(0, rim);
    context.lineTo(width, rim);
    context.stroke();
    context.setLineDash([]);
  }

  // Captions, and what screen readers hear; while it plays they are not interrupted by every computation.
  function say() {
    const c = chosen();
    const [stage, budget] = [plan.computations[c].stage, model.get("budget")];
    slider.max = plan.count - 1;
    slider.value = c;
    back.disabled = c === 0;
    forward.disabled = c === plan.count - 1;
    said.setAttribute("aria-live", model.get("playing") ? "off" : "polite");
    sayStage(stage);
    said.querySelector(".now").textContent = computationWords(data, plan, c);
    said.title = said.textContent;
    const bytes = { schedule: plan.during[c], plain: plain.during[plainAt(c)] };
    for (const [name, level] of Object.entries(levels)) {
      const over = budget && bytes[name] > budget;
      const away = name === "schedule" && model.get("host")?.length ? ` and ${formatBytes(model.get("host")[c])} on the host` : "";
      level.querySelector("b").textContent = formatBytes(bytes[name]) + away + (over ? `, ${formatBytes(bytes[name] - budget)} over` : "");
      level.classList.toggle("over", Boolean(over));
      level.style.setProperty("--over", palette().over);
    }
    const words = Object.entries(levels).map(([name, level]) => `${TANKS[name]}: ${level.querySelector("b").textContent}`);
    canvas.setAttribute("aria-label", `Memory under a budget of ${formatBytes(budget)}; ${words.join("; ")}`);
  }

  // As many names as there is room for, and shorter ones before that is too little: what the stage is for comes last.
  function sayStage(stage) {
    const words = said.querySelector(".stage");
    for (const given of [[NAMED], [2], [1], [1, 26], [1, 18]]) {
      words.textContent = stageWords(data, plan, stage, ...given);
      if (words.scrollWidth <= words.clientWidth) return;
    }
  }

  function renew(latest) {
    data = latest;
    plan = stepPlan(model.get("steps"), data);
    plain = stepPlan(model.get("plain"), data);
    piles = new Map();
    place.hidden = row.hidden = !plan || !plain;
    if (place.hidden) return;
    player.begin(plan.count, chosen());
    player.play(model.get("playing"), model.get("speed"));
    say();
    player.run();
  }

  function follow() {
    if (place.hidden || !plan || sending) return;
    player.go(chosen());
    say();
  }

  back.addEventListener("click", () => move(-1));
  forward.addEventListener("click", () => move(1));
  slider.addEventListener("input", () => plan && send(Number(slider.value)));
  for (const name of ["stage", "computation"]) model.on(`change:${name}`, follow);
  for (const name of ["budget", "theme"]) model.on(`change:${name}`, () => plan && plain && (say(), player.run()));
  for (const name of ["playing", "speed"])
    model.on(`change:${name}`, () => {
      if (!plan || !plain) return;
      player.play(model.get("playing"), model.get("speed"));
      say();
    });
  return { renew, move, redraw: player.run, reached: (k) => plan === null || isReached(k) };

  // Whether an operation that runs in the stage has run already.
  function isReached(k) {
    const [first] = plan.within(model.get("stage"));
    const now = chosen();
    for (let c = first; c <= now; c++) if (plan.computations[c].operation === k) return true;
    return false;
  }
}
