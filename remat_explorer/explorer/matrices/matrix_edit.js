// Editing S by hand. A page without a kernel has no `editing`, and then none of this is there.
const EDIT = "Keep and drop values by hand: click a cell of S, or drag over several; Enter at the cursor; u undoes.";

// What `listenToPointer` asks: whether a press in a view edits, and what to do when it ends.
function editsOf({ model, data, part, panel }) {
  const on = () => Boolean(model.get("editing"));
  const fixed = (value) => model.get("fixed").includes(value);
  const ask = (cells) => model.send({ cells });
  const flip = (stage, value) => ask({ stage, value });
  // A rectangle keeps or drops, whichever its first cell is not.
  function paint(view, from, to) {
    const [left, right] = [from.column, to.column].sort((a, b) => a - b);
    const values = Array.from(panel(view).ids.slice(left, right + 1));
    ask({ stages: [from.stage, to.stage], values, keep: !data().mayKeep(from.stage, from.id) });
  }
  function end(view, { from, to }, still) {
    if (still || (from.stage === to.stage && from.id === to.id)) flip(from.stage, from.id);
    else paint(view, from, to);
  }
  function hint(stage, value) {
    if (!on()) return "";
    if (fixed(value)) return " – cannot be changed: " + (data().keptAt(part().last, value) ? "it stays to the end" : "nothing reads it");
    if (stage <= data().values[value][2]) return ` – not computed before stage ${data().values[value][2]}`;
    return data().mayKeep(stage, value) ? " – click: drop it up to its next use" : " – click: keep it up to its next use";
  }
  return { at: (view) => on() && view.name === "S", flip, end, hint };
}

// The button over S, and the keys; returns what takes the keys away again.
function listenToEdits({ model, root, views }, edits) {
  if (model.get("editing") === undefined) return () => {};
  const view = views.find(({ name }) => name === "S");
  const button = element("button", "remat-edit", "Edit");
  button.type = "button";
  const group = element("span", "remat-zoom");
  group.append(button);
  view.picked.after(group);
  button.addEventListener("click", () => model.send({ edit: !model.get("editing") }));

  function show() {
    const [on, reason] = [model.get("editing"), model.get("no_editing")];
    button.setAttribute("aria-pressed", String(on));
    button.disabled = Boolean(reason);
    button.title = reason || EDIT;
    button.setAttribute("aria-label", reason ? `Edit by hand: ${reason}` : `Edit by hand. ${EDIT}`);
    root.dataset.editing = on;
  }

  root.addEventListener("keydown", (event) => {
    if (!model.get("editing") || event.target !== root || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      Enter: () => edits.flip(model.get("stage"), model.get("value")),
      u: () => model.send({ step: "undo" }),
      U: () => model.send({ step: "redo" }),
    };
    if (!(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });

  // Ctrl or Cmd with Z and Y are the schedule's while it is edited here, before the notebook takes them for its cells.
  function undoKeys(event) {
    if (!model.get("editing") || !(event.ctrlKey || event.metaKey) || event.altKey || !root.contains(event.target)) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    model.send({ step: key === "y" || event.shiftKey ? "redo" : "undo" });
    event.preventDefault();
    event.stopImmediatePropagation();
  }
  window.addEventListener("keydown", undoKeys, true);
  for (const name of ["editing", "no_editing"]) model.on(`change:${name}`, show);
  show();
  return () => window.removeEventListener("keydown", undoKeys, true);
}
