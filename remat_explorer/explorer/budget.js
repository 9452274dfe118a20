// The budget: a slider whose marks can be clicked, from the bound that nothing can beat to beyond checkpoint-all.
const THUMB = 14;

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-budget";
  root.innerHTML =
    `<div class="remat-track"></div><input type="range" step="any" aria-label="Memory budget">` +
    `<div class="remat-marks"></div>`;
  el.append(root);
  const track = root.querySelector(".remat-track");
  const slider = root.querySelector("input");
  const marks = root.querySelector(".remat-marks");
  slider.dataset.lmSuppressShortcuts = "true";

  const share = (count) => (count - model.get("low")) / Math.max(model.get("high") - model.get("low"), 1);
  const position = (count) => `calc(${THUMB / 2}px + ${share(count)} * (100% - ${THUMB}px))`;

  function send(count) {
    model.set("value", Math.round(count));
    model.save_changes();
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
    slider.value = model.get("value");
    slider.disabled = model.get("high") <= model.get("low");
    root.dataset.value = model.get("value");
    marks.replaceChildren();
    const [known, all] = [model.get("known"), model.get("checkpoint_all")];
    if (slider.disabled) return;
    const from = known || model.get("low");
    track.style.background =
      `linear-gradient(to right, var(--remat-unknown) ${100 * share(from)}%, var(--remat-useful) ${100 * share(from)}% ` +
      `${100 * share(all)}%, var(--remat-idle) ${100 * share(all)}%)`;
    const side = (count) => (share(count) > 0.4 ? "before" : "after");
    const smallest = known
      ? mark(known, `smallest feasible ${formatBytes(known)}`, "Smallest budget known to be feasible.", side(known))
      : null;
    const most = mark(all, `checkpoint-all ${formatBytes(all)}`, "Here nothing needs to be recomputed.", side(all));
    if (smallest === null) return;
    const [first, last] = [smallest, most].map((label) => label.getBoundingClientRect());
    if (first.right > last.left && first.left < last.right) {
      most.textContent = `${smallest.textContent} · ${most.textContent}`; // no room for both: one label, two ticks
      smallest.textContent = "";
    }
  }

  slider.addEventListener("input", () => {
    root.dataset.value = slider.value;
    model.set("moving", Math.round(Number(slider.value)));
    model.save_changes();
  });
  slider.addEventListener("change", () => send(Number(slider.value)));
  for (const name of ["low", "high", "value", "known", "checkpoint_all"]) model.on(`change:${name}`, draw);
  const sizes = new ResizeObserver(draw);
  sizes.observe(root);
  return () => sizes.disconnect();
}

export default { render };
