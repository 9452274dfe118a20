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
    const across = (width - 46) / 2;
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
      level.querySelector("b").textContent = formatBytes(bytes[name]) + (over ? `, ${formatBytes(bytes[name] - budget)} over` : "");
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
