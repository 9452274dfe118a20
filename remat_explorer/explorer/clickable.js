// HTML from the kernel in which names, rows and buttons can be clicked, or reached with Tab and pressed with Enter.
// What has data-value, data-stage or data-action sends them to the kernel. In an element of class "roving" the arrow
// keys move between the buttons, and Tab enters it once.
const TARGET = "[data-value], [data-stage], [data-action]";

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-clickable";
  root.tabIndex = -1;
  root.dataset.lmSuppressShortcuts = "true"; // or JupyterLab takes Enter and the arrows for its cells
  root.setAttribute("role", "region");
  el.append(root);

  const key = (target) => target && JSON.stringify([target.textContent, { ...target.dataset }]);

  function draw() {
    const focused = root.contains(document.activeElement) ? key(document.activeElement) : null;
    const before = root.firstElementChild?.dataset.scroll;
    const top = root.scrollTop;
    root.innerHTML = model.get("html");
    root.setAttribute("aria-label", model.get("label"));
    for (const list of root.querySelectorAll(".roving"))
      list.querySelectorAll("button").forEach((button, place) => (button.tabIndex = place === 0 ? 0 : -1));
    root.scrollTop = before !== undefined && root.firstElementChild?.dataset.scroll === before ? top : 0;
    if (focused === null) return;
    const again = [...root.querySelectorAll("button")].find((button) => key(button) === focused);
    (again ?? root).focus({ preventScroll: true });
  }

  root.addEventListener("click", (event) => {
    const target = event.target.closest(TARGET);
    if (!target || !root.contains(target)) return;
    const number = (name) => (target.dataset[name] === undefined ? null : Number(target.dataset[name]));
    model.send({ value: number("value"), stage: number("stage"), action: target.dataset.action ?? "" });
  });

  root.addEventListener("keydown", (event) => {
    const list = event.target.closest(".roving");
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!list || step === undefined) return;
    const buttons = [...list.querySelectorAll("button")];
    const place = buttons.indexOf(event.target);
    if (place < 0) return;
    const next = buttons[Math.min(Math.max(place + step, 0), buttons.length - 1)];
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });

  model.on("change:html", draw);
  draw();
}

export default { render };
