// Bytes as people read them, three significant digits: the same as `format_bytes` in quantities.py.
function formatBytes(count) {
  if (count < 1000) return `${Math.round(count)} B`;
  let unit = Math.min(Math.floor(Math.log(count) / Math.log(1024)), 4);
  if (count / 1024 ** unit >= 999.5 && unit < 4) unit += 1;
  const scaled = count / 1024 ** unit;
  const digits = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return `${scaled.toFixed(digits)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}
