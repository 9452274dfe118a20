// Cells to pixels: once for each change of the matrices, the zoom or the colours.

// The pixels from which to which each of `count` cells reaches.
function edges(count, pixels, least, gap) {
  const [from, to] = [new Int32Array(count), new Int32Array(count)];
  for (let i = 0; i < count; i++) {
    from[i] = Math.floor((i * pixels) / count);
    to[i] = Math.min(pixels, Math.max(from[i] + least, Math.floor(((i + 1) * pixels) / count) - gap));
  }
  return { from, to };
}

// The bits of rows `first` to `end`, the last one not included, put over one another.
function mergedRows(bits, width, first, end) {
  const [from, to] = [first * width, Math.min(bits.length, end * width)];
  const merged = bits.slice(from, from + width);
  if (from >= to || width % 4 || (bits.byteOffset + from) % 4) {
    for (let start = from + width; start < to; start += width) for (let i = 0; i < width; i++) merged[i] |= bits[start + i];
    return merged;
  }
  const [words, all, count] = [new Uint32Array(merged.buffer), new Uint32Array(bits.buffer, bits.byteOffset + from, Math.max(0, to - from) >> 2), width >> 2];
  for (let start = count; start < all.length; start += count) for (let i = 0; i < count; i++) words[i] |= all[start + i];
  return merged;
}

// The levels of the rows `first` to `last`, put over one another into a line of pixels: the highest is seen.
function traceLayers(layers, at, across, first, last, line) {
  for (const { bits, width, level } of layers) {
    const merged = mergedRows(bits, width, first, last + 1);
    for (let byte = 0; byte < merged.length; byte++) {
      if (merged[byte] === 0) continue;
      for (let bit = 0; bit < 8; bit++) {
        const column = merged[byte] & (128 >> bit) ? at(8 * byte + bit) : -1;
        if (column >= 0) for (let x = across.from[column]; x < across.to[column]; x++) if (level > line[x]) line[x] = level;
      }
    }
  }
}

function traceComputations({ starts, columns, levels }, at, across, first, last, line) {
  const end = starts[Math.min(last + 1, starts.length - 1)];
  for (let i = starts[first]; i < end; i++) {
    const column = at(columns[i]);
    if (column >= 0) for (let x = across.from[column]; x < across.to[column]; x++) if (levels[i] > line[x]) line[x] = levels[i];
  }
}

// Memory of the columns `ids`, which follow one another; between two cells without a gap no pixel is left out.
function traceMemory(memory, ids, across, gap, first, last, line) {
  function fill(from, to, level) {
    for (let x = from; x < to; x++) if (level > line[x]) line[x] = level;
  }
  function trace(from, to, level) {
    const [left, right] = [Math.max(from - ids[0], 0), Math.min(to - ids[0], ids.length) - 1];
    if (left > right) return;
    if (gap) for (let column = left; column <= right; column++) fill(across.from[column], across.to[column], level);
    else fill(across.from[left], across.to[right], level);
  }
  for (let t = first; t <= last && t + 1 < memory.starts.length; t++) eachLevel(memory, t, trace);
}

// The levels of rows of a folded matrix.
function traceFolded({ folded: { cells, width }, places, ids }, rows, across, line) {
  for (const row of rows)
    for (let column = 0; column < ids.length; column++) {
      const level = cells[row * width + places.at[ids[column]]];
      if (level === 0) continue;
      for (let x = across.from[column]; x < across.to[column]; x++) if (level > line[x]) line[x] = level;
    }
}

// The highest level under every device pixel: nothing thin disappears, and large cells keep sharp edges.
function raster(panel, part, width, height, ratio) {
  const { ids } = panel;
  const rows = part.rows.length;
  const gap = ids.length * 9 < width && rows * 9 < height ? 1 : 0;
  const least = panel.sparse ? Math.round(2 * ratio) : 1;
  const [across, down] = [edges(ids.length, width, least, gap), edges(rows, height, least, gap)];
  const [levels, line] = [new Uint16Array(width * height), new Uint16Array(width)];
  for (let row = 0, next = 0, filled = 0; row < rows; row = next) {
    for (next = row + 1; next < rows && down.from[next] === down.from[row] && down.to[next] === down.to[row]; ) next++;
    const [first, last] = [part.first + row, part.first + next - 1];
    line.fill(0);
    if (panel.folded) traceFolded(panel, part.rows.subarray(row, next).map((t) => panel.rowOf(t)), across, line);
    else if (panel.layers) traceLayers(panel.layers, panel.at, across, first, last, line);
    else if (panel.computations) traceComputations(panel.computations, panel.at, across, first, last, line);
    else traceMemory(panel.memory, ids, across, gap, first, last, line);
    for (let y = down.from[row]; y < down.to[row]; y++)
      if (y >= filled) levels.set(line, y * width);
      else for (let x = 0, at = y * width; x < width; x++, at++) if (line[x] > levels[at]) levels[at] = line[x];
    filled = Math.max(filled, down.to[row]);
  }
  return levels;
}

const known = new Uint32Array(65536); // the colours of the levels met so far; 0, which is transparent, is not yet

function paint(context, panel, part, palette, box, ratio) {
  const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  if (width < 1 || height < 1) return;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = panel.colours(palette);
  known.fill(0);
  const levels = raster(panel, part, width, height, ratio);
  for (let i = 0, level = -1, colour = 0; i < levels.length; i++) {
    if (levels[i] !== level) {
      level = levels[i];
      if (known[level] === 0) {
        const [r, g, b] = panel.colour(level, colours);
        known[level] = (255 << 24) | (b << 16) | (g << 8) | r;
      }
      colour = known[level];
    }
    pixels[i] = colour;
  }
  context.putImageData(image, Math.round(box.left * ratio), Math.round(box.top * ratio));
}
