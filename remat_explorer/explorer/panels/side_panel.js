// HTML from the kernel in which names, rows and buttons can be clicked, or reached with Tab and pressed with Enter.
// What has data-value, data-stage or data-action sends them to the kernel. In an element of class "roving" the arrow
// keys move between the names, and Tab enters it once.
const NAMES = "button, [role=button]";
const TARGET = "[data-value], [data-stage], [data-action]";

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-clickable";
  root.setAttribute("role", "region");
  el.append(root);

  const key = (target) => target && JSON.stringify([target.textContent, { ...target.dataset }]);

  let opened = false; // what a person has opened stays open
  let top = 0; // how far it is scrolled, as the page has told: to ask it would have it laid out anew
  root.addEventListener("scroll", () => (top = root.scrollTop));

  function draw() {
    const focused = root.contains(document.activeElement) ? key(document.activeElement) : null;
    const before = root.firstElementChild?.dataset.scroll;
    opened = root.querySelector("details")?.open ?? opened;
    root.innerHTML = model.get("html");
    root.querySelector("details")?.toggleAttribute("open", opened);
    root.setAttribute("aria-label", model.get("label"));
    root.tabIndex = root.querySelector(`${NAMES}, summary`) ? -1 : 0; // what has no control is scrolled by keys itself
    for (const list of root.querySelectorAll(".roving"))
      list.querySelectorAll(NAMES).forEach((name, place) => (name.tabIndex = place === 0 ? 0 : -1));
    if (top) root.scrollTop = before !== undefined && root.firstElementChild?.dataset.scroll === before ? top : 0;
    if (focused === null) return; // what was pressed keeps the focus, so that keys go on from there
    const again = [...root.querySelectorAll(NAMES)].find((name) => key(name) === focused);
    if (again) again.tabIndex = 0;
    (again ?? root).focus({ preventScroll: true });
  }

  // What is pointed at is shown elsewhere on the page, too.
  function point(value) {
    if (model.get("hovered") === undefined || model.get("hovered") === value) return;
    model.set("hovered", value);
    model.save_changes();
  }
  root.addEventListener("pointerover", (event) => point(Number(event.target.closest("tr[data-value]")?.dataset.value ?? -1)));
  root.addEventListener("pointerleave", () => point(-1));

  root.addEventListener("click", (event) => {
    const target = event.target.closest(TARGET);
    if (!target || !root.contains(target)) return;
    const number = (name) => (target.dataset[name] === undefined ? null : Number(target.dataset[name]));
    model.send({ value: number("value"), stage: number("stage"), action: target.dataset.action ?? "" });
  });

  root.addEventListener("keydown", (event) => {
    if (event.target.getAttribute("role") === "button" && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      event.target.click();
      return;
    }
    const list = event.target.closest(".roving");
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!list || step === undefined) return;
    const names = [...list.querySelectorAll(NAMES)];
    const place = names.indexOf(event.target);
    if (place < 0) return;
    const next = names[Math.min(Math.max(place + step, 0), names.length - 1)];
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });

  model.on("change:html", draw);
  draw();
}

export default { render };
