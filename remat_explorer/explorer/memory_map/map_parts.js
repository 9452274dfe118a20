// The elements of the map: heading with its buttons, canvas, legend, and the table of two moments.
const MAP_KEYS =
  "Click: select a value and the stage. Arrow left and right: stage; arrow up and down: the next value in memory; " +
  "Page up, Page down, Home, End: further; Space: play the stages; Shift and drag, + and -: zoom in time; " +
  "Escape or double click: show the whole; P: compare with this stage; C: colours of kinds or of layers.";
const TIME_WORDS = "stage, as wide as what it computes";
const UNFOLDED_WORDS = "not folded, because each copy of a block has its own bytes";
const CHOICES = {
  kind: ["Kind", "Colours show which values are kept, temporary, gradients, or computed again (key C)."],
  layer: ["Layer", "Colours show the layer that a value belongs to (key C)."],
};
const COMPARISONS = {
  pin: ["Pin stage", "Compare the memory of this stage with that of each stage you select next (key P)."],
  peaks: ["Peaks", "Compare the peak with that of the pinned schedule, or of keeping everything."],
  stop: ["×", "Stop comparing."],
};

function mapButtons(group, entries, buttons) {
  for (const [name, [text, hint]] of Object.entries(entries)) {
    const button = (buttons[name] = element("button", "", text));
    button.type = "button";
    button.title = hint;
    button.setAttribute("aria-label", hint);
    group.append(button);
  }
  return group;
}

function buildMap() {
  const root = element("div", "remat-map");
  const buttons = {};
  const caption = element("div", "caption");
  const [heading, words, picked] = [element("b", "", "Memory map"), element("span", "words"), element("span", "remat-picked")];
  const tools = element("span", "remat-zoom");
  tools.append(element("span", "said", "Colours"));
  mapButtons(tools, CHOICES, buttons);
  tools.append(element("span", "said", "Compare"));
  mapButtons(tools, COMPARISONS, buttons);
  tools.append(element("span", "said", ""), ...zoomButtons(buttons).children);
  caption.append(heading, words, picked, tools);
  const [body, frame, table] = [element("div", "body"), element("div", "remat-canvas"), element("div", "remat-moments")];
  frame.tabIndex = 0;
  frame.setAttribute("role", "application");
  frame.setAttribute("aria-roledescription", "memory map");
  table.hidden = true;
  table.tabIndex = 0;
  table.setAttribute("role", "region");
  table.setAttribute("aria-label", "Two moments compared");
  const [cells, overlay] = [document.createElement("canvas"), document.createElement("canvas")];
  frame.append(cells, overlay);
  body.append(frame, table);
  const [legendLine, tip, live] = [element("div", "remat-legend"), element("div", "remat-tip"), element("div", "remat-live")];
  live.setAttribute("role", "status");
  live.setAttribute("aria-live", "polite");
  root.append(caption, body, legendLine, tip, live);
  return { root, words, picked, buttons, frame, cells, overlay, table, legend: legendLine, tip, live };
}

function mapLegend(parts, model, data, space, colours, moments) {
  const made = [];
  const entry = (look, text) => {
    const item = element("span", "");
    const mark = document.createElement("i");
    Object.assign(mark.style, look);
    item.append(mark, text);
    made.push(item);
  };
  const line = (colour, style) => ({ height: "0", borderTop: `2px ${style} ${colour}`, verticalAlign: "3px", borderRadius: "0" });
  if (moments) {
    [colours.only_first, colours.both, colours.only_second].forEach((colour, i) => entry({ background: colour }, moments.words[i]));
  } else if (model.get("map_colours") === "kind") {
    const words = { recomputed: "computed again" };
    model.get("kinds").forEach((kind, i) => data.kind?.includes(i) && entry({ background: colours.kinds[i] }, words[kind] ?? kind));
  } else {
    data.groups.slice(0, GROUPS_NAMED).forEach((name, i) => entry({ background: groupColour(colours, i) }, name));
    if (data.groups.length > GROUPS_NAMED) made.push(element("span", "", `… ${data.groups.length} in all, colours repeat`));
  }
  entry(line(colours.predicted, "solid"), "in use, predicted");
  if (data.measured.length) entry(line(colours.measured, "dotted"), "measured");
  const budget = model.get("budget");
  if (budget) entry(line(colours.budget, "dashed"), `budget ${formatBytes(budget)}${space.budgetFits ? "" : ", above"}`);
  parts.legend.replaceChildren(...made);
}

const GROUPS_NAMED = 9;
