// Texts and numbers as patterns.py writes them.
const GAP = "\ue002";

// A column of numbers, of which each is written less the one before it.
function sums(column) {
  let sum = 0;
  return column.map((step) => (sum += step));
}

// Texts that differ in their numbers alone.
function textsOf({ patterns, which, columns }) {
  const pieces = patterns.map((pattern) => pattern.split(GAP));
  const numbers = columns.map((own) => own.map(sums));
  const rows = patterns.map(() => 0);
  return which.map((pattern) => {
    const row = rows[pattern]++;
    return pieces[pattern].reduce((text, piece, gap) => text + numbers[pattern][gap - 1][row] + piece);
  });
}

// Of each stage of a point its parts by their names.
function stagesOf(parts) {
  const texts = Object.entries(parts).map(([name, packed]) => [name, textsOf(packed)]);
  return texts[0][1].map((_, stage) => Object.fromEntries(texts.map(([name, own]) => [name, own[stage]])));
}

// Of each value its texts, what is said with them, and which of that is said at each point.
function valuesOf({ texts, values }) {
  const every = textsOf(texts);
  let begin = 0;
  return values.map(([count, said, which]) => [every.slice(begin, (begin += count)), said, which]);
}
