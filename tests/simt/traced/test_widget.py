"""The stepper in a page: what travels with it, what its script makes of it in node, and what a browser shows."""

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32
from simt.traced.catalogue import CORRECT, FAULTY, traced

from nanoeuler.errors import UserError
from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced import widget
from nanoeuler.simt.traced.branches import Branches
from nanoeuler.simt.traced.contents import leaves
from nanoeuler.simt.traced.stepper import Stepper, step
from nanoeuler.simt.traced.steps import shown, warp
from nanoeuler.simt.traced.widget import column, encoded, html_fragment, notebook_html, payload

SCRIPT = Path(widget.__file__).with_name("widget.js")


@cuda.jit
def sums(out, x):
    """</script><script>document.title = "taken"</script> <!-- & "quoted" 'too' <b>bold</b>."""
    s = cuda.shared.array((2, 4), float32)
    t = cuda.threadIdx.x
    s[0, t] = x[t]
    cuda.syncthreads()
    if t < 2:
        s[1, t] = twice(s, t)
    cuda.syncthreads()
    out[t] = s[1, t % 2]


@cuda.jit(device=True)
def twice(s, i):
    mine = cuda.local.array(1, float32)
    mine[0] = s[0, i] + s[0, i + 2]  # </script>
    return mine[0]


@cuda.jit
def large(out, x):
    i, j = cuda.grid(2)
    out[j, i] = x[j, i] + float32(1)


