// The budget: a slider whose marks can be clicked, from the bound that nothing can beat to beyond checkpoint-all.
const THUMB = 14;
const PATIENCE = 1000; // milliseconds after which an answer to a position is no longer waited for

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-budget";
  root.innerHTML =
    `<div class="remat-track"></div><input type="range" step="any" aria-label="Memory budget">` +
    `<div class="remat-ticks" aria-hidden="true"></div><div class="remat-marks"></div>`;
  el.append(root);
  const track = root.querySelector(".remat-track");
  const slider = root.querySelector("input");
  const marks = root.querySelector(".remat-marks");
  const ticks = root.querySelector(".remat-ticks");

  const share = (count) => (count - model.get("low")) / Math.max(model.get("high") - model.get("low"), 1);
  const position = (count) => `calc(${THUMB / 2}px + ${share(count)} * (100% - ${THUMB}px))`;

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

  function mark(count, text, hint, anchor) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = `remat-mark ${anchor}`;
    button.style.left = position(count);
    button.textContent = text;
    button.title = `${hint} Click to set the budget to ${count.toLocaleString("en")} bytes.`;
    button.addEventListener("click", () => send(count));
    marks.append(button);
    return button;
  }

  function draw() {
    slider.min = model.get("low");
    slider.max = model.get("high");
    const shown = model.get("dragged") || model.get("value"); // the thumb stays under the pointer, whatever comes
    slider.value = shown;
    slider.disabled = model.get("high") <= model.get("low");
    slider.setAttribute("aria-valuetext", formatBytes(shown));
    slider.title = "Drag to see the best schedule known within the budget. Release to improve it in the background.";
    root.dataset.value = shown;
    drawTicks();
    marks.replaceChildren();
    const [known, all] = [model.get("known"), model.get("checkpoint_all")];
    if (slider.disabled) return;
    const from = known || model.get("low");
    track.style.background =
      `linear-gradient(to right, transparent ${100 * share(from)}%, var(--remat-useful) ${100 * share(from)}% ` +
      `${100 * share(all)}%, var(--remat-idle) ${100 * share(all)}%), var(--remat-unknown)`;
    const side = (count) => (share(count) > 0.4 ? "before" : "after");
    const smallest = known
      ? mark(known, `smallest known ${formatBytes(known)}`, "Smallest budget for which a schedule is known.", side(known))
      : null;
    const most = mark(all, `keep everything ${formatBytes(all)}`, "Checkpoint-all: here nothing needs to be recomputed.", side(all));
    if (smallest === null) return;
    const [first, last] = [smallest, most].map((label) => label.getBoundingClientRect());
    if (first.right > last.left && first.left < last.right) {
      most.textContent = `${smallest.textContent} · ${most.textContent}`; // no room for both: one label, two ticks
      smallest.textContent = "";
    }
  }

  function drawTicks() {
    const inside = model.get("ticks").filter((count) => count >= model.get("low") && count <= model.get("high"));
    ticks.replaceChildren(
      ...inside.map((count) => {
        const tick = document.createElement("i");
        tick.style.left = position(count);
        return tick;
      }),
    );
  }

  slider.addEventListener("input", () => {
    root.dataset.value = slider.value;
    slider.setAttribute("aria-valuetext", formatBytes(Number(slider.value)));
    wished = Number(slider.value);
    model.set("dragged", wished); // the page draws it
    plan(); // and the kernel is told
  });
  slider.addEventListener("change", () => {
    wished = null; // the budget is set, which shows its schedule, too
    model.set("dragged", 0);
    send(Number(slider.value));
  });
  model.on("change:answered", answered);
  model.on("change:ticks", drawTicks);
  for (const name of ["low", "high", "value", "known", "checkpoint_all"]) model.on(`change:${name}`, draw);
  const sizes = new ResizeObserver(draw);
  sizes.observe(root);
  return () => sizes.disconnect();
}

export default { render };
