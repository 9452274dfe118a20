// A plan, replayed: what is in memory while each of its computations runs. `step_plan` in step_plan.py says how it is
// sent.
function stepPlan(content, data) {
  if (!data || content.byteLength === 0) return null;
  const numbers = new Int32Array(content.buffer.slice(content.byteOffset, content.byteOffset + content.byteLength));
  const computations = [];
  for (let at = 0; at < numbers.length; ) {
    const [stage, operation, way, again, overwrites] = numbers.subarray(at, at + 5);
    at += 5;
    const lists = [0, 1, 2].map(() => {
      const listed = numbers.subarray(at + 1, at + 1 + numbers[at]);
      at += 1 + listed.length;
      return listed;
    });
    computations.push({ stage, operation, way, again: again === 1, overwrites, stays: lists[0], drops: lists[1], frees: lists[2] });
  }
  if (computations.some(({ operation }) => operation >= data.operations.length)) return null; // of another graph
  const size = (values) => values.reduce((sum, v) => sum + data.values[v][1], 0);
  let [reached, alive] = [-1, new Map()];

  // Blocks keep the order of their births: those above a freed one come down.
  function advance() {
    if (reached >= 0) for (const v of computations[reached].frees) alive.delete(v);
    reached += 1;
    const { stage, operation, again, overwrites, stays } = computations[reached];
    if (overwrites >= 0) alive.delete(overwrites);
    for (const v of stays) {
      const [, bytes, , persistent] = data.values[v];
      alive.set(v, { key: reached * data.values.length + v, value: v, bytes, stage, operation, again, persistent });
    }
  }

  // What is in memory while a computation runs, and the bytes that it needs only meanwhile.
  function at(c) {
    if (c < reached) [reached, alive] = [-1, new Map()];
    while (reached < c) advance();
    return { blocks: [...alive.values()], passing: passing(c) };
  }

  function passing(c) {
    const { operation, way, drops } = computations[c];
    return size(drops) + (data.operations[operation][7][way] ?? 0);
  }

  const count = computations.length;
  const [during, highest] = [new Float64Array(count), new Float64Array(count)];
  const [firsts, distinct] = [new Set(), new Int32Array(count)];
  let held = data.resident;
  computations.forEach(({ operation, overwrites, stays, frees }, c) => {
    held += size(stays) - (overwrites >= 0 ? data.values[overwrites][1] : 0);
    during[c] = held + passing(c);
    highest[c] = Math.max(during[c], c ? highest[c - 1] : 0);
    held -= size(frees);
    firsts.add(operation);
    distinct[c] = firsts.size;
  });

  // The last computation of a stage, or where it has none of the one before it.
  function lastOf(stage) {
    let [low, high] = [0, count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (computations[middle].stage <= stage) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  // The computations of a stage, as [first, behind the last].
  const within = (stage) => [stage > 0 && computations[0].stage < stage ? lastOf(stage - 1) + 1 : 0, lastOf(stage) + 1];
  return { count, computations, during, highest, distinct, at, lastOf, within, written: (c) => size(computations[c].stays) };
}
