// Bytes as people read them, three significant digits: the same as `format_bytes` in quantities.py.
function formatBytes(count) {
  if (count < 1000) return `${Math.round(count)} B`;
  let unit = Math.min(Math.floor(Math.log(count) / Math.log(1024)), 4);
  if (count / 1024 ** unit >= 999.5 && unit < 4) unit += 1;
  const scaled = count / 1024 ** unit;
  const digits = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return `${scaled.toFixed(digits)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

// A matrix as it was sent, by `row_lists` in schedule/runs.py: 32-bit numbers, first how many rows there are, then how
// many columns each row names, then these.
function bytesIn(view) {
  return view && view.byteLength ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(0);
}

// The columns of all rows in order, and where each row's begin; `starts` has the end of the last one, too.
function rowLists(view) {
  const raw = bytesIn(view);
  const aligned = raw.byteOffset % 4 === 0 ? raw : raw.slice();
  const numbers = new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength >> 2);
  const begun = 1 + (numbers[0] ?? 0);
  return { starts: sumsBefore(numbers.subarray(1, begun)), columns: numbers.subarray(begun) };
}

// The sum of the numbers before each one, and of all.
function sumsBefore(numbers) {
  const sums = new Uint32Array(numbers.length + 1);
  for (let i = 0; i < numbers.length; i++) sums[i + 1] = sums[i] + numbers[i];
  return sums;
}

// The place of a column among those of its row, or of the next one there; the end of the row where there is none.
function placeOf({ starts, columns }, row, column) {
  let [low, high] = [starts[row], starts[row + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (columns[middle] < column) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The place of a column among those of its row, or -1.
function findColumn(lists, row, column) {
  const at = placeOf(lists, row, column);
  return at < lists.starts[row + 1] && lists.columns[at] === column ? at : -1;
}

// Rows that name where they differ from the one before, as bits, most significant first, of so many bytes each that the
// bits of several rows can be put over one another by 32 at a time.
function bitsOfChanges({ starts, columns }, count) {
  const width = 4 * Math.ceil(count / 32);
  const bits = new Uint8Array((starts.length - 1) * width);
  for (let row = 0, from = 0; row + 1 < starts.length; row++, from += width) {
    if (row) bits.copyWithin(from, from - width, from);
    for (let i = starts[row]; i < starts[row + 1]; i++) bits[from + (columns[i] >> 3)] ^= 128 >> (columns[i] & 7);
  }
  return { bits, width };
}

// Draws at the next frame, once for however many calls. Where the page is hidden, as JupyterLab does for a moment when its
// theme changes, it draws once it is seen: it may come back at the same size, of which no observer of sizes would tell.
// `draw` returns whether it could.
function whenSeen(root, draw) {
  let framed = false;
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    redraw();
  });
  function redraw() {
    if (framed) return;
    framed = true;
    requestAnimationFrame(() => {
      framed = false;
      if (!draw()) seen.observe(root);
    });
  }
  redraw.end = () => seen.disconnect();
  return redraw;
}

// Where a style enlarges what is drawn, as the presenter's large type does: how much, how many pixels of the screen there
// are for one of the layout, and where a pointer is in an element, in the layout's pixels.
const enlarged = (element) => element.currentCSSZoom ?? 1;
const sharpness = (element) => (window.devicePixelRatio || 1) * enlarged(element);

function pointerIn(element, { clientX, clientY }) {
  const { left, top, width, height } = element.getBoundingClientRect();
  const [x, y, across, down] = [clientX - left, clientY - top, width, height].map((pixels) => pixels / enlarged(element));
  return { x, y, width: across, height: down };
}
