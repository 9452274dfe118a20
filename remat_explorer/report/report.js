// Fills the plan, says what is under the pointer, and offers the files inside of the page.

const SHOWN = 500; // statements at a time

function offerFiles() {
  for (const link of document.querySelectorAll("a[data-file]")) {
    link.addEventListener("click", async (event) => {
      if (link.href.startsWith("blob:")) return; // already unpacked: the browser saves it
      event.preventDefault();
      const text = await unpacked(link.dataset.file);
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.click();
    });
  }
}

function formatted(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (power < 4 && bytes / 1024 ** power >= 999.5) power += 1;
  const scaled = bytes / 1024 ** power;
  return `${scaled.toFixed(power === 0 || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2)} ${units[power]}`;
}

function statementText([, kind, index, , code = 1, over], graph) {
  if (kind === 0) return `free ${graph.values[index].name}`;
  const place = over === undefined ? "" : ` in place of ${graph.values[over].name}`;
  const way = code === 1 ? "" : ` · ${graph.operations[index].implementations[code - 1].name}`;
  return `${kind === 1 ? "compute" : "recompute"} ${graph.operations[index].name}${place}${way}`;
}

function fillPlan(graph) {
  const details = document.getElementById("plan");
  if (!details) return;
  const rows = parsed("plan-data");
  const texts = rows.map((row) => statementText(row, graph));
  const wanted = rows.map((row, i) => `${texts[i]} stage ${row[0]}`.toLowerCase());
  const peak = rows.reduce((best, row, i) => (row[3] > rows[best][3] ? i : best), 0);
  const [input, said, body] = ["input", ".under", "tbody"].map((selector) => details.querySelector(selector));

  function cells(i) {
    const row = document.createElement("tr");
    row.className = `${["free", "first", "again"][rows[i][1]]}${i === peak ? " peak" : ""}`;
    for (const [text, kind] of [[i, "number"], [rows[i][0], "number"], [texts[i], ""], [formatted(rows[i][3]), "number"]]) {
      const cell = row.insertCell();
      cell.className = kind;
      cell.textContent = text;
    }
    return row;
  }

  function show() {
    const words = input.value.toLowerCase().trim();
    const stage = /^stage \d+$/.test(words); // "stage 1" is not stage 12
    const fits = (text) => (stage ? text.endsWith(` ${words}`) : text.includes(words));
    const found = [...rows.keys()].filter((i) => fits(wanted[i]));
    body.replaceChildren(...found.slice(0, SHOWN).map(cells));
    const more = found.length > SHOWN ? `; the first ${SHOWN} are shown` : "";
    said.textContent = `${found.length} of ${rows.length} statements${more}`;
  }

  details.addEventListener("toggle", () => details.open && body.childElementCount === 0 && show());
  input.addEventListener("input", show);
}

// A large matrix is averaged as a whole, and has sharp cells once it is zoomed into.
function sharpenZoomed(id) {
  const place = document.getElementById(id);
  place?.on("plotly_relayout", () => {
    const images = place._fullData.filter(({ type }) => type === "image");
    const span = ({ range: [from, to] }) => Math.abs(to - from);
    const wide = ({ xaxis, yaxis }) => {
      const [x, y] = [xaxis, yaxis].map((axis) => place._fullLayout[axis.replace(/^./, "$&axis")]);
      return Math.max(span(x), span(y)) > 340;
    };
    const smooth = images.map((image) => (wide(image) ? "fast" : false));
    if (smooth.some((wanted, i) => images[i].zsmooth !== wanted)) {
      Plotly.restyle(place, { zsmooth: smooth }, images.map(({ index }) => index));
    }
  });
}

function explainCells(id, lineId, graph, solution) {
  const place = document.getElementById(id);
  if (!place) return;
  const line = document.getElementById(lineId);
  const firstRun = graph.operations.map((_, k) => solution.R.findIndex((row) => row[k] !== "0"));
  const meaning = {
    R: (t, k) => {
      const { name, phase, implementations } = graph.operations[k];
      const code = Number(solution.R[t][k]);
      const what = code === 0 ? "does not run" : firstRun[k] === t ? `runs first (${phase})` : "runs again";
      const way = code > 0 && implementations.length > 1 ? ` · ${implementations[code - 1].name}` : "";
      return `operation ${k}, ${name}, ${what}${way}`;
    },
    S: (t, v) => {
      const { name, bytes } = graph.values[v];
      return `value ${v}, ${name} (${formatted(bytes)}), is ${solution.S[t][v] === "1" ? "" : "not "}kept into the stage`;
    },
    U: (t, k) => `operation ${k}, ${graph.operations[k].name}`,
  };
  place.on("plotly_hover", ({ points: [point] }) => {
    const matrix = place.data[point.curveNumber].name;
    const [column, row] = [Math.round(point.x), Math.round(point.y)];
    if (matrix in meaning) line.textContent = `${matrix}, stage ${row}: ${meaning[matrix](row, column)}`;
  });
}

async function begin() {
  keepDrawn();
  offerFiles();
  ["matrices", "ways"].forEach(sharpenZoomed);
  const graph = JSON.parse(await unpacked("graph-file"));
  fillPlan(graph);
  const solution = JSON.parse(await unpacked("solution-file"));
  explainCells("matrices", "cell", graph, solution);
  explainCells("ways", "way", graph, solution);
  document.body.dataset.ready = "yes";
}

begin();
