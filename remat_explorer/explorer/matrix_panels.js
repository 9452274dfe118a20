// What the cells of R, S and U mean: their colours, their hover texts, and which value a column stands for.
const NEAR = 0.98; // share of the budget from which a cell of U is marked

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function ramp(colours, share) {
  const at = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(at), colours.length - 2);
  const [from, to] = [rgb(colours[low]), rgb(colours[low + 1])];
  return from.map((part, i) => Math.round(part + (to[i] - part) * (at - low)));
}

function panels(model) {
  const get = (name) => model.get(name);
  const bytes = (name) => {
    const view = get(name);
    return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  };
  const operations = get("operations");
  const values = get("values");
  const levels = () => {
    const raw = bytes("U");
    return new Uint16Array(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength));
  };
  const memory = (level) => (level / 65535) * get("largest");
  const describe = (k) => `${operations[k][0]} (operation ${k}, ${operations[k][1]}, ${operations[k][2]})`;
  const kinds = ["not computed in this stage", "computed for the first time", "computed for the first time", "recomputed"];
  const R = bytes("R");
  const S = bytes("S");
  const U = levels();
  const width = Math.ceil(values.length / 8);
  return {
    R: {
      title: "operation",
      sparse: true, // single cells are drawn at least two pixels wide
      columns: operations.length,
      level: (t, c) => R[t * operations.length + c],
      colours: (palette) => [palette.empty, palette.forward, palette.backward, palette.recompute].map(rgb),
      colour: (level, colours) => colours[level],
      valueOf: (c) => operations[c][3],
      columnOf: (v) => (values[v] ? values[v][2] : -1),
      text: (t, c) => `${describe(c)}: ${kinds[R[t * operations.length + c]]}`,
      picked: (t, c) => operations[c][0],
    },
    S: {
      title: "value",
      columns: values.length,
      level: (t, c) => (S[t * width + (c >> 3)] >> (7 - (c & 7))) & 1,
      colours: (palette) => [palette.empty, palette.kept].map(rgb),
      colour: (level, colours) => colours[level],
      valueOf: (c) => c,
      columnOf: (v) => v,
      text(t, c) {
        const kept = this.level(t, c) ? "kept from the stage before" : "not in memory when the stage begins";
        return `${values[c][0]} (value ${c}, ${formatBytes(values[c][1])}): ${kept}`;
      },
      picked: (t, c) => `${formatBytes(values[c][1])} · ${values[c][0]}`,
    },
    U: {
      title: "operation",
      columns: operations.length,
      level: (t, c) => U[t * operations.length + c],
      colours: (palette) => palette,
      colour(level, palette) {
        if (level === 0) return rgb(palette.empty);
        const budget = get("budget");
        if (budget && memory(level) >= NEAR * budget) return rgb(palette.budget);
        const floor = get("resident");
        return ramp(palette.scale, (memory(level) - floor) / Math.max(get("largest") - floor, 1));
      },
      valueOf: (c) => operations[c][3],
      columnOf: (v) => (values[v] ? values[v][2] : -1),
      text(t, c) {
        const level = this.level(t, c);
        if (level === 0) return `${describe(c)}: the stage ends before it`;
        const budget = get("budget");
        const share = budget ? `, ${((100 * memory(level)) / budget).toFixed(0)} % of the budget` : "";
        const when = R[t * operations.length + c] ? "in use while it runs" : "held while others run (it does not)";
        return `${describe(c)}: ${formatBytes(memory(level))} ${when}${share}`;
      },
      picked: (t, c) => (U[t * operations.length + c] ? formatBytes(memory(U[t * operations.length + c])) : ""),
    },
  };
}
