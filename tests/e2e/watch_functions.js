// What the page computes, without a page: given `load`, which gives a module of src/atoll/watch/page, this function gives what is
// wrong, as a list of lines. watch_page.py calls it in a browser; in Node, from this directory:
//   node -e 'eval(require("fs").readFileSync("watch_functions.js", "utf8"))((m) => import(process.cwd() + "/../../src/atoll/watch/page/" + m)).then(console.log)'
(async (load) => {
  const wrong = [];
  const same = (seen, wanted, what) => { const [a, b] = [JSON.stringify(seen), JSON.stringify(wanted)]; if (a !== b) wrong.push(`${what}: ${a}, not ${b}`); };
  const near = (seen, wanted, error, what) => { if (!(Math.abs(seen - wanted) <= error)) wrong.push(`${what}: ${seen}, not ${wanted}`); };
  const {formatExactX, formatNumber, formatX, pointAt, smooth, breaksOf, ticks} = await load("numbers.js");
  const texts = (...ends) => ticks(...ends).map(({text}) => text);
  const log = Math.log10;

  // --- Ticks
  same(texts(0, 10, 5, false), ["0", "2", "4", "6", "8", "10"], "linear ticks");
  same(texts(log(4), log(8), 4, true), ["4", "5", "6", "7", "8"], "ticks of less than a decade");
  same(texts(log(2.1), log(9.6), 4, true), ["4", "6", "8"], "ticks of two thirds of a decade");
  same(texts(log(1), log(1000), 4, true), ["1", "10", "100", "1000"], "ticks of three decades");
  same(texts(log(1), log(100), 8, true), ["1", "2", "5", "10", "20", "50", "100"], "ticks of two decades with much room");
  same(texts(log(1e-9), log(1), 4, true), ["1e-9", "1e-6", "0.001", "1"], "ticks of nine decades");
  same(texts(log(3e-5), log(7e-4), 4, true), ["5e-5", "0.0001", "0.0002", "0.0005"], "small ticks");
  for (let low = -7; low < 5; low += .37) {
    for (const span of [.01, .1, .3, .5, .8, 1, 1.3, 2, 3.7, 9]) {
      const list = ticks(low, low + span, 4, true);
      if (list.length < 2 || list.length > 9) wrong.push(`${list.length} ticks from 10^${low} over ${span} decades`);
      if (new Set(list.map(({text}) => text)).size !== list.length) wrong.push(`ticks of one text from 10^${low} over ${span} decades: ${list.map(({text}) => text)}`);
      // Round: few digits beside those that tell them from each other.
      if (span >= .3 && list.some(({v}) => Math.abs(Number(v.toPrecision(2)) - v) > 1e-9 * v)) wrong.push(`odd ticks from 10^${low} over ${span} decades: ${list.map(({text}) => text)}`);
      for (const {v, text} of list) if (log(v) < low - 1e-6 || log(v) > low + span + 1e-6) wrong.push(`tick ${text} is not in 10^${low} to 10^${low + span}`);
    }
  }
  same(texts(10, 12, 8, false, "step"), ["10", "11", "12"], "there is no step between two steps");
  same(texts(2.3001, 2.3004, 3, false), ["2.3001", "2.3002", "2.3003", "2.3004"], "ticks close to each other");
  same(texts(100010, 100040, 3, false, "step"), ["100,010", "100,020", "100,030", "100,040"], "ticks of large steps");
  same(texts(0, 7200, 4, false, "wall"), ["0 s", "30:00 min", "1:00 h", "1:30 h", "2:00 h"], "ticks of time");
  same(texts(5, 5, 4, false), ["5"], "one place");
  same(["0.00012346", 12345.678, 1e-7, 1e16, 999999, 0].map((v) => formatNumber(+v)), ["0.00012346", "12.35k", "1e-7", "1e+16", "1M", "0"], "numbers");
  same([formatX(59.96, "wall"), formatX(119.99, "wall"), formatX(3599.7, "wall"), formatX(179.8, "active")], ["60 s", "120 s", "1:00 h", "3:00 min"], "times are rounded once");
  same([formatExactX(1234567, "step"), formatExactX(220, "step")], ["1,234,567", "220"], "a step has all its digits");

  // --- What a line has at a place
  const line = (x0, more = {}) => { const one = {x0, x1: x0, min: x0, max: x0, mean: x0, bad: [], cuts: [], ...more}; one.breaks = breaksOf(one); return one; };
  const tens = line([10, 20, 30, 40, 50]);
  for (const [x, point] of [[10, 0], [24, 1], [26, 2], [50, 4], [54, 4], [6, 0]]) same(pointAt(tens, x), {i: point}, `the point at ${x}`);
  for (const x of [0, 4, 56, 60, 1000, -5]) same(pointAt(tens, x), null, `there is nothing at ${x}`);
  const gap = line([10, 20, 100, 110], {bad: [60], cuts: [60]});
  same([24, 60, 62, 97, 80, 40].map((x) => pointAt(gap, x)), [{i: 1}, {bad: 60}, {bad: 60}, {i: 2}, null, null], "what a gap has");
  same([pointAt(line([]), 5), pointAt(line([7]), 7), pointAt(line([7]), 8)], [null, {i: 0}, null], "lines of no point and of one");
  const buckets = line([0, 100, 200], {x1: [90, 190, 290]});
  same([0, 45, 90, 94, 96, 150, 290, 294, 310].map((x) => pointAt(buckets, x)?.i ?? null), [0, 0, 0, 0, 1, 1, 2, 2, null], "buckets");

  // --- Smoothing
  const ema = (values, weight) => { let last = 0; return values.map((v, i) => { last = weight * last + (1 - weight) * v; return last / (1 - weight ** (i + 1)); }); };
  const random = (() => { let state = 1; return () => (state = state * 16807 % 2147483647) / 2147483647; })();
  const noise = Array.from({length: 200}, random), none = new Set();
  const wanted = ema(noise, .9);
  smooth(noise, none, .9).forEach((v, i) => near(v, wanted[i], 1e-12, `smoothed value ${i} as TensorBoard has it`));
  const falling = (count) => Array.from({length: count}, (_, i) => 2 + 8 * Math.exp(-5 * i / (count - 1)));
  for (const weight of [.6, .9, .97]) {
    const end = smooth(falling(200), none, weight).at(-1);
    for (const count of [20, 50, 1000]) near(smooth(falling(count), none, weight).at(-1), end, .06, `the end of a curve of ${count} points, smoothed by ${weight}`);
    near(smooth([7, 7, 7], none, weight)[0], 7, 1e-12, "the first value");
  }
  near(smooth([1, 1, 5, 5], new Set([2]), .9)[2], 5, 1e-12, "smoothing begins anew behind a gap");
  same(smooth([3], none, .99), [3], "one value"), same(smooth([], none, .99), [], "no value");

  // --- Links
  const {readLink, writeLink} = await load("link.js");
  const shown = {view: "charts", runs: ["runs/a b", "runs/ü&=%#"], filter: "loss", axis: "wall", weight: .97, logX: true, logY: true, range: [-1.5, 2e6], mean: true, marks: false};
  same(readLink("#" + writeLink(shown)), {view: "charts", runs: shown.runs, filter: "loss", axis: "wall", weight: .97, logX: true, logY: true, range: [-1.5, 2e6], mean: true, marks: false}, "a link leads back");
  same(writeLink({view: "charts", runs: [], filter: "", axis: "step", weight: 0, range: null, marks: true}), "charts", "what is as usual is in no link");
  same(writeLink({view: "charts", runs: ["runs/a"], axis: "tokens", weight: .9, logY: true}), "charts?run=runs/a&axis=tokens&smooth=0.9&log=y", "a link is readable");
  same(readLink("#events"), {view: "events"}, "a view alone");
  same(readLink("#charts?axis=<b>&smooth=1e9&log=z&from=x&to=5&marks=1"), {view: "charts", runs: [], filter: "", axis: "step", weight: 0, logX: false, logY: false, range: null, mean: false, marks: true}, "what makes no sense in a link");

  // --- Names
  const {shortNames} = await load("names.js");
  const names = (...ids) => [...shortNames(ids).values()];
  same(names("s/first/trials/0001/run", "s/first/trials/0002/run"), ["0001", "0002"], "trials");
  same(names("a/trials/0001/run", "b/trials/0001/run", "runs/kjv"), ["a/trials/0001", "b/trials/0001", "kjv"], "trials of two studies");
  same(names("s/trials/1/run-00000100", "s/trials/1/run-00000200", "s/trials/2/run-00000100"), ["1/run-00000100", "1/run-00000200", "2/run-00000100"], "rungs of trials");
  same(names("runs/a"), ["a"], "one run"), same(names("run", "/run", "./run/"), ["run", "run", "run"], "names that cannot be told apart");

  // --- Seeds
  const {meanLine, seedGroups} = await load("seeds.js");
  same(seedGroups([{id: 1, alike: "x"}, {id: 2, alike: "y"}, {id: 3, alike: "x"}, {id: 4, alike: ""}, {id: 5, alike: ""}]).map((group) => group.map((run) => run.id)), [[1, 3]], "runs of one kind");
  const seed = (x, y) => ({x0: x, x1: x, mean: y, min: y, max: y, bad: [], cuts: []});
  let mean = meanLine([seed([1, 2, 3], [1, 2, 3]), seed([1, 2, 3, 4], [3, 4, 5, 6])]);
  same([mean.x0, mean.mean, mean.counts, mean.least, mean.most], [[1, 2, 3], [2, 3, 4], [2, 2, 2], [1, 2, 3], [3, 4, 5]], "a mean is of where both are");
  near(mean.max[0] - mean.mean[0], Math.SQRT2, 1e-12, "the standard deviation of a sample");
  mean = meanLine([seed([0, 10], [0, 10]), seed([0, 5, 10], [1, 6, 11])]);
  same([mean.x0, mean.mean], [[0, 5, 10], [.5, 5.5, 10.5]], "between two points of one seed");
  mean = meanLine([seed([1, 2, 3, 4], [1, 1, 1, 1]), {...seed([1, 4], [1, 1]), bad: [2.5], cuts: [2.5]}]);
  same([mean.x0, mean.cuts, breaksOf(mean).size], [[1, 4], [4], 1], "a gap of one seed is a gap of the mean");

  // --- CSV
  const {csvOf} = await load("save_chart.js");
  same(csvOf("loss", "step", [{run: 'a,"b', x0: [1, 3], x1: [1, 3], mean: [.5, .25], min: [], max: [], bad: [2], size: 1}, {run: "c", x0: [1], x1: [1], mean: [9], bad: [], size: 1}]),
    'run,step,loss\n"a,""b",1,0.5\n"a,""b",2,NaN\n"a,""b",3,0.25\nc,1,9\n', "numbers of a chart");
  same(csvOf("loss", "step", [{run: "a", x0: [0, 10], x1: [9, 19], mean: [1, 2], min: [.5, 1.5], max: [3, 4], bad: [], size: 10}]),
    "run,step,step to,loss mean,loss min,loss max\na,0,9,1,0.5,3\na,10,19,2,1.5,4\n", "buckets of a chart");

  // --- Labels of the timeline
  const {labelsOf} = await load("timeline_view.js");
  const wide = (text) => 6 * text.length, labels = (...bars) => labelsOf(bars.map(([a, b, name]) => ({a, b, name})), wide).map(({text, x}) => [text, x]);
  same(labels([0, 200, "forward layers.0"]), [["forward layers.0", 3]], "a label with room");
  same(labels([0, 90, "forward layers.0"], [90, 120, "forward layers.1"]), [["layers.0", 3]], "a shorter one, and none");
  same(labels([0, 400, "evaluate"], [10, 300, "forward layers.0"]), [["forward layers.0", 13]], "no label below a bar");
  same(labels([0, 400, "evaluate"], [200, 400, "forward layers.0"]), [["forward layers.0", 203], ["evaluate", 3]], "a label beside a bar");
  return wrong;
})