@cuda.jit
def tiles(out, x):
    a = cuda.shared.array((32, 32), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(3):
        a[j, i] = x[j, i] + k
        cuda.syncthreads()
        total += a[i, j]
        cuda.syncthreads()
    out[j, i] = total


def small():
    return step(sums, 1, 4, (np.zeros(4, np.float32), np.arange(4, dtype=np.float32) + 0.5))


# What travels


def decoded(text):
    size = int(text[0])
    parts = np.frombuffer(base64.b64decode(text[1:]), np.uint8).reshape(-1, size)
    return [int.from_bytes(part.tobytes(), "little") for part in parts]


@pytest.mark.parametrize(
    "numbers", [[], [0], [255, 0], [256], [65535, 1], [65536, 3], [2**24 - 1], [2**24], [2**32 - 1]]
)
def test_columns_are_as_wide_as_their_largest_number(numbers):
    most = max(numbers, default=0)
    assert decoded(column(numbers)) == numbers
    assert int(column(numbers)[0]) == max(1, -(-most.bit_length() // 8))


def test_no_text_can_leave_the_script_element():
    data = encoded({"text": "</script><!-- & \u2028 \ud800"})
    assert not set("<>&") & set(data)
    assert data.isascii()
    assert json.loads(data) == {"text": "</script><!-- & \u2028 \ud800"}


def test_the_fragment_is_whole():
    fragment = html_fragment(small())
    assert fragment.count("<script") == fragment.count("</script>") == 2
    assert "<!--" not in fragment
    assert "taken</script>" not in fragment
    assert not re.search(r"""(src|href)\s*=|@import|url\(|https?://(?!www\.w3\.org/2000/svg)""", fragment)


def test_the_notebook_gets_a_frame():
    at = small()
    shown_ = at._repr_html_()
    assert shown_ == notebook_html(at)
    assert re.fullmatch(
        r'<iframe class="nanoeuler-frame" title="Steps of sums" [^<>]* srcdoc="[^"<>]*"></iframe>', shown_
    )
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', shown_)[1])
    assert html_fragment(at) in page


def test_a_page_that_would_be_too_long_is_refused(monkeypatch):
    at = small()
    for limit in (100, len(encoded(payload(at))) - 1):  # by a first look, and by what comes out
        monkeypatch.setattr(widget, "LIMIT", limit)
        with pytest.raises(UserError, match=r"should have no more than .*warps="):
            html_fragment(at)
        assert at._repr_html_().startswith("<pre>the steps of this launch are ")


def test_a_tile_of_a_thousand_threads_is_not_large():
    x = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    fragment = html_fragment(step(tiles, 1, (32, 32), (np.zeros_like(x), x)))
    assert len(fragment) < 600_000


def test_of_a_large_array_travels_what_is_touched():
    x = np.arange(300 * 200, dtype=np.float32).reshape(300, 200)
    data = payload(step(large, (10, 10), (8, 4), (np.zeros_like(x), x), blocks=(2, 5)))
    out, _ = data["grids"]
    cells = [row * 200 + column for row in range(20, 24) for column in range(16, 24)]
    assert decoded(out["cells"]) == cells
    texts = data["texts"].split("\n")
    assert [texts[n] for n in decoded(out["text"])] == [f"{cell + 1}.0" for cell in cells]
    assert decoded(out["cell"]) == list(range(32))


# What the script makes of it

node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

DRIVER = """
const { Launch, brief } = require(process.argv[1]);
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answers = cases.map(({ data, asked }) => {
  const launch = new Launch(data);
  return asked.map(([step, thread]) => ({
    line: launch.steps.line[step],
    lanes: launch.lanes(step, thread >>> 5),
    taken: launch.taken(step, thread >>> 5),
    last: launch.last(step, thread),
    ended: launch.ended(step, thread),
    next: launch.turn(step, thread, 1),
    barrier: [launch.barrier(step, -1), launch.barrier(step, 1)],
    stack: launch.stack(step, thread).map((f) => [data.functions[f.function].name, f.line]),
    variables: launch.stack(step, thread).map((f) => launch.variables(step, thread, f.frame)),
    accesses: launch.accessesOf(step).filter((a) => a.thread === thread).map(
      (a) => [launch.label(launch.grids[a.grid], a.cell), a.kind, a.text]),
    waits: launch.waitsOf(step, thread),
    grids: launch.grids.map((grid) => [grid.name, Array.from(launch.contents(step, grid, thread),
      (text) => text < 0 ? null : launch.texts[text])]),
  }));
});
process.stdout.write(JSON.stringify(answers));
"""


def expected(at):
    """Return what the script should answer, from Python's side."""
    from nanoeuler.simt.traced.screen import touched, waited

    steps, position, thread = at.steps, at.position, at.thread
    block = at.step.block
    later = steps.next(position, [thread])
    mine = [int(n) for n in steps.accesses(position) if at.trace.accesses["thread"][n] == thread]
    values = at.trace.values(at.trace.accesses[mine])
    stops = [s.number for s in steps.list if s.barrier]
    frames = steps.stack(position, thread)
    new = {v.name for v in steps.assignments(position) if v.thread == thread}
    current = steps.frame_of[at.step.execution]
    taken = Branches(steps).taken(position)
    mine_taken = None if taken is None else [int(t) % 32 for t in taken if t // WARP_SIZE == thread // WARP_SIZE]
    return {
        "line": at.step.line,
        "taken": None if mine_taken is None else sum(1 << lane for lane in mine_taken),
        "lanes": sum(1 << lane for lane, there in enumerate(warp(at.step, thread // WARP_SIZE).tolist()) if there),
        "last": -1 if steps.last(position, thread) is None else steps.last(position, thread),
        "ended": later is None or steps[later].block != block,
        "next": len(steps) - 1 if later is None else later,
        "barrier": [
            max((n for n in stops if n < position), default=0),
            min((n for n in stops if n > position), default=len(steps) - 1),
        ],
        "stack": [[f.function, f.line] for f in frames],
        "variables": [
            [
                {
                    "name": name,
                    "text": shown(value),
                    "array": isinstance(value, str),
                    "now": name in new and frame.execution == current,
                }
                for name, value in steps.variables(position, thread, frame.execution).items()
            ]
            for frame in frames
        ],
        "accesses": [
            [touched(at, n), int(at.trace.accesses["kind"][n]), shown(value)]
            for n, value in zip(mine, values, strict=True)
        ],
        "waits": [waited(w) for w in steps.waits(position) if w.thread == thread],
        "grids": [[leaf.name, grid(at, array, leaf)] for array in at.trace.arrays for leaf in leaves(array)],
    }


def grid(at, array, leaf):
    """Return the texts of an array's elements, None where nothing is known."""
    values, known = at.contents.history(array, leaf).at(at.position, at.owner(array))
    flat = zip(values.reshape(-1), known.reshape(-1), strict=True)
    return [shown(value) if there else None for value, there in flat]


@node
def test_the_script_sees_what_python_sees():
    names = [*list(CORRECT)[::6], "flash_attention", *list(FAULTY)[::12]]
    cases, wanted = [], []
    for number, name in enumerate(names):
        at = Stepper(traced(name)[1].trace)
        generator = np.random.default_rng(number)
        asked = [(0, 0), (len(at.steps) - 1, at.trace.launch.block_threads - 1)]
        asked += [
            tuple(map(int, generator.integers(0, (len(at.steps), at.trace.launch.block_threads)))) for _ in range(4)
        ]
        cases.append({"data": payload(at), "asked": asked})
        for at.position, at.thread in asked:
            wanted.append((name, at.position, at.thread, expected(at)))
    done = subprocess.run(
        ["node", "-e", DRIVER, SCRIPT], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    answers = [answer for case in json.loads(done.stdout) for answer in case]
    for (name, position, thread, right), answer in zip(wanted, answers, strict=True):
        for key, value in right.items():
            assert answer[key] == value, (name, position, thread, key)


@node
def test_values_are_short_in_cells():
    values = {
        **{"3.0": "3", "-0.997792": "-.998", "0.00123": ".00123", "1234.5": "1235", "65504.0": "65504", "0.1": ".1"},
        **{"1e-05": "1e-5", "-12345678": "-1e7", "nan": "nan", "inf": "inf", "True": "T", "(1+2j)": "(1+2j)"},
        **{"100.0": "100", "": "", "(10.5-2.25j)": "(10.5…", "0.0": "0"},
    }
    script = "const { brief } = require(process.argv[1]);"
    script += f"console.log(JSON.stringify({json.dumps(list(values))}.map(brief)))"
    done = subprocess.run(["node", "-e", script, SCRIPT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(values.values())


# What a browser shows

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def dumped(tmp_path, body, fragment=""):
    """Return the page's elements as a browser leaves them."""
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><title>safe</title><body>{body}', encoding="utf-8")
    quiet = ("disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-sync")
    options = [*(f"--{o}" for o in quiet), "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [BROWSER, "--headless", "--no-sandbox", *options, "--virtual-time-budget=4000", "--dump-dom"]
    done = subprocess.run(
        [*command, f"{page.as_uri()}{fragment}"], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def plain(element):
    """Return the text of HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", element))


def part(dom, start, end):
    """Return what stands between two texts."""
    return dom.split(start, 1)[1].split(end, 1)[0]


@browser
def test_a_browser_shows_a_step(tmp_path):
    at = small()
    inside = next(s.number for s in at.steps.list if s.function == "twice" and s.kind == "statement") + 1
    dom = dumped(tmp_path, html_fragment(at), f"#step={inside}&thread=1&open=x")
    assert f'data-step="{inside}" data-thread="1"' in dom
    at.to(inside)
    assert f"{at.step.line}" == plain(part(dom, 'aria-current="step">', "</span>"))
    assert "mine[0] = s[0, i] + s[0, i + 2]  # </script>" in plain(part(dom, 'aria-current="step">', "</div>"))
    assert "Warp 0: 2 of 4 lanes run this line" in dom
    lanes = re.findall(r'<button type="button" tabindex="-1" title="thread [^"]*" class="(\w+)', dom)
    assert lanes == ["on", "on", "off", "off"]
    deeds = [plain(d) for d in re.findall(r'<li class="\w+">(.*?)</li>', dom)]
    assert deeds[-3:] == ["reads s[0, 1] == 1.5", "reads s[0, 3] == 3.5", "writes mine[0] = 5.0"]
    assert deeds[:-3] == ["2 lanes read s[0, 0–3]", "2 lanes write mine[0]"]
    assert [plain(b) for b in re.findall(r'<button[^>]*aria-pressed="\w+"[^>]*>(\w+, line \d+)</button>', dom)] == [
        f"{f.function}, line {f.line}" for f in at.steps.stack(inside, 1)
    ]
    cells = part(dom, 'aria-label="s: 4 of 8 elements known"', "</details>")
    assert re.findall(r'<span class="(known|empty)[^"]*"[^>]*>([^<]*)</span>', cells) == [
        *(("known", text) for text in (".5", "1.5", "2.5", "3.5")),
        *[("empty", "")] * 4,
    ]
    assert 'class="known r mine" data-mark="r">1.5<' in cells
    assert "2 lanes wait" in dom


@browser
def test_keys_and_buttons_move_it(tmp_path):
    at = small()
    stops = [s.number for s in at.steps.list if s.barrier]
    script = """<script>
      const root = document.querySelector(".nanoeuler-stepper"), log = [];
      const press = (key) => { root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); note(key); };
      const click = (label) => { root.querySelector(`[aria-label="${label}"]`).click(); note(label); };
      const note = (what) => log.push(`${what}: ${root.dataset.step}/${root.dataset.thread}`);
      ["ArrowRight", "ArrowRight", "ArrowLeft", "b", "b", "B", "End", "Home"].forEach(press);
      ["ArrowDown", "ArrowDown", "t", "T"].forEach(press);
      ["Step (→)", "Step back (←)", "Next barrier (b)", "Previous barrier (B)"].forEach(click);
      root.querySelector("input").value = 5;
      root.querySelector("input").dispatchEvent(new Event("input"));
      note("slider");
      root.querySelector("[aria-label=Thread]").value = 3;
      root.querySelector("[aria-label=Thread]").dispatchEvent(new Event("change"));
      note("thread");
      root.querySelectorAll(".lanes button")[1].click();
      note("lane");
      press("Home");
      press(" ");
      setTimeout(() => {
        note("played");
        const made = document.createElement("pre");
        made.id = "log";
        made.textContent = JSON.stringify(log);
        document.body.append(made);
      }, 1200);
    </script>"""
    dom = dumped(tmp_path, html_fragment(at) + script)
    told = json.loads(html.unescape(part(dom, '<pre id="log">', "</pre>")))
    first, log = told[:3], dict(entry.rsplit(": ", 1) for entry in told[3:])
    end = len(at.steps) - 1
    assert first == ["ArrowRight: 1/0", "ArrowRight: 2/0", "ArrowLeft: 1/0"]
    assert log["b"] == f"{stops[1]}/0"
    assert log["B"] == f"{stops[0]}/0"
    assert (log["End"], log["ArrowDown"], log["t"], log["T"]) == (f"{end}/0", "0/2", "1/2", "0/2")
    assert (log["Step (→)"], log["Step back (←)"]) == ("1/2", "0/2")
    assert (log["Next barrier (b)"], log["Previous barrier (B)"]) == (f"{stops[0]}/2", "0/2")
    assert (log["slider"], log["thread"], log["lane"]) == ("5/2", "5/3", "5/1")
    assert log["played"] == "3/1"


@browser
def test_a_space_plays_wherever_the_focus_is(tmp_path):
    script = """<script>
      const root = document.querySelector(".nanoeuler-stepper"), log = [];
      const space = (target) => {
        const down = new KeyboardEvent("keydown", { key: " ", bubbles: true, cancelable: true });
        const up = new KeyboardEvent("keyup", { key: " ", bubbles: true, cancelable: true });
        const prevented = [target.dispatchEvent(down), target.dispatchEvent(up)].map((went) => !went);
        log.push([root.querySelector("[aria-label=Play]") ? "stands" : "plays", ...prevented]);
      };
      ["[aria-label='Step (→)']", "summary", "[aria-label=Step]", ".lanes button", "select"].forEach((where) => {
        space(root.querySelector(where));
      });
      document.body.dataset.log = JSON.stringify(log);
    </script>"""
    dom = dumped(tmp_path, html_fragment(small()) + script)
    assert json.loads(html.unescape(re.search(r'data-log="([^"]*)"', dom)[1])) == [
        *(["plays", True, True], ["stands", True, True]),
        *(["plays", True, True], ["stands", True, True]),
        ["stands", False, False],  # it opens the choice
    ]
    assert plain(part(dom, '<p class="keys">', "</p>")).startswith("Click the panel, then: ← → step")
    assert dom.index('<p class="keys">') < dom.index('class="timeline"')


@browser
def test_a_condition_is_told(tmp_path):
    at = small()
    asked = next(s.number for s in at.steps.list if at.trace.source_line(s.line).strip() == "if t < 2:")
    dom = dumped(tmp_path, html_fragment(at), f"#step={asked}&thread=3")
    assert "true for 2 of 4 lanes, underlined" in dom
    assert '<li class="c">finds it false</li>' in dom
    lanes = re.findall(r'<button type="button" tabindex="-1" title="thread [^"]*" class="([\w ]+)', dom)
    assert lanes == ["on yes", "on yes", "on", "on me"]
    assert "finds it" not in dumped(tmp_path, html_fragment(at), f"#step={asked + 1}&thread=3").split("</script>")[-1]


@browser
def test_in_a_frame_nothing_escapes(tmp_path):
    ask = """<script>
      document.body.dataset.jpThemeLight = "false";
      setTimeout(() => {
        const inside = [...document.querySelectorAll("iframe")].map((frame) => frame.contentDocument);
        document.body.dataset.spare = inside.map((d) => d.defaultView.innerHeight - d.body.scrollHeight).join(" ");
        document.body.dataset.seen = inside.map((d) => `${d.title}, ${d.documentElement.dataset.theme}`).join("; ");
      }, 500);
    </script>"""
    dom = dumped(tmp_path, f"{small()._repr_html_()}{small()._repr_html_()}{ask}")
    assert "<title>safe</title>" in dom
    assert 'data-seen="Steps of sums, dark; Steps of sums, dark"' in dom
    assert dom.count("<iframe") == 2
    assert 'data-spare="0 0"' in dom
    heights = [int(n) for n in re.findall(r'<iframe class="nanoeuler-frame"[^>]* style="[^"]*height: ?(\d+)px', dom)]
    assert len(heights) == 2
    assert all(300 < n != widget.HEIGHT for n in heights)  # each has measured itself


@browser
def test_two_of_them_on_one_page(tmp_path):
    race = Stepper(traced("missing_barrier")[1].trace)
    dom = dumped(tmp_path, html_fragment(small()) + html_fragment(race), "#step=2")
    assert dom.count('data-step="2"') == 2
    assert "<title>safe</title>" in dom
    assert "a GPU may do otherwise" in dom


@browser
@pytest.mark.parametrize("name", ["record_array", "number_3d"])
def test_any_kernel_is_shown(tmp_path, name):
    at = Stepper(traced(name)[1].trace)
    last = len(at.steps) - 1
    opened = "&".join(f"open={leaf.name}" for array in at.trace.arrays for leaf in leaves(array))
    dom = dumped(tmp_path, html_fragment(at), f"#step={last}&{opened}")
    assert f'data-step="{last}"' in dom
    assert dom.count('role="img"') == sum(len(leaves(array)) for array in at.trace.arrays)
