// A presentation: the explorer fills the screen in large type, and keys go from scene to scene. Which scene it is and
// what is said comes from the model; what the scenes show is done by whoever has it.
const NEXT = ["PageDown", "ArrowRight", "ArrowDown", " ", "Enter"];
const BACK = ["PageUp", "ArrowLeft", "ArrowUp", "Backspace"];

function render({ model, el }) {
  const bar = document.createElement("div");
  bar.className = "remat-presenter";
  const button = (text, label, press) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.title = label;
    if (text.length === 1) made.setAttribute("aria-label", label);
    made.addEventListener("click", press);
    bar.append(made);
    return made;
  };
  const start = button("Present", "Show scenes of this model one after another, in large type, on the full screen", begin);
  const caption = document.createElement("p");
  caption.className = "caption";
  caption.setAttribute("role", "status");
  bar.append(caption);
  const count = document.createElement("span");
  bar.append(count);
  const back = button("‹", "The previous scene (Page up)", () => go(-1));
  const next = button("›", "The next scene (Page down)", () => go(1));
  const whole = button("Full screen", "Full screen on or off (F)", () => wholeScreen(!document.fullscreenElement));
  const close = button("✕", "End the presentation (Escape)", () => set(-1));
  el.append(bar);
  const root = () => el.closest(".remat-explorer");
  let [shown, filled] = [false, false];

  function set(scene) {
    model.set("scene", scene);
    model.save_changes();
  }

  function go(by) {
    set(Math.max(0, Math.min(model.get("count") - 1, model.get("scene") + by)));
  }

  function begin() {
    wholeScreen(true);
    model.send({ present: true });
  }

  // A browser allows it only where a person has asked, and may refuse.
  async function wholeScreen(on) {
    try {
      if (on) await document.documentElement.requestFullscreen();
      else if (document.fullscreenElement) await document.exitFullscreen();
      filled = on && document.fullscreenElement !== null;
    } catch {
      filled = false;
    }
  }

  // Above everything else on the page, whatever it lies in.
  function lift(on) {
    const explorer = root();
    explorer.classList.toggle("remat-presenting", on);
    if (explorer === document.body) return;
    if (on) {
      explorer.setAttribute("popover", "manual");
      explorer.showPopover?.();
    } else {
      explorer.hidePopover?.();
      explorer.removeAttribute("popover");
      explorer.scrollIntoView({ block: "nearest" });
    }
  }

  function draw() {
    const scene = model.get("scene");
    const on = scene >= 0;
    if (!root()) return void requestAnimationFrame(draw);
    start.hidden = on;
    for (const part of [caption, count, back, next, whole, close]) part.hidden = !on;
    caption.textContent = model.get("caption");
    count.textContent = `${scene + 1} of ${model.get("count")}`;
    back.disabled = scene <= 0;
    next.disabled = scene >= model.get("count") - 1;
    bar.dataset.scene = scene;
    if (on === shown) return;
    shown = on;
    lift(on);
    if (on) next.focus({ preventScroll: true });
    else {
      wholeScreen(false);
      start.focus({ preventScroll: true });
    }
  }

  // The explorer's own keys stay where they are at home: sliders, matrices, fields.
  function press(event) {
    if (!shown || event.ctrlKey || event.metaKey || event.altKey) return;
    const own = event.target.closest?.("input, select, textarea, [tabindex='0'], button");
    const free = !own || bar.contains(own);
    const page = event.key === "PageDown" || event.key === "PageUp"; // the keys of a remote control
    const pressed = (event.key === " " || event.key === "Enter") && own && bar.contains(own) && own !== next;
    if (event.key === "Escape") set(-1);
    else if ((event.key === "f" || event.key === "F") && free) wholeScreen(!document.fullscreenElement);
    else if (!pressed && NEXT.includes(event.key) && (free || page)) go(1);
    else if (!pressed && BACK.includes(event.key) && (free || page)) go(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function left() {
    if (filled && !document.fullscreenElement && shown) set(-1); // Escape of the browser's own
  }

  for (const name of ["scene", "count", "caption"]) model.on(`change:${name}`, draw);
  document.addEventListener("keydown", press, true);
  document.addEventListener("fullscreenchange", left);
  draw();
  return () => {
    if (shown && root()) lift(false);
    document.removeEventListener("keydown", press, true);
    document.removeEventListener("fullscreenchange", left);
  };
}

export default { render };
