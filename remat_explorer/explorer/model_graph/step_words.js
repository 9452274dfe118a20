// The step in words.
const NAMED = 3; // operations of a stage that are named at most, before the rest is counted
const LETTERS = 34; // of a name

// A name that is no longer than `most` letters, shortened in its middle.
function shortened(name, most) {
  if (name.length <= most) return name;
  const end = Math.floor((most - 1) / 2);
  return `${name.slice(0, most - 1 - end)}…${name.slice(name.length - end)}`;
}

function listed(names, most) {
  const named = names.length > most + 1 ? [...names.slice(0, most), `${names.length - most} more`] : names;
  return named.length > 1 ? `${named.slice(0, -1).join(", ")} and ${named.at(-1)}` : named.join("");
}

// What a stage does: "computes norm1 again (2 MiB), then add". Of neighbours that are all first, or all again, `most` are
// named, with so many `letters`.
function stageWords(data, plan, stage, most = NAMED, letters = LETTERS) {
  const [from, to] = plan.within(stage);
  if (to <= from) return `Stage ${stage} computes nothing`;
  const runs = []; // neighbours that are all first, or all again
  for (let c = from; c < to; c++) {
    const { operation, again } = plan.computations[c];
    if (runs.at(-1)?.again !== again) runs.push({ again, names: [], bytes: 0 });
    runs.at(-1).names.push(shortened(data.operations[operation][0], letters));
    runs.at(-1).bytes += plan.written(c);
  }
  const parts = runs.map(({ again, names, bytes }) => `${listed(names, most)}${again ? ` again (${formatBytes(bytes)})` : ""}`);
  const count = runs.length;
  const more = count > 2 ? ` and so on, ${to - from} computations, last ${runs.at(-1).names.at(-1)}` : "";
  return `Stage ${stage} computes ${parts.slice(0, 2).join(", then ")}${more}`;
}

// The computation that runs: "computation 61 of 240: norm1, again".
function computationWords(data, plan, c) {
  const { operation, again } = plan.computations[c];
  const freed = plan.computations[c].frees.reduce((sum, v) => sum + data.values[v][1], 0);
  const name = shortened(data.operations[operation][0], LETTERS);
  return `Computation ${c + 1} of ${plan.count}: ${name}${again ? ", again" : ""}${freed ? `, then frees ${formatBytes(freed)}` : ""}`;
}
