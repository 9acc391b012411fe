// The stepper in a page. First the state of a launch at each step, which node can run too; then what shows it.
(function () {
  "use strict";

  const LANES = 32;

  // --- The launch ---------------------------------------------------------------------------------------------------

  // A column of whole numbers: the bytes of each as a digit, then all of them in base64, the lowest byte first.
  function column(text) {
    const size = Number(text[0]);
    const bytes = atob(text.slice(1));
    const numbers = new Uint32Array(bytes.length / size);
    for (let n = 0, at = 0; n < numbers.length; n++) {
      for (let part = 0; part < size; part++) numbers[n] += bytes.charCodeAt(at++) * 2 ** (8 * part);
    }
    return numbers;
  }

  // Where the records of each step start, from how many each has.
  function starts(counts) {
    const found = new Uint32Array(counts.length + 1);
    counts.forEach((count, n) => { found[n + 1] = found[n] + count; });
    return found;
  }

  function columns(source, names) {
    return Object.fromEntries(names.map((name) => [name, column(source[name])]));
  }

  class Launch {
    constructor(data) {
      this.data = data;
      this.count = data.steps.count;
      this.threads = data.block[0] * data.block[1] * data.block[2];
      this.words = Math.ceil(this.threads / LANES);
      this.texts = data.texts.split("\n");
      this.steps = columns(data.steps, ["block", "function", "line", "kind", "barrier", "threads", "frame", "masks"]);
      this.accesses = columns(data.accesses, ["counts", "thread", "grid", "cell", "kind", "text"]);
      this.assigned = columns(data.assignments, ["counts", "thread", "name", "text"]);
      this.waits = columns(data.waits, ["counts", "thread", "text"]);
      for (const records of [this.accesses, this.assigned, this.waits]) records.starts = starts(records.counts);
      this.arrayTexts = new Set(data.assignments.arrays);
      this.grids = data.grids.map((grid) => ({ ...grid, ...columns(grid, ["step", "owner", "cell", "text"]) }));
      for (const grid of this.grids) {
        grid.cells = grid.cells && column(grid.cells);
        grid.initial = grid.initial && column(grid.initial);
        grid.count = grid.cells ? grid.cells.length : grid.shape.reduce((a, b) => a * b, 1);
      }
      this.ofThread = this.assignmentsByThread();
    }

    // The assignments of each thread, by step.
    assignmentsByThread() {
      const found = Array.from({ length: this.threads }, () => []);
      for (let step = 0; step < this.count; step++) {
        for (let n = this.assigned.starts[step]; n < this.assigned.starts[step + 1]; n++) {
          found[this.assigned.thread[n]].push([step, n]);
        }
      }
      return found;
    }

    // Threads. The lanes of a warp that run a step are bits, lane 0 the lowest.
    lanes(step, warp) { return this.steps.masks[this.steps.threads[step] * this.words + warp]; }

    runs(step, thread) { return (this.lanes(step, thread >>> 5) >>> (thread & 31) & 1) === 1; }

    running(step) {
      let count = 0;
      for (let warp = 0; warp < this.words; warp++) count += bits(this.lanes(step, warp));
      return count;
    }

    // The last step of this block up to `step` in which a thread took part, -1 if it has not started.
    last(step, thread) {
      for (let n = step; n >= 0 && this.steps.block[n] === this.steps.block[step]; n--) if (this.runs(n, thread)) return n;
      return -1;
    }

    // Whether a thread takes part in no later step of the block.
    ended(step, thread) {
      for (let n = step + 1; n < this.count && this.steps.block[n] === this.steps.block[step]; n++) {
        if (this.runs(n, thread)) return false;
      }
      return true;
    }

    barrier(step, by) {
      for (let n = step + by; n >= 0 && n < this.count; n += by) if (this.steps.barrier[n]) return n;
      return by > 0 ? this.count - 1 : 0;
    }

    // The next step (by 1) or the one before (by -1) in which a thread takes part; the end if there is none.
    turn(step, thread, by) {
      for (let n = step + by; n >= 0 && n < this.count; n += by) if (this.runs(n, thread)) return n;
      return by > 0 ? this.count - 1 : 0;
    }

    // Functions that a thread is in, the kernel first: the call, the function and the line.
    stack(step, thread) {
      const last = this.last(step, thread);
      if (last < 0) return [];
      const found = [];
      let [frame, func, line] = [this.steps.frame[last], this.steps.function[last], this.steps.line[last]];
      while (frame >= 0) {
        found.unshift({ frame, function: func, line });
        [frame, func, line] = this.data.steps.frames[frame];
      }
      return found;
    }

    // A thread's variables in one call, as they were assigned first: name, text, whether this step assigned it.
    variables(step, thread, frame) {
      const found = new Map();
      for (const [at, n] of this.ofThread[thread]) {
        if (at > step) break;
        if (this.steps.frame[at] !== frame || this.steps.block[at] !== this.steps.block[step]) continue;
        const name = this.data.assignments.names[this.assigned.name[n]];
        const text = this.assigned.text[n];
        found.set(name, { name, text: this.texts[text], array: this.arrayTexts.has(text), now: at === step });
      }
      return [...found.values()];
    }

    // One variable of all lanes of a warp: texts, null where it has none.
    across(step, warp, frame, name) {
      const found = [];
      for (let thread = warp * LANES; thread < Math.min((warp + 1) * LANES, this.threads); thread++) {
        found.push(this.variables(step, thread, frame).find((v) => v.name === name) || null);
      }
      return found;
    }

    // What happens in a step: thread, grid, cell (a place in the grid), kind (0 read, 1 write, 2 atomic), text.
    accessesOf(step) {
      const a = this.accesses;
      const found = [];
      for (let n = a.starts[step]; n < a.starts[step + 1]; n++) {
        const text = this.texts[a.text[n]];
        found.push({ thread: a.thread[n], grid: a.grid[n], cell: a.cell[n], kind: a.kind[n], text });
      }
      return found;
    }

    waitsOf(step, thread) {
      const found = [];
      for (let n = this.waits.starts[step]; n < this.waits.starts[step + 1]; n++) {
        if (this.waits.thread[n] === thread) found.push(this.texts[this.waits.text[n]]);
      }
      return found;
    }

    // Which of the arrays made at one place is meant: -1 where this block or thread has none.
    owner(step, grid, thread) {
      if (grid.scope !== "shared" && grid.scope !== "local") return 0;
      const block = this.steps.block[step];
      if (grid.scope === "shared") return grid.owners.findIndex((o) => o[0] === block);
      const frames = this.stack(step, thread).map((f) => f.frame);
      for (const frame of frames.reverse()) {
        const found = grid.owners.findIndex((o) => o[0] === block && o[1] === thread && o[2] === frame);
        if (found >= 0) return found;
      }
      return -1;
    }

    // What is in a grid after a step: for each of its cells the number of a text, -1 where nothing was written.
    contents(step, grid, thread) {
      const owner = this.owner(step, grid, thread);
      const found = grid.initial ? Int32Array.from(grid.initial) : new Int32Array(grid.count).fill(-1);
      for (let n = 0; n < grid.step.length && grid.step[n] <= step; n++) {
        if (grid.owner[n] === owner) found[grid.cell[n]] = grid.text[n];
      }
      return found;
    }

    // The index of a cell: ta[2, 3] is [2, 3].
    index(grid, cell) {
      let rest = grid.cells ? grid.cells[cell] : cell;
      return grid.shape.map((_, axis) => {
        const below = grid.shape.slice(axis + 1).reduce((a, b) => a * b, 1);
        const here = Math.floor(rest / below);
        rest -= here * below;
        return here;
      });
    }

    label(grid, cell) {
      return `${grid.array}[${this.index(grid, cell).join(", ")}]${grid.name.slice(grid.array.length)}`;
    }

    position(number, shape) {
      return [number % shape[0], Math.floor(number / shape[0]) % shape[1], Math.floor(number / (shape[0] * shape[1]))];
    }

    // What a set of accesses touches, in words: "reads ta[0, 0-31]".
    summary(accesses) {
      const groups = new Map();
      for (const access of accesses) {
        const key = `${access.kind} ${access.grid}`;
        if (!groups.has(key)) groups.set(key, { ...access, threads: new Set(), low: null, high: null });
        const group = groups.get(key);
        const index = this.index(this.grids[access.grid], access.cell);
        group.threads.add(access.thread);
        group.low = group.low ? group.low.map((v, n) => Math.min(v, index[n])) : index;
        group.high = group.high ? group.high.map((v, n) => Math.max(v, index[n])) : index;
      }
      return [...groups.values()].map((group) => {
        const grid = this.grids[group.grid];
        const index = group.low.map((v, n) => (v === group.high[n] ? v : `${v}–${group.high[n]}`)).join(", ");
        const name = `${grid.array}[${index}]${grid.name.slice(grid.array.length)}`;
        return { kind: group.kind, name, lanes: group.threads.size };
      });
    }
  }

  function bits(word) {
    let count = 0;
    for (let rest = word; rest; rest = (rest & (rest - 1)) >>> 0) count++;
    return count;
  }

  // A value in at most five or six characters, for a cell.
  function brief(text) {
    if (text === "True" || text === "False") return text[0];
    const value = Number(text);
    if (text === "" || Number.isNaN(value)) return text.length > 6 ? text.slice(0, 5) + "…" : text;
    if (Number.isInteger(value) && Math.abs(value) < 1e5) return String(value);
    const size = Math.abs(value);
    if (size >= 1e5 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
    return value.toPrecision(size < 1 ? 2 : 3).replace(/^(-?)0\./, "$1.").replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  }

  if (typeof document === "undefined") {
    module.exports = { Launch, column, brief, bits };
    return;
  }
