// What moves the step: from one computation to another in short legs, and on by itself while it plays.
const WHOLE = 40_000; // milliseconds in which a plan is played at speed 1, where its computations are many
const PACES = [16, 700]; // of a computation, at least and at most
const LEG = 260; // milliseconds from one computation to another when nothing plays
const HOPS = 12; // computations of a stage that are passed one by one
const SEEN = 80; // milliseconds from which on a movement is seen as one
const FRESH = 600; // milliseconds for which a block shines

const still = matchMedia("(prefers-reduced-motion: reduce)");

// `draw` gets the computation before, the one now, and how far it is between them, 0 to 1; `arrive` each one that is
// reached by playing; `isSeen` says whether anybody looks.
function stepPlayer({ draw, arrive, isSeen }) {
  let [from, to, begun, length] = [0, 0, 0, 0];
  let [legs, playing, pace, waited, last] = [[], false, LEG, 0, 0];
  let [count, running] = [0, false];
  const born = new Map(); // when each computation was reached

  const share = (now) => (length > 0 ? Math.min(1, (now - begun) / length) : 1);
  const eased = (x) => (x < 0.5 ? 2 * x * x : 1 - 2 * (1 - x) * (1 - x));
  const fresh = (c) => (still.matches ? 0 : Math.max(0, 1 - (performance.now() - (born.get(c) ?? -1e9)) / FRESH));

  function leg(target, time) {
    [from, to, begun, length] = [to, target, performance.now(), still.matches || time < SEEN ? 0 : time];
    const near = to > from && to - from <= HOPS;
    for (let c = near ? from + 1 : to; c <= to; c++) born.set(c, begun);
    if (born.size > 200) for (const [c, time] of born) if (begun - time > FRESH) born.delete(c);
  }

  function frame(now) {
    const elapsed = Math.min(now - last, 250);
    last = now;
    if (playing && isSeen()) {
      waited += elapsed;
      const steps = Math.floor(waited / pace);
      waited -= steps * pace;
      if (steps > 0) {
        leg(Math.min(count - 1, to + steps), 0.6 * pace);
        arrive(to);
      }
    } else if (legs.length > 0 && share(now) >= 1) leg(legs.shift(), length || LEG);
    draw(from, to, eased(share(now)));
    const busy = playing || legs.length > 0 || share(now) < 1 || [...born.values()].some((time) => now - time < FRESH);
    if (busy && !(still.matches && !playing && legs.length === 0)) requestAnimationFrame(frame);
    else running = false;
  }

  function run() {
    if (running) return;
    [running, last] = [true, performance.now()];
    requestAnimationFrame(frame);
  }

  return {
    fresh,
    get now() {
      return legs.length > 0 ? legs.at(-1) : to;
    },
    // Of another plan there is nothing to move from.
    begin(computations, c) {
      [count, from, to, length, legs] = [computations, c, c, 0, []];
      born.clear();
    },
    go(c) {
      const target = Math.max(0, Math.min(count - 1, c));
      legs = [];
      const hops = target - to;
      if (hops > 1 && hops <= HOPS && !still.matches) {
        legs = Array.from({ length: hops - 1 }, (_, i) => to + 2 + i);
        leg(to + 1, Math.max(SEEN, LEG / hops));
      } else if (target !== to) leg(target, LEG);
      run();
    },
    play(on, speed) {
      [playing, pace, waited] = [on, Math.max(PACES[0], Math.min(PACES[1], WHOLE / Math.max(count, 1))) / speed, 0];
      if (on) run();
    },
    run,
  };
}
