// What the cells of R, S and U mean: their colours, their texts, and which value a column stands for.
const NEAR = 0.98; // share of the budget from which a cell of U is outlined
const ROUNDED = 1.00002; // memory arrives in 65,535 steps
const HERE = ["in neither schedule", "in both schedules", "only in the schedule on the screen", "only in the compared schedule"];

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function ramp(colours, share) {
  const at = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(at), colours.length - 2);
  const [from, to] = [colours[low], colours[low + 1]];
  return from.map((part, i) => Math.round(part + (to[i] - part) * (at - low)));
}

// Whether the colours of R tell implementations.
const waysShown = (model, data) => data.rows > 0 && !data.comparedR && model.get("colouring") === "implementation";

// What may be kept, though nothing reads it there.
const pale = ({ empty, kept }) => ramp([rgb(empty), rgb(kept)], 0.3);

function panels(model, data, part) {
  const { operations, values, stages, comparedR, comparedS } = data;
  const [byWay, kindColours] = [waysShown(model, data), model.get("kinds")];
  const memory = (level) => (level / 65535) * model.get("largest");
  const kinds = ["not computed in this stage", "computed for the first time", "computed for the first time", "recomputed"];
  const differences = (palette) => [palette.empty, palette.both, palette.only_first, palette.only_second].map(rgb);
  const describe = (k) => `${operations[k][0]} (operation ${k}, ${operations[k][1]}, ${operations[k][2]})`;
  const none = (t) => (t < stages ? "" : "; the schedule on the screen has no such stage");
  const operationOf = (v) => (values[v] ? values[v][2] : -1);
  const withOperations = {
    describe,
    title: "operation",
    ids: part.operations,
    at: (k) => (k >= part.operations[0] && k <= part.operations[part.operations.length - 1] ? placeIn(part.operations, k) : -1),
    name: (k) => operations[k][0],
    operation: (k) => k,
    valueOf: (k) => operations[k][3],
    idOf: operationOf,
    count: operations.length,
  };
  const inLayers = (layers) => (t, id) => layers.some((layer) => hasBit(layer, t, id));
  return {
    R: {
      ...withOperations,
      sparse: true, // single cells are drawn at least two pixels wide
      layers: comparedR,
      computations: byWay ? data.byWay() : data.R,
      isFilled: comparedR ? inLayers(comparedR) : (t, k) => data.codeAt(t, k) > 0,
      colours(palette) {
        if (comparedR) return differences(palette);
        const [light, { forward, backward, recompute }] = [palette === model.get("palettes").light, palette];
        const kinds = byWay ? kindColours.map((kind) => kind[light ? 1 : 2]) : [forward, backward, recompute];
        return [palette.empty, ...kinds].map(rgb);
      },
      colour: (level, colours) => colours[level],
      text(t, k) {
        const cell = data.codeAt(t, k);
        const way = operations[k][4].length && cell ? ` by its implementation ${operations[k][4][(cell >> 2) - 1]}` : "";
        const differs = comparedR ? levelIn(comparedR, t, k) : 0;
        if (differs || t >= stages) return `${describe(k)}: computed ${HERE[differs]}${way}${none(t)}`;
        return `${describe(k)}: ${kinds[cell & 3]}${way}`;
      },
      picked: (t, k) => operations[k][0],
    },
    S: {
      title: "value",
      ids: part.values,
      at: (v) => part.column[v] ?? -1,
      name: (v) => values[v][0],
      operation: operationOf,
      valueOf: (v) => v,
      idOf: (v) => v,
      count: values.length,
      layers: comparedS || data.S,
      isFilled: inLayers(comparedS || data.S),
      colours: (palette) => (comparedS ? differences(palette) : [rgb(palette.empty), rgb(palette.kept), pale(palette)]),
      colour: (level, colours) => colours[level],
      text(t, v) {
        const differs = comparedS ? levelIn(comparedS, t, v) : 0;
        let kept = data.keptAt(t, v) ? "kept from the stage before" : "not in memory when the stage begins";
        if (data.inVainAt(t, v)) kept = "may be kept, but nothing reads it there, and the plan does not hold it";
        if (differs || t >= stages) kept = `kept ${HERE[differs]}${none(t)}`;
        return `${values[v][0]} (value ${v}, ${formatBytes(values[v][1])}): ${kept}`;
      },
      picked: (t, v) => `${formatBytes(values[v][1])} · ${values[v][0]}`,
    },
    U: {
      ...withOperations,
      memory: data.U,
      isFilled: (t, k) => data.memoryAt(t, k) > 0,
      colours: ({ empty, over, scale }) => ({ empty: rgb(empty), over: rgb(over), scale: scale.map(rgb) }),
      near: () => [NEAR, ROUNDED].map((share) => (65535 * share * model.get("budget")) / model.get("largest")),
      colour(level, colours) {
        if (level === 0) return colours.empty;
        const budget = model.get("budget");
        if (budget && memory(level) > ROUNDED * budget) return colours.over;
        const floor = model.get("resident");
        return ramp(colours.scale, (memory(level) - floor) / Math.max(model.get("largest") - floor, 1));
      },
      text(t, k) {
        const level = data.memoryAt(t, k);
        if (level === 0) return `${describe(k)}: the stage ends before it${none(t)}`;
        const budget = model.get("budget");
        const share = budget ? `, ${((100 * memory(level)) / budget).toFixed(0)} % of the budget` : "";
        const when = data.codeAt(t, k) ? "in use while it runs" : "held while others run (it does not)";
        return `${describe(k)}: ${formatBytes(memory(level))} ${when}${share}`;
      },
      picked: (t, k) => (data.memoryAt(t, k) ? formatBytes(memory(data.memoryAt(t, k))) : ""),
    },
  };
}
