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
      this.steps = columns(data.steps, ["block", "function", "line", "kind", "barrier", "threads", "taken", "frame", "masks"]);
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

    // The lanes for which the condition of a step is true, as bits; null where a step has none.
    taken(step, warp) {
      const set = this.steps.taken[step];
      return set ? this.steps.masks[(set - 1) * this.words + warp] : null;
    }

    runs(step, thread) { return (this.lanes(step, thread >>> 5) >>> (thread & 31) & 1) === 1; }

    running(step) {
      let count = 0;
      for (let warp = 0; warp < this.words; warp++) count += bits(this.lanes(step, warp));
      return count;
    }

    // The last step of this block up to `step` in which a thread took part, -1 if it has not started.
    last(step, thread) {
      for (let n = step; n >= 0 && this.steps.block[n] === this.steps.block[step]; n--) {
        if (this.runs(n, thread)) return n;
      }
      return -1;
    }

    // Whether a thread takes part in no later step of the block.
    ended(step, thread) {
      for (let n = step + 1; n < this.count && this.steps.block[n] === this.steps.block[step]; n++) {
        if (this.runs(n, thread)) return false;
      }
      return true;
    }

    // Whether a thread stands at a barrier or warp operation that the others do not come to.
    stuck(step, thread) {
      const last = this.last(step, thread);
      return last >= 0 && this.waitsOf(last, thread).some((text) => text.startsWith("waits in vain"));
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
    if (size >= 1000) return value.toFixed(0);
    return value.toPrecision(3).replace(/^(-?)0\./, "$1.").replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  }

  if (typeof document === "undefined") {
    module.exports = { Launch, column, brief, bits };
    return;
  }

  // --- What shows it ------------------------------------------------------------------------------------------------

  const KINDS = ["r", "w", "a"];
  const DEEDS = [ // what stands around name and value
    ["reads ", " == ", ""], ["writes ", " = ", ""], ["changes ", " atomically, to ", " when its turn came"],
  ];
  const SPEEDS = [[1, "1 step a second"], [3, "3 steps a second"], [10, "10 steps a second"], [40, "40 steps a second"]];
  const [ROWS, COLUMNS] = [32, 64]; // of an array that are seen at once
  const WRAP = 32; // columns of an array with one axis; half of it for one with few elements
  const FEW = 256;
  const ICONS = {
    start: "M5 3v10M13 3 7 8l6 5z", back: "M11 3 4 8l7 5z", play: "M4 2.5 13 8l-9 5.5z", pause: "M5 3v10M11 3v10",
    step: "M5 3l7 5-7 5z", stop: "M11 3v10M3 3l6 5-6 5z",
  };

  function h(name, options, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(options || {})) {
      if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
      else if (key === "class") made.className = value;
      else if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  function svg(name, options, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(options)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function icon(name) {
    return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
  }

  function button(title, name, act, text) {
    const options = { type: "button", title, "aria-label": title, on: { click: act } };
    return h("button", options, icon(name), text ? h("span", {}, text) : null);
  }

  function choice(label, entries, act) {
    const made = h("select", { "aria-label": label, on: { change: () => act(Number(made.value)) } });
    made.append(...entries.map(([value, text]) => h("option", { value }, text)));
    return made;
  }

  function triple(index) { return `(${index.join(", ")})`; }

  const WORDS = "and as assert break class continue def elif else for from if import in is lambda not or pass raise " +
    "return while True False None";
  const TOKEN = new RegExp(
    `("""|''')|(#.*)|("(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)*')|\\b(${WORDS.split(" ").join("|")})\\b|\\b(\\d[\\w.]*)`, "g",
  );

  // Lines of Python with their comments, texts, words and numbers marked; `quoted` is the quote that a text began with.
  function highlighted(lines) {
    let quoted = "";
    return lines.map((line) => {
      const made = h("code");
      let at = 0;
      if (quoted) {
        const end = line.indexOf(quoted);
        at = end < 0 ? line.length : end + 3;
        made.append(h("i", { class: "text" }, line.slice(0, at)));
        if (end >= 0) quoted = "";
      }
      for (const match of line.matchAll(TOKEN)) {
        if (match.index < at) continue;
        made.append(line.slice(at, match.index));
        let [text, end] = [match[0], match.index + match[0].length];
        if (match[1]) {
          const close = line.indexOf(match[1], end);
          quoted = close < 0 ? match[1] : "";
          end = close < 0 ? line.length : close + 3;
          text = line.slice(match.index, end);
        }
        const kind = match[2] ? "note" : match[4] ? "word" : match[5] ? "number" : "text";
        made.append(h("i", { class: kind }, text));
        at = end;
      }
      made.append(line.slice(at));
      return made;
    });
  }

  // One array, a page of it at a time.
  class Grid {
    constructor(launch, number) {
      [this.launch, this.number, this.grid] = [launch, number, launch.grids[number]];
      const shape = this.grid.shape;
      this.size = shape.reduce((a, b) => a * b, 1);
      this.columns = shape.length > 1 ? shape[shape.length - 1] : Math.min(this.size, this.size > FEW ? WRAP : WRAP / 2);
      this.rows = shape.length > 1 ? shape[shape.length - 2] : Math.ceil(this.size / this.columns);
      this.page = { slice: 0, row: 0, column: 0 };
      this.numbers = this.columns <= 20 && Math.min(this.rows, ROWS) * this.columns <= 2 * FEW;
      this.places = this.grid.cells && new Map(Array.from(this.grid.cells, (element, place) => [element, place]));
      this.node = h("details", { class: "grid" });
      this.node.open = ["shared", "local"].includes(this.grid.scope) || !launch.grids.some((g) => g.scope === "shared");
      this.build();
    }

    build() {
      const grid = this.grid;
      this.known = h("span", { class: "dim" });
      this.where = h("span", { class: "where" });
      this.readout = h("div", { class: "readout" });
      this.table = h("div", { class: "cells", role: "img" });
      const toggle = h("button", { type: "button", "aria-pressed": this.numbers, on: { click: () => {
        this.numbers = !this.numbers;
        toggle.setAttribute("aria-pressed", this.numbers);
        this.shown = "";
        this.update();
      } } }, "numbers");
      this.pager = h("span", { class: "pager" }, ...this.pageButtons());
      const title = h("b", {}, grid.name);
      this.node.append(
        h("summary", {}, title, ` ${grid.scope} ${grid.dtype} [${grid.shape.join(", ")}] `, this.known),
        h("div", { class: "tools" }, toggle, this.pager, this.where, this.readout),
        h("div", { class: "scroll" }, this.table),
      );
      this.node.addEventListener("toggle", () => this.update());
      this.table.addEventListener("mouseover", (event) => this.tell(event.target));
      this.table.addEventListener("mouseleave", () => { this.readout.textContent = ""; });
    }

    pageButtons() {
      const slices = this.size / (this.rows * this.columns);
      const down = ["row", this.rows, ROWS, "rows"];
      const right = ["column", this.columns, COLUMNS, "columns"];
      const moves = [["slice", slices, 1, "slice"], down, right];
      return moves.filter(([, count, by]) => count > by).flatMap(([name, count, by, text]) => [-by, by].map((move) => {
        const act = () => {
          this.page[name] = clamp(this.page[name] + move, 0, Math.ceil(count / by) * by - by);
          this.update();
        };
        return h("button", { type: "button", on: { click: act } }, move < 0 ? `‹ ${text}` : `${text} ›`);
      }));
    }

    element(place) { return this.grid.cells ? this.grid.cells[place] : place; }

    place(element) {
      if (element >= this.size) return -1;
      if (!this.places) return element;
      return this.places.has(element) ? this.places.get(element) : -1;
    }

    // Turn to the page on which a cell is.
    follow(place) {
      const element = this.element(place);
      const within = element % (this.rows * this.columns);
      const [row, column_] = [Math.floor(within / this.columns), within % this.columns];
      const slice = this.grid.shape.length > 1 ? Math.floor(element / (this.rows * this.columns)) : 0;
      this.page = { slice, row: row - row % ROWS, column: column_ - column_ % COLUMNS };
    }

    // Make the cells of the page anew.
    lay() {
      const { slice, row, column: first } = this.page;
      const [rows, columns_] = [Math.min(ROWS, this.rows - row), Math.min(COLUMNS, this.columns - first)];
      const every = this.numbers ? 1 : 4;
      const one = this.grid.shape.length === 1;
      this.cells = [];
      const made = [h("span", { class: "axis" })];
      for (let c = 0; c < columns_; c++) made.push(h("span", { class: "axis" }, c % every ? "" : String(first + c)));
      for (let r = 0; r < rows; r++) {
        made.push(h("span", { class: "axis" }, String(one ? (row + r) * this.columns : row + r)));
        for (let c = 0; c < columns_; c++) {
          const element = (slice * this.rows + row + r) * this.columns + first + c;
          const node = h("span");
          made.push(node);
          if (element < this.size) this.cells.push({ node, place: this.place(element), text: null, look: null });
          else node.className = "none";
        }
      }
      this.table.className = this.numbers ? "cells numbers" : "cells";
      this.table.style.gridTemplateColumns = `auto repeat(${columns_}, var(--cell))`;
      this.table.replaceChildren(...made);
      this.byNode = new Map(this.cells.map((cell) => [cell.node, cell]));
    }

    // Show the grid after a step. `accesses` are those of the step.
    update(state) {
      this.state = state || this.state;
      if (!this.state) return;
      const { step, thread, accesses } = this.state;
      const mine = accesses.filter((a) => a.grid === this.number);
      if (state && mine.length) {
        const ours = mine.find((a) => a.thread === thread) || mine.find((a) => a.thread >>> 5 === thread >>> 5);
        if (ours) this.follow(ours.cell);
      }
      const contents = this.launch.contents(step, this.grid, thread);
      this.contents = contents;
      const known = contents.reduce((count, text) => count + (text >= 0), 0);
      const given = this.grid.initial !== null;
      this.known.textContent = given ? "" : known === this.size ? "all written" : `${known} of ${this.size} written`;
      this.node.classList.toggle("touched", mine.length > 0);
      if (!this.node.open) return;
      const layout = JSON.stringify([this.page, this.numbers]);
      if (layout !== this.shown) this.lay();
      this.shown = layout;
      this.tellPage();
      const marked = marks(mine, thread);
      this.fill(contents, marked);
      if (state) this.reveal(marked);
      this.table.setAttribute("aria-label", `${this.grid.name}: ${known} of ${this.size} elements known`);
    }

    // Bring what the chosen thread touches into view, inside the grid's own panel.
    reveal(marked) {
      const panel = this.table.parentNode;
      const cell = this.cells.find(({ place }) => marked.has(place) && marked.get(place).rank === 2);
      if (!cell) return;
      const left = cell.node.offsetLeft - panel.offsetLeft;
      const top = cell.node.offsetTop - panel.offsetTop;
      const across = left > panel.scrollLeft + 50 && left < panel.scrollLeft + panel.clientWidth - 60;
      const down = top > panel.scrollTop + 20 && top < panel.scrollTop + panel.clientHeight - 40;
      if (!across && panel.scrollWidth > panel.clientWidth) panel.scrollLeft = left - panel.clientWidth / 2;
      if (!down && panel.scrollHeight > panel.clientHeight) panel.scrollTop = top - panel.clientHeight / 2;
    }

    fill(contents, marked) {
      for (const cell of this.cells) {
        const text = cell.place < 0 || contents[cell.place] < 0 ? "" : brief(this.launch.texts[contents[cell.place]]);
        const mark = marked.get(cell.place);
        const known = cell.place < 0 ? "away" : contents[cell.place] < 0 ? "empty" : "known";
        const look = mark ? `${known} ${[...mark.kinds].join(" ")} ${mark.near}` : known;
        if (text !== cell.text) cell.node.textContent = cell.text = text;
        if (look !== cell.look) {
          cell.node.className = cell.look = look;
          if (mark) cell.node.dataset.mark = mark.kinds;
          else delete cell.node.dataset.mark;
        }
      }
    }

    tellPage() {
      const { slice, row, column: first } = this.page;
      const parts = [];
      const shape = this.grid.shape;
      if (shape.length > 2) {
        const lead = this.launch.index({ shape: shape.slice(0, -2) }, slice);
        parts.push(`[${lead.join(", ")}, :, :]`);
      }
      if (this.rows > ROWS) parts.push(`rows ${row}–${Math.min(row + ROWS, this.rows) - 1}`);
      if (this.columns > COLUMNS) parts.push(`columns ${first}–${Math.min(first + COLUMNS, this.columns) - 1}`);
      this.where.textContent = parts.join(", ");
    }

    // Tell the element under the pointer, in full.
    tell(node) {
      const cell = this.byNode && this.byNode.get(node);
      if (!cell) return;
      if (cell.place < 0) this.readout.textContent = "no thread that is followed touches this element";
      else {
        const text = this.contents[cell.place];
        const value = text < 0 ? "has not been written" : `= ${this.launch.texts[text]}`;
        this.readout.textContent = `${this.launch.label(this.grid, cell.place)} ${value}`;
      }
    }
  }

  // What to mark: for each cell the kinds of its accesses, and whether the chosen thread, its warp or another is there.
  function marks(accesses, thread) {
    const found = new Map();
    for (const access of accesses) {
      const near = access.thread === thread ? 2 : access.thread >>> 5 === thread >>> 5 ? 1 : 0;
      const old = found.get(access.cell);
      if (old && old.rank > near) continue;
      const kinds = old && old.rank === near ? old.kinds : "";
      const letter = KINDS[access.kind];
      const both = kinds.includes(letter) ? kinds : kinds + letter;
      found.set(access.cell, { kinds: both, rank: near, near: ["far", "near", "mine"][near] });
    }
    return found;
  }

  class View {
    constructor(root, launch) {
      [this.root, this.launch] = [root, launch];
      root.tabIndex = -1; // a click anywhere in it brings the keys here
      const asked = new URLSearchParams(location.hash.slice(1));
      this.step = clamp(Number(asked.get("step") ?? launch.data.position), 0, launch.count - 1);
      this.thread = clamp(Number(asked.get("thread") ?? launch.data.thread), 0, launch.threads - 1);
      this.picked = null; // the variable that is shown across the lanes; null: the one assigned last
      this.frame = null; // the call whose variables are shown; null: the innermost
      this.timer = 0;
      this.grids = launch.grids.map((_, number) => new Grid(launch, number));
      for (const grid of this.grids) if (asked.getAll("open").includes(grid.grid.name)) grid.node.open = true;
      this.build();
      this.update();
      root.addEventListener("keydown", (event) => this.key(event));
      root.addEventListener("keyup", (event) => { // a space is for play, wherever the focus is: it presses no button
        if (event.key === " " && event.target.tagName !== "SELECT") event.preventDefault();
      });
    }

    // The frame of the page

    build() {
      this.root.append(...[
        this.head(), this.faults(), this.controls(), this.help(), this.timeline(),
        h("div", { class: "body" }, h("div", {}, this.code(), this.across()), this.side()), this.arrays(),
        h("p", { class: "keys" }, "Shown is what there is when the marked line has been done. All threads of a block " +
          "go side by side here; on a GPU each warp runs at its own pace between barriers."),
      ].filter(Boolean));
    }

    help() {
      const keys = [["← →", "step"], ["space", "play, pause"], ["b B", "barriers"], ["t T", "steps of this thread"],
        ["↑ ↓", "lanes"], ["Home End", "first, last step"]];
      return h("p", { class: "keys" }, "Click the panel, then: ",
        ...keys.flatMap(([key, what]) => [h("kbd", {}, key), ` ${what}  `]));
    }

    head() {
      const { kernel, grid, block } = this.launch.data;
      this.block = h("span", {});
      return h("header", {}, h("b", { class: "kernel" }, kernel), this.block,
        h("span", { class: "dim" }, `grid ${triple(grid)} blocks of ${triple(block)} threads`));
    }

    faults() {
      const { faults } = this.launch.data;
      if (!faults.length) return null;
      const what = "What follows is what happened here, a GPU may do otherwise.";
      return h("div", { class: "faults", role: "note" }, ...faults.map((f) => h("div", {}, f)), h("div", {}, what));
    }

    controls() {
      const launch = this.launch;
      this.playing = button("Play", "play", () => this.play(), "play");
      this.speed = choice("Speed", SPEEDS, () => this.timer && this.start());
      this.speed.value = "3";
      this.number = h("output", { class: "number" });
      const warps = launch.data.warps.map((w) => [w, `warp ${w}`]);
      this.warps = choice("Warp", warps, (warp) => this.look(warp * LANES));
      this.lanes = choice("Thread", [], (thread) => this.look(thread));
      const blocks = Object.values(launch.data.blocks).map((index, n) => [n, `block ${triple(index)}`]);
      this.blocks = blocks.length > 1 ? choice("Block", blocks, (n) => this.go(launch.steps.block.indexOf(n))) : null;
      return h("div", { class: "controls" },
        h("span", { class: "group" },
          button("Previous barrier (B)", "start", () => this.go(launch.barrier(this.step, -1)), "barrier"),
          button("Step back (←)", "back", () => this.go(this.step - 1), "back"),
          button("Step (→)", "step", () => this.go(this.step + 1), "step"),
          button("Next barrier (b)", "stop", () => this.go(launch.barrier(this.step, 1)), "barrier")),
        h("span", { class: "group" }, this.playing, this.speed), this.number,
        h("span", { class: "group right" }, this.blocks, this.warps, this.lanes));
    }

    timeline() {
      this.slider = h("input", { type: "range", min: 0, max: this.launch.count - 1, "aria-label": "Step", on: {
        input: () => this.go(Number(this.slider.value)),
      } });
      this.strip = svg("svg", { class: "strip", preserveAspectRatio: "none", "aria-hidden": "true" });
      this.live = h("div", { class: "hidden", "aria-live": "polite" });
      this.caption = h("p", { class: "caption" });
      return h("div", { class: "timeline" }, this.strip, this.slider, this.caption, this.live);
    }

    // How many lanes of the warp run each step, and where the barriers are.
    drawStrip(warp) {
      const [launch, most] = [this.launch, 1200];
      const by = Math.max(1, Math.ceil(launch.count / most));
      const height = Math.min(LANES, launch.threads - warp * LANES);
      let path = `M0 ${height}`;
      const stops = [];
      for (let n = 0; n < launch.count; n += by) {
        let lanes = 0;
        for (let m = n; m < Math.min(n + by, launch.count); m++) {
          lanes = Math.max(lanes, bits(launch.lanes(m, warp)));
          if (launch.steps.barrier[m]) stops.push(m + 0.5);
        }
        path += `V${height - lanes}H${Math.min(n + by, launch.count)}`;
      }
      this.caption.textContent = `above: how many lanes of warp ${warp} run each step; dashed: barriers`;
      this.strip.setAttribute("viewBox", `0 0 ${launch.count} ${height}`);
      const bars = stops.length <= most ? stops.map((x) => `M${x} 0V${height}`).join("") : "";
      this.strip.replaceChildren(svg("path", { class: "lanes", d: `${path}V${height}z` }),
        svg("path", { class: "stops", d: bars, "vector-effect": "non-scaling-stroke" }));
    }

    code() {
      this.rows = [];
      const functions = this.launch.data.functions.map((func, number) => {
        this.rows[number] = highlighted(func.lines).map((code, n) => {
          const note = h("span", { class: "others" });
          return h("div", { class: "row" }, h("span", { class: "line" }, String(func.first + n)), code, note);
        });
        return h("section", {}, h("h4", {}, `${func.name}, ${func.file}`), ...this.rows[number]);
      });
      this.source = h("div", { class: "code", tabindex: 0, "aria-label": "Source" }, ...functions);
      return this.source;
    }

    side() {
      this.warpTitle = h("h3");
      this.laneCells = h("div", { class: "lanes" });
      this.warpCells = h("div", { class: "warps" });
      this.doing = h("ul", { class: "deeds" });
      this.threadTitle = h("h3");
      this.deeds = h("ul", { class: "deeds" });
      this.frames = h("div", { class: "frames" });
      this.variables = h("table", { class: "variables" });
      this.given = h("p", { class: "given" });
      return h("div", {},
        h("section", {}, this.warpTitle, this.laneCells, this.warpCells, this.doing),
        h("section", {}, this.threadTitle, this.deeds, this.frames, this.variables, this.given));
    }

    across() {
      this.acrossTitle = h("h3");
      this.acrossCells = h("div", { class: "across" });
      return h("section", { class: "last" }, this.acrossTitle, this.acrossCells);
    }

    arrays() {
      const order = ["shared", "local", "global", "constant"];
      const sorted = [...this.grids].sort((a, b) => order.indexOf(a.grid.scope) - order.indexOf(b.grid.scope));
      const cell = (look, mark) => h("span", { class: look, "data-mark": mark || null });
      const key = (made, text) => h("span", { class: "key" }, made, text);
      const legend = h("div", { class: "legend cells" },
        key(cell("known"), "has a value"), key(cell("empty"), "never written"),
        key(cell("known r near", "r"), "read"), key(cell("known w near", "w"), "written"),
        key(cell("known a near", "a"), "changed by an atomic"),
        key(cell("known r mine", "r"), "by this thread"), key(cell("known r far", "r"), "by another warp"));
      return h("div", { class: "arrays" }, legend, ...sorted.map((grid) => grid.node));
    }

    // Moves

    go(step) {
      this.step = clamp(step, 0, this.launch.count - 1);
      this.frame = null;
      this.update();
    }

    look(thread) {
      this.thread = clamp(thread, 0, this.launch.threads - 1);
      this.frame = null;
      this.update();
    }

    play() { if (this.timer) this.stop(); else this.start(); }

    start() {
      clearInterval(this.timer);
      if (this.step === this.launch.count - 1) this.go(0);
      this.timer = setInterval(() => this.tick(), 1000 / Number(this.speed.value));
      this.showPlaying();
    }

    stop() {
      clearInterval(this.timer);
      this.timer = 0;
      this.showPlaying();
      this.say();
    }

    tick() {
      if (!this.root.isConnected || this.step >= this.launch.count - 1) this.stop();
      else this.go(this.step + 1);
    }

    showPlaying() {
      const text = this.timer ? "pause" : "play";
      this.playing.replaceChildren(icon(text), h("span", {}, text));
      this.playing.setAttribute("aria-label", this.timer ? "Pause" : "Play");
      this.playing.title = this.timer ? "Pause (space)" : "Play (space)";
    }

    key(event) {
      const target = event.target.tagName;
      const native = target === "SELECT" || (target === "INPUT" && event.key.startsWith("Arrow"));
      if (event.ctrlKey || event.metaKey || event.altKey || native) return;
      const first = (this.thread >>> 5) * LANES;
      const lane = (by) => clamp(this.thread + by, first, Math.min(this.launch.threads, first + LANES) - 1);
      const acts = {
        ArrowRight: () => this.go(this.step + 1), ArrowLeft: () => this.go(this.step - 1),
        ArrowUp: () => this.look(lane(-1)), ArrowDown: () => this.look(lane(1)),
        Home: () => this.go(0), End: () => this.go(this.launch.count - 1), " ": () => this.play(),
        b: () => this.go(this.launch.barrier(this.step, 1)), B: () => this.go(this.launch.barrier(this.step, -1)),
        t: () => this.go(this.launch.turn(this.step, this.thread, 1)),
        T: () => this.go(this.launch.turn(this.step, this.thread, -1)),
      };
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    }

    // What changes with each move

    update() {
      const { launch, step, thread } = this;
      const accesses = launch.accessesOf(step);
      const warp = thread >>> 5;
      if (warp !== this.shownWarp) this.turnToWarp(warp);
      this.lanes.value = String(thread);
      this.slider.value = String(step);
      this.number.textContent = `step ${step} of ${launch.count - 1}`;
      const block = launch.steps.block[step];
      if (this.blocks) this.blocks.value = String(block);
      this.block.textContent = `block ${triple(Object.values(launch.data.blocks)[block])}`;
      this.updateWarp(warp, accesses);
      this.updateThread(accesses);
      this.updateSource(warp);
      for (const grid of this.grids) grid.update({ step, thread, accesses });
      Object.assign(this.root.dataset, { step, thread, line: launch.steps.line[step] });
      if (!this.timer) this.say();
      this.root.dispatchEvent(new Event("stepped"));
    }

    say() {
      const { launch, step } = this;
      this.live.textContent = `step ${step}, line ${launch.steps.line[step]}, ${this.warpTitle.textContent}`;
    }

    turnToWarp(warp) {
      this.shownWarp = warp;
      this.warps.value = String(warp);
      const { launch } = this;
      const threads = [];
      for (let t = warp * LANES; t < Math.min((warp + 1) * LANES, launch.threads); t++) threads.push(t);
      const named = threads.map((t) => [t, `thread ${triple(launch.position(t, launch.data.block))}`]);
      this.lanes.replaceChildren(...named.map(([value, text]) => h("option", { value }, text)));
      this.laneCells.replaceChildren(...threads.map((t) => h("button", {
        type: "button", tabindex: -1, title: named[t % LANES][1], on: { click: () => this.look(t) },
      }, String(t % LANES))));
      this.drawStrip(warp);
    }

    updateWarp(warp, accesses) {
      const { launch, step, thread } = this;
      const running = launch.lanes(step, warp);
      const nodes = [...this.laneCells.children];
      const all = launch.running(step);
      const taken = launch.taken(step, warp);
      this.waiting = [];
      let [ended, stuck] = [0, 0];
      nodes.forEach((node, lane) => {
        const here = (running >>> lane & 1) === 1;
        const over = !here && launch.ended(step, warp * LANES + lane);
        if (over && launch.stuck(step, warp * LANES + lane)) stuck++;
        else if (over) ended++;
        else if (!here) this.waiting.push(warp * LANES + lane);
        node.className = here ? "on" : over ? "over" : "off";
        if (here && taken >>> lane & 1) node.classList.add("yes");
        if (warp * LANES + lane === thread) node.classList.add("me");
        node.setAttribute("aria-pressed", String(warp * LANES + lane === thread));
      });
      const over = `${ended ? `, ${ended} ended` : ""}${stuck ? `, ${stuck} wait in vain` : ""}`;
      this.warpTitle.textContent = `Warp ${warp}: ${bits(running)} of ${nodes.length} lanes run this line${over}`;
      this.updateWarps(warp, all);
      const ours = accesses.filter((a) => a.thread >>> 5 === warp);
      this.doing.replaceChildren(...launch.summary(ours).map(({ kind, name, lanes }) => {
        const [who, s] = lanes === 1 ? ["1 lane", "s"] : [`${lanes} lanes`, ""];
        return h("li", { class: KINDS[kind] }, `${who} ${["read", "write", "change"][kind]}${s} ${name}`);
      }));
      if (taken !== null && running) {
        const text = `true for ${bits(taken)} of ${bits(running)} lanes${taken ? ", underlined" : ""}`;
        this.doing.append(h("li", { class: "c" }, text));
      }
    }

    // The warps of the block, each as a bar of the lanes that run.
    updateWarps(warp, all) {
      const { launch, step } = this;
      if (launch.words < 2) return;
      if (!this.warpCells.children.length) {
        const followed = new Set(launch.data.warps);
        const cells = Array.from({ length: launch.words }, (_, w) => h("button", {
          type: "button", tabindex: -1, disabled: followed.has(w) ? null : "", on: { click: () => this.look(w * LANES) },
        }));
        this.warpCells.append(h("span", { class: "dim" }), ...cells);
      }
      const [title, ...cells] = this.warpCells.children;
      title.textContent = `All warps: ${all} of ${launch.threads} threads`;
      cells.forEach((node, w) => {
        const lanes = bits(launch.lanes(step, w));
        node.title = `warp ${w}: ${lanes} lanes run this line`;
        node.style.setProperty("--share", `${100 * lanes / Math.min(LANES, launch.threads - w * LANES)}%`);
        node.className = w === warp ? "me" : "";
      });
    }

    updateThread(accesses) {
      const { launch, step, thread } = this;
      const index = triple(launch.position(thread, launch.data.block));
      const last = launch.last(step, thread);
      this.threadTitle.textContent = `Thread ${index}${this.absence(last)}`;
      const deeds = accesses.filter((a) => a.thread === thread).map((a) => {
        const [before, sign, behind] = DEEDS[a.kind];
        const text = `${before}${launch.label(launch.grids[a.grid], a.cell)}${sign}${a.text}${behind}`;
        return h("li", { class: KINDS[a.kind] }, text);
      });
      const taken = launch.taken(step, thread >>> 5);
      if (taken !== null && last === step) {
        deeds.push(h("li", { class: "c" }, `finds it ${taken >>> (thread & 31) & 1 ? "true" : "false"}`));
      }
      deeds.push(...launch.waitsOf(step, thread).map((text) => h("li", { class: "wait" }, text)));
      this.deeds.replaceChildren(...deeds);
      const stack = launch.stack(step, thread);
      const inner = stack.length ? stack[stack.length - 1].frame : -1;
      const frame = this.frame ?? inner;
      this.frames.replaceChildren(...(stack.length > 1 ? stack.map((f) => this.frameButton(f, frame)) : []));
      this.updateVariables(frame);
    }

    absence(last) {
      const { launch, step, thread } = this;
      if (last === step) return "";
      if (last < 0) return " has not started";
      const line = launch.steps.line[last];
      if (launch.stuck(step, thread)) return ` waits in vain, in line ${line}`;
      return launch.ended(step, thread) ? ` has ended, in line ${line}` : ` waits: it has done line ${line}`;
    }

    frameButton({ frame, function: func, line }, shown) {
      const act = () => { this.frame = frame; this.update(); };
      const text = `${this.launch.data.functions[func].name}, line ${line}`;
      return h("button", { type: "button", "aria-pressed": frame === shown, on: { click: act } }, text);
    }

    updateVariables(frame) {
      const { launch, step, thread } = this;
      const found = launch.variables(step, thread, frame);
      const numbers = found.filter((v) => !v.array);
      const now = numbers.filter((v) => v.now);
      const latest = now.length ? now[now.length - 1].name : this.latest;
      this.latest = latest;
      const names = numbers.map((v) => v.name);
      const across = [this.picked, latest, names[names.length - 1]].find((name) => names.includes(name)) ?? null;
      const rows = numbers.map((v) => {
        const act = () => { this.picked = this.picked === v.name ? null : v.name; this.update(); };
        const title = "Show it across the lanes";
        const options = { type: "button", title, "aria-pressed": v.name === across, on: { click: act } };
        return h("tr", { class: v.now ? "now" : null }, h("td", { class: "mark" }, v.now ? "●" : ""),
          h("th", { scope: "row" }, h("button", options, v.name)), h("td", {}, v.text));
      });
      const named = ({ name, text }) => (text.startsWith(`${name}: `) ? text.replace(": ", " ") : `${name} = ${text}`);
      this.given.textContent = found.filter((v) => v.array).map(named).join(", ");
      this.variables.replaceChildren(...rows);
      this.updateAcross(frame, across);
    }

    updateAcross(frame, name) {
      const { launch, step, thread } = this;
      const warp = thread >>> 5;
      this.acrossTitle.textContent = name === null ? "" : `${name} across warp ${warp}`;
      const values = name === null ? [] : launch.across(step, warp, frame, name);
      this.acrossCells.replaceChildren(...values.map((value, lane) => {
        const look = [value && value.now ? "now" : "", warp * LANES + lane === thread ? "me" : ""].join(" ").trim();
        return h("span", { class: look || null, title: value ? value.text : "not assigned" },
          h("small", {}, String(lane)), value ? value.text : "–");
      }));
    }

    updateSource(warp) {
      const { launch, step } = this;
      const at = (func, line) => this.rows[func][line - launch.data.functions[func].first];
      if (this.current) {
        this.current.classList.remove("now");
        this.current.removeAttribute("aria-current");
      }
      for (const node of this.noted || []) node.textContent = "";
      this.current = at(launch.steps.function[step], launch.steps.line[step]);
      this.current.classList.add("now");
      this.current.setAttribute("aria-current", "step");
      const counts = new Map();
      for (const thread of this.waiting) {
        const last = launch.last(step, thread);
        if (last < 0) continue;
        const node = at(launch.steps.function[last], launch.steps.line[last]).lastChild;
        counts.set(node, (counts.get(node) || 0) + 1);
      }
      this.noted = [...counts.keys()];
      for (const [node, count] of counts) node.textContent = count === 1 ? "1 lane waits" : `${count} lanes wait`;
      const kind = ["begins", "", "goes on after the call"][launch.steps.kind[step]];
      const note = launch.steps.barrier[step] ? "barrier" : kind;
      if (note) this.remark(note);
      this.scroll();
    }

    remark(text) {
      const node = this.current.lastChild;
      node.textContent = [text, node.textContent].filter(Boolean).join(", ");
      this.noted.push(node);
    }

    // Bring the current line into view inside its own panel: the page stays where it is.
    scroll() {
      const [panel, row] = [this.source, this.current];
      const top = row.offsetTop - panel.offsetTop;
      if (top < panel.scrollTop + 20 || top > panel.scrollTop + panel.clientHeight - 50) {
        panel.scrollTop = Math.max(0, top - panel.clientHeight / 3);
      }
    }
  }

  function clamp(number, low, high) {
    return Math.max(low, Math.min(high, Number.isFinite(number) ? Math.round(number) : low));
  }

  // In a frame of its own: the theme of the notebook around it where that can be seen, and as much height as it takes.
  function settle(view) {
    const root = view.root;
    let frame = null;
    try { frame = window.frameElement; } catch (error) { return; }
    if (!frame || frame.className !== "nanoeuler-frame") return;
    const body = frame.ownerDocument.body;
    const page = frame.ownerDocument.documentElement;
    const theme = () => {
      const jupyter = { true: "light", false: "dark" }[body.dataset.jpThemeLight];
      const code = ["light", "dark"].find((name) => body.classList.contains(`vscode-${name}`));
      const named = jupyter || code || page.getAttribute("theme") || page.dataset.theme;
      if (named === "dark" || named === "light") document.documentElement.dataset.theme = named;
    };
    let measured = false;
    const height = () => {
      const wanted = Math.min(2000, root.offsetHeight);
      const spare = frame.clientHeight - wanted; // a little may stay, so that the page does not jump at each step
      if (!measured || spare < 0 || spare > 60) frame.style.height = `${wanted}px`;
      measured = true;
    };
    theme();
    new MutationObserver(theme).observe(body, { attributes: true });
    new ResizeObserver(height).observe(root);
    document.addEventListener("keydown", (event) => { if (event.target === document.body) view.key(event); });
  }

  for (const root of document.querySelectorAll(".nanoeuler-stepper:not([data-step])")) {
    const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    settle(new View(root, new Launch(data)));
  }
})();
