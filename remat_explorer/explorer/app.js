// What ipywidgets leaves on the page of a kernel that has ended looks alive, and raises an error at each click.
// Here it is told in words, and takes no clicks and keys until a kernel answers again.
const WORDS = "The kernel was restarted or has ended: run the cell again.";

function kernelTold(explorer, el, banner) {
  const ended = explorer.classList.contains("jupyter-widgets-disconnected");
  if (ended === (banner.textContent !== "")) return;
  banner.textContent = ended ? WORDS : "";
  for (const row of explorer.children) row.inert = ended && !row.contains(el);
}

// Whether the second row was open is the person's choice, whichever explorer is shown next. A page may have no memory.
const OPEN = "remat-explorer.more";

function remembered() {
  try {
    return localStorage.getItem(OPEN) === "yes";
  } catch {
    return false;
  }
}

function remember(open) {
  try {
    localStorage.setItem(OPEN, open ? "yes" : "no");
  } catch {
    // then it begins closed the next time, too
  }
}

// Attributes are set only where they differ: each change calls this again.
function set(element, name, value) {
  if (element && element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Switches are tabs: Tab enters each of them once, and the arrow keys go on from there.
const SWITCHES = { ".remat-tabs": "Panels", ".remat-scrubber": "Pictures" };

function named(explorer) {
  set(explorer.querySelector(".remat-bandwidth .noUi-handle"), "aria-label", "Bandwidth to the host and back");
  for (const [place, label] of Object.entries(SWITCHES)) {
    const tabs = explorer.querySelector(`${place} .widget-toggle-buttons`);
    if (!tabs) continue;
    set(tabs, "role", "tablist");
    set(tabs, "aria-label", label);
    const buttons = [...tabs.querySelectorAll("button")];
    const chosen = Math.max(0, buttons.findIndex((button) => button.classList.contains("mod-active")));
    buttons.forEach((button, i) => {
      set(button, "role", "tab");
      set(button, "aria-selected", String(button.classList.contains("mod-active")));
      set(button, "tabindex", i === chosen ? "0" : "-1");
    });
  }
}

function switchByKeys(event) {
  const tabs = event.target.closest?.("[role=tablist]");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!tabs || !step) return;
  const buttons = [...tabs.querySelectorAll("button")];
  const next = buttons[(buttons.indexOf(event.target) + step + buttons.length) % buttons.length];
  next.focus();
  next.click();
  event.preventDefault();
}

// The names in a list under the groups they are of, which are told in the order of the list.
function group(explorer, groups) {
  for (const [title, names] of Object.entries(groups)) {
    const list = explorer.querySelector(`.remat-list-${title} select`);
    if (!list || list.querySelector(":scope > option") === null) continue;
    const chosen = list.selectedOptions[0]; // an entry that is moved is chosen no more
    for (const [label, members] of names) {
      const entries = [...list.querySelectorAll(":scope > option")].filter((entry) => members.includes(entry.text.split(/\s/)[0]));
      if (!entries.length) continue;
      const made = Object.assign(document.createElement("optgroup"), { label });
      entries[0].before(made);
      made.append(...entries);
    }
    if (chosen) chosen.selected = true;
  }
}

// Keys that are pressed in the explorer are its own, not the notebook's, but for those with Ctrl or Cmd, such as
// Ctrl+S to save, and Shift+Enter to run the cell. JupyterLab asks the element that has the focus for this attribute.
const OWN_KEYS = "data-lm-suppress-shortcuts";

function keepKeys(event, explorer) {
  const { target } = event;
  if (!(target instanceof Element) || !explorer.contains(target)) return;
  const passed = event.ctrlKey || event.metaKey || (event.shiftKey && event.key === "Enter");
  if (passed) target.removeAttribute(OWN_KEYS);
  else set(target, OWN_KEYS, "true");
}

// Entries of the list of strategies that the graph is not for say why, and cannot be chosen; those that it is for in
// part say for which.
function showFits(explorer, fits) {
  for (const entry of explorer.querySelectorAll(".remat-more option")) {
    const fit = fits[entry.text.split(/\s/)[0]];
    const isRefused = Boolean(fit?.is_refused);
    if (entry.disabled !== isRefused) entry.disabled = isRefused;
    if (fit) set(entry, "title", fit.reason);
    else entry.removeAttribute("title");
  }
}

function render({ model, el }) {
  const banner = document.createElement("div");
  banner.className = "remat-gone";
  banner.setAttribute("role", "alert");
  el.append(banner);
  let explorer = null;
  if (remembered() && !model.get("more")) {
    model.set("more", true);
    model.save_changes();
  }
  const opened = () => remember(model.get("more"));
  model.on("change:more", opened);
  const look = () => {
    if (!explorer) return;
    named(explorer);
    group(explorer, model.get("groups"));
    showFits(explorer, model.get("fits"));
  };
  // What is written and drawn all the time has no lists and no switches.
  const isOurs = ({ target }) => !target.closest(".remat-clickable, .remat-curve, .remat-matrices, .remat-map, .remat-model");
  const changes = new MutationObserver((records) => {
    if (!records.some(isOurs)) return;
    look();
    kernelTold(explorer, el, banner); // the explorer's own view may hear of its kernel long after this one
  });
  model.on("change:fits", look);
  // the explorer's own view hears of its kernel beside this one, before or after
  const told = () =>
    setTimeout(() => {
      explorer ??= el.closest(".remat-explorer"); // on a slow page nobody has looked yet
      if (explorer) kernelTold(explorer, el, banner);
    });
  const pressed = (event) => {
    if (!explorer) return;
    keepKeys(event, explorer);
    if (explorer.contains(event.target)) switchByKeys(event);
  };
  window.addEventListener("keydown", pressed, true); // before the notebook looks at the attribute
  model.on("comm_live_update", told);
  const waiting = setInterval(() => {
    explorer = el.closest(".remat-explorer");
    if (!explorer) return;
    clearInterval(waiting);
    look();
    changes.observe(explorer, { subtree: true, childList: true, attributes: true, attributeFilter: ["class"] });
  }, 100);
  return () => {
    model.off("comm_live_update", told);
    window.removeEventListener("keydown", pressed, true);
    model.off("change:more", opened);
    model.off("change:fits", look);
    clearInterval(waiting);
    changes.disconnect();
  };
}

export default { render };
