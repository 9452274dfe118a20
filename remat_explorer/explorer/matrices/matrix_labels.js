// The labels of repeated blocks over the columns: a click folds a block, or unfolds it; so do the keys f and F.
const STRIP = 18; // pixels above the cells for them

// Brings the buttons over a matrix up to date; those over R are in the order of the Tab key, others say the same again.
function showLabels(view, panel, area, { blocks, folded, blockOf, reason, toggle }) {
  const wanted = reason ? [] : stretchesOf(panel.ids, blockOf);
  while (view.labels.children.length > wanted.length) view.labels.lastChild.remove();
  wanted.forEach(({ block, from, to }, i) => {
    const button = view.labels.children[i] ?? view.labels.appendChild(element("button", "remat-fold"));
    const { label, operations } = blocks[block];
    const isFolded = folded.includes(block);
    const across = area.width / panel.ids.length;
    const name = `${label} × ${operations.length}`;
    Object.assign(button, { type: "button", tabIndex: view.name === "R" ? 0 : -1, onclick: () => toggle(block) });
    button.textContent = textFor(view.overlay.getContext("2d"), isFolded ? "▸" : "▾", name, operations.length, (to + 1 - from) * across);
    button.title = isFolded
      ? `One copy stands for ${operations.length}: ${label}. Click, or press f, to unfold them.`
      : `${operations.length} copies of ${operations[0].length} operations: ${label}. Click, or press f, to fold them.`;
    button.setAttribute("aria-label", `${isFolded ? "Unfold" : "Fold"} ${name}`);
    button.setAttribute("aria-expanded", String(!isFolded));
    button.dataset.block = block;
    Object.assign(button.style, { left: `${area.left + from * across}px`, width: `${(to + 1 - from) * across}px` });
  });
}

// As much as fits: name and number of copies, their number, or nothing but whether it is folded.
function textFor(context, mark, name, copies, room) {
  context.font = `11px ${FONT}`;
  const fits = (text) => context.measureText(text).width <= room - 9; // without its margins
  return [`${mark} ${name}`, `${mark} × ${copies}`].find(fits) ?? mark;
}

// The block of each operation or value, of all blocks whether folded or not.
function blocksOf(blocks, count, kind) {
  const block = new Int32Array(count).fill(-1);
  blocks.forEach((one, number) => one[kind].forEach((row) => row.forEach((id) => (block[id] = number))));
  return block;
}

// What folds and unfolds; `panel(view)` and `data` as for the pointer.
function foldsOf({ model, root, data }) {
  const blocks = () => model.get("blocks") ?? [];
  const folded = () => model.get("folded") ?? [];
  function choose(numbers) {
    model.set("folded", numbers.sort((a, b) => a - b));
    model.save_changes();
  }
  const toggle = (number) => choose(folded().includes(number) ? folded().filter((one) => one !== number) : [...folded(), number]);
  const all = () => choose(folded().length === blocks().length ? [] : blocks().map((_, i) => i));
  let known = { blocks: null };
  function places() {
    if (known.blocks !== blocks() || known.data !== data())
      known = {
        blocks: blocks(),
        data: data(),
        operations: blocksOf(blocks(), data().operations.length, "operations"),
        values: blocksOf(blocks(), data().values.length, "values"),
      };
    return known;
  }
  root.addEventListener("keydown", (event) => {
    if (!["f", "F"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (noFolding(model, data())) return;
    const block = places().values[model.get("value")] ?? -1;
    if (event.key === "F" || block < 0) all();
    else toggle(block);
    event.preventDefault();
    event.stopPropagation();
  });
  function show(views, panels, box) {
    const reason = noFolding(model, data());
    for (const view of views) {
      const at = places()[view.name === "S" ? "values" : "operations"];
      showLabels(view, panels[view.name], box(view), { blocks: blocks(), folded: folded(), blockOf: (id) => at[id], reason, toggle });
    }
  }
  return { show };
}
