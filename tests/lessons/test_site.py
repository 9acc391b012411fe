"""The course as a website: what its pages show, that none of their links is dead, and that they fit a telephone."""

import html
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Serve
from lessons.ruler import browser, require_fitting, widths
from lessons.small import LESSON, PICTURE

from nanoeuler.errors import UserError
from nanoeuler.lessons import source
from nanoeuler.lessons.home import REPOSITORY
from nanoeuler.lessons.site import command, links, runs
from nanoeuler.lessons.site.command import main_site
from nanoeuler.lessons.site.outputs import Outputs
from nanoeuler.lessons.site.text import Text, code, formula
from nanoeuler.lessons.source import Lesson, lessons

# Of the small lesson all but the exercise that has no check in nanoeuler; then what else a lesson may have.
FIRST = (
    LESSON[: LESSON.index("[Lesson 2]")]
    + """\
[Lesson 5](lesson:5), [all lessons](lesson:0), [above](#a-picture), [the ops](repo:nanoeuler/cpu)

<details><summary>Solution</summary>

{{solution add}}

</details>

Inline $x_{rc}$, and

$$\\frac{\\partial L}{\\partial x} = \\begin{cases} 1 & \\text{if } x > 0 \\\\ 0 & \\text{otherwise} \\end{cases}
 \\qquad \\sum_{i=1}^{n} \\left( x_i - \\frac{1}{n} \\sum_{j=1}^{n} x_j \\right)^2 + \\sum_{i=1}^{n} x_i^2 = \\sigma^2$$

| a wide | table | of many | columns | and words | more of them |
|---|---|---|---|---|---|
| `one_that_is_rather_long[0]` | 2 | `another_of_them[1]` | 4 | `and_one_more[2]` | 6 |

```python
print("red \\x1b[31m<b>", "x" * 300)
```

```python
t = lesson.trace(add, 1, 32, (out, x, x))
t.grid("out")
```

```python
t.grid("out")
```

```python
lesson.step(add, 1, 32, (out, x, x))
```
"""
)
SECOND = """\
---
title: Another lesson
question: And then?
minutes: 10
picture: 02_small.svg
summary: You go on.
---
## A picture

[The first](lesson:2).

## A picture

The same words again.
"""


def laid_out(folder: Path, first: str = FIRST, second: str = SECOND) -> list[Lesson]:
    """Write two lessons as a clone has them, with the files that they link to."""
    for name in ("lessons/source", "lessons/pictures", "nanoeuler/cpu"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("read me")
    (folder / "lessons" / "pictures" / "02_small.svg").write_text(PICTURE, encoding="utf-8")
    for name, text in (("02_small.md", first), ("05_other.md", second)):
        (folder / "lessons" / "source" / name).write_text(text, encoding="utf-8")
    return lessons(folder / "lessons")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder with two lessons in it, which are all that there are, and an empty cache."""
    folder = tmp_path_factory.mktemp("clone")
    laid_out(folder)

    def chosen(numbers: list[int]) -> list[Lesson]:
        return [each for each in source.lessons(folder / "lessons") if not numbers or each.number in numbers]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "chosen_lessons", chosen)
        patch.setattr(runs, "cache_folder", lambda: folder / "cache")
        yield folder


@pytest.fixture(scope="module")
def site(clone: Path) -> Path:
    """Give the site of the two lessons."""
    folder = clone / "site"
    assert main_site([str(folder)]) == 0
    return folder


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# What pages show ------------------------------------------------------------------------------------------------------


def test_the_syllabus_has_each_lesson(site: Path) -> None:
    index = read(site / "index.html")
    for words in ("2. A small lesson", "What is 1 + 1?", "You add.", "5 minutes · 1 exercise", "5. Another lesson"):
        assert words in index
    assert '<a href="02_small.html">' in index
    assert '<img src="pictures/02_small.svg" alt="a square"' in index
    assert read(site / "pictures" / "02_small.svg") == PICTURE


def test_an_exercise_stands_there_with_its_blanks_and_the_solution_is_folded(site: Path) -> None:
    page = read(site / "02_small.html")
    exercise = page.split('class="cell exercise"')[1].split("</div>")[0]
    shown = html.unescape(re.sub("<[^>]+>", "", exercise))
    assert "i = ...  # 1: the number of this thread" in shown
    assert "if ...:" in shown
    assert "x[i] + y[i]" not in shown
    before, fold, after = page.partition("<summary>Solution</summary>")
    assert "x[i] + y[i]" not in html.unescape(re.sub("<[^>]+>", "", before)).split("add: right")[0]
    assert fold
    assert "out[i] = x[i] + y[i]" in html.unescape(re.sub("<[^>]+>", "", after.split("</details>")[0]))
    assert "<samp>add: right.\nTried: " in page  # what the check says of the solution
    assert "mutant" not in page


def test_what_asserts_and_what_installs_is_folded(site: Path) -> None:
    page = read(site / "02_small.html")
    for kind in ("start", "asserted"):
        assert f'<details class="cell {kind}">' in page
    assert "Lesson 2. Kernels run on" in page


def test_formulas_are_mathml_and_code_is_text(site: Path) -> None:
    page = read(site / "02_small.html")
    assert "<msub><mi>x</mi><mrow><mi>r</mi><mi>c</mi></mrow></msub>" in page
    assert '<math display="block">' in page
    assert "$" not in re.sub(r"(?s)<(script|style).*?</\1>|srcdoc=\"[^\"]*\"", "", page)
    assert "red &lt;b&gt;" in page  # with no escape of a terminal
    assert "\x1b" not in page
    assert "<code>## no heading</code>" in page  # a fence of text


def test_pictures_of_traces_have_names_of_their_own_and_frames_stay(site: Path) -> None:
    page = read(site / "02_small.html")
    names = re.findall(r'<svg[^>]* class="(n[0-9a-f]{10}(?:-\d)?)"', page)
    assert len(names) == len(set(names)) == 2
    assert names[1] == f"{names[0]}-2"
    assert page.count(f"{names[1]}-title") >= 2  # the picture refers to itself
    assert page.count("<iframe") == 1
    assert "srcdoc=" in page


def test_links_lead_where_they_should(site: Path) -> None:
    page, other = read(site / "02_small.html"), read(site / "05_other.html")
    for target in ("05_other.html", "index.html", "#a-picture"):
        assert f'<a href="{target}">' in page
    assert f'<a href="{REPOSITORY}/blob/main/README.md">a file</a>' in page
    assert f'<a href="{REPOSITORY}/tree/main/nanoeuler/cpu">the ops</a>' in page
    assert 'rel="next"' in page
    assert 'rel="prev"' not in page
    assert 'rel="prev"' in other
    assert '<h2 id="a-picture-1">' in other  # two of the same words
    for each in (page, other):
        assert '<a href="#content" class="skip">' in each
        assert '<nav class="contents"' in each
        assert each.count("<h1") == 1


def test_a_page_asks_nobody_and_needs_no_script(site: Path) -> None:
    for path in site.glob("*.html"):
        page = re.sub(r'srcdoc="[^"]*"', "", read(path))
        assert "<script" not in page
        assert not re.search(r'\ssrc="(?!pictures/|data:)', page)
        assert "default-src 'none'" in html.unescape(page)


def test_part_of_the_course_links_to_the_rest(clone: Path, tmp_path: Path) -> None:
    assert main_site([str(tmp_path / "part"), "5"]) == 0
    page = read(tmp_path / "part" / "05_other.html")
    assert f'<a href="{REPOSITORY}/blob/main/lessons/02_small.ipynb">The first</a>' in page
    assert not (tmp_path / "part" / "02_small.html").exists()


# Pieces ---------------------------------------------------------------------------------------------------------------


def test_a_formula_that_is_none_is_told() -> None:
    with pytest.raises(UserError, match=r"the formula \\fraq x cannot be shown: .*fraq"):
        formula("\\fraq x", display=False)
    with pytest.raises(UserError, match="cannot be shown"):
        Text(str).html("$\\frac{1$")


def test_a_display_formula_in_a_paragraph_keeps_it_whole() -> None:
    made = Text(str).html("so $$x$$ it is")
    assert made.startswith('<p>so <span class="math block"><math display="block">')
    assert made.rstrip().endswith("it is</p>")


@pytest.mark.parametrize("language", ["python", "bash", "text", "", "no-such-language"])
def test_code_of_any_language(language: str) -> None:
    assert "a &lt; b" in re.sub("<[^>]+>", "", code("a < b", language))


def test_headings_have_ids_that_are_words() -> None:
    text = Text(str)
    text.html("## A question, and [`x`](y)\n\n## ?\n\n## ?\n\n### Content: $n$ < 2")
    assert [(heading.level, heading.id) for heading in text.headings] == [
        (2, "a-question-and-x"),
        (2, "section"),
        (2, "section-1"),
        (3, "content-n--2"),
    ]
    assert text.headings[0].html == "A question, and <code>x</code>"
    assert "<math><mi>n</mi></math></span> &lt; 2" in text.headings[3].html
    text = Text(str)
    text.html("## Content")  # the id of what is to be skipped to
    assert text.headings[0].id == "content-1"


def test_outputs_of_every_kind() -> None:
    from nbformat.v4 import new_code_cell, new_output

    outputs = [
        new_output("stream", name="stdout", text="a b\n"),
        new_output("stream", name="stderr", text="\x1b[31mc\x1b[0m\n"),
        new_output("display_data", {"image/svg+xml": "<svg></svg>"}),
        new_output("display_data", {"image/png": "aGk=\n", "text/plain": "<a figure>"}),
        new_output("execute_result", {"text/plain": "1  2"}),
        new_output("error", ename="E", evalue="no", traceback=["no < yes"]),
    ]
    made = Outputs().html(new_code_cell(outputs=outputs))
    assert '<pre class="printed words"><samp>a b\nc</samp></pre>' in made
    assert '<div class="shown"><svg></svg></div>' in made
    assert '<img src="data:image/png;base64,aGk=" alt="&lt;a figure&gt;">' in made
    assert '<pre class="printed"><samp>1  2</samp></pre>' in made  # columns are not broken
    assert "no &lt; yes" in made
    assert Outputs().html(new_code_cell()) == ""


# Running --------------------------------------------------------------------------------------------------------------


def test_a_second_build_runs_nothing(site: Path, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise AssertionError("it was run again")

    monkeypatch.setattr(runs.Run, "execute", none)
    assert main_site([str(tmp_path / "again")]) == 0
    for path in site.glob("*.html"):
        assert read(tmp_path / "again" / path.name) == read(path)
    (kept,) = (clone / "cache" / "lessons").glob("05_other-*.ipynb")
    before = kept.read_bytes()
    try:
        kept.write_text("{}")  # damaged: it is run
        with pytest.raises(AssertionError, match="run again"):
            main_site([str(tmp_path / "again"), "5"])
    finally:
        kept.write_bytes(before)
    monkeypatch.setattr(runs, "_surroundings", lambda: b"other code")
    with pytest.raises(AssertionError, match="run again"):
        main_site([str(tmp_path / "again"), "5"])


def test_a_lesson_that_fails_leaves_the_site_as_it_was(site: Path, clone: Path) -> None:
    before = read(site / "05_other.html")
    laid_out(clone, second=f"{SECOND}\n```python\n1 / 0\n```\n")
    try:
        with pytest.raises(UserError, match=r"(?s)lesson 5: its solved notebook fails.*division by zero"):
            main_site([str(site), "5"])
    finally:
        laid_out(clone)
    assert read(site / "05_other.html") == before
    assert [path.name for path in clone.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("The same words", "[gone](repo:gone.md)", r"05_other\.md: a link leads to gone\.md, which is not there"),
        ("The same words", "[gone](#nowhere)", r"05_other\.html: a dead link: #nowhere: there is no such place"),
        ("The same words", "$\\fraq$", r"05_other\.md: the formula \\fraq cannot be shown"),
        ("The same words", '<img src="http://host/x.png" alt="x">', "it would ask another host for http://host/x.png"),
        ("The same words", '<b id="content"></b>', "two elements have the id 'content'"),
        ("The same words", "![](picture:02_small.svg)", "a picture has no words"),
    ],
)
def test_what_is_dead_is_told_and_nothing_is_written(old: str, new: str, words: str, site: Path, clone: Path) -> None:
    before = read(site / "05_other.html")
    laid_out(clone, second=SECOND.replace(old, new))
    try:
        with pytest.raises(UserError, match=words):
            main_site([str(site), "5"])
    finally:
        laid_out(clone)
    assert read(site / "05_other.html") == before


INTERRUPTED = """
import sys
from pathlib import Path
from nanoeuler.errors import run_command
from nanoeuler.lessons import source
from nanoeuler.lessons.site import command, runs
folder = Path(sys.argv[1])
command.chosen_lessons = lambda numbers: source.lessons(folder / "lessons")
runs.cache_folder = lambda: folder / "cache"
sys.exit(run_command(command.main_site, [str(folder / "site")]))
"""
SLEEPS = """
```python
import os, pathlib, time
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(200)
```
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_ends_all_and_leaves_nothing(tmp_path: Path) -> None:
    laid_out(tmp_path, first=SECOND + SLEEPS)
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    pid = tmp_path / "lessons" / "pid"
    try:
        _until(lambda: pid.exists() and pid.read_text() != "", 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said
    _until(lambda: not _is_running(int(pid.read_text())), 20)
    assert not (tmp_path / "site").exists()


def _until(condition: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not (status.exists() and "State:\tZ" in status.read_text())


# The folder -----------------------------------------------------------------------------------------------------------


def test_a_folder_with_other_things_in_it_is_left_alone(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="has files in it that are no site of ours"):
        main_site([str(tmp_path)])
    with pytest.raises(UserError, match="is a file: give a folder"):
        main_site([str(tmp_path / "thesis.tex")])
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_the_folder_one_is_in_is_not_replaced(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is the folder that you are in"):
        main_site(["."])


def test_what_is_missing_is_told(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "math_core" else object())
    with pytest.raises(UserError, match=r"a site takes math_core: python -m pip install -e '\.\[lessons\]'"):
        main_site([str(tmp_path / "site")])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "FOLDER"), (["site", "two"], "'two' is no lesson"), (["site", "--externl"], "did you mean '--external'")],
)
def test_mistakes_are_told(arguments: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        main_site(arguments)


# Links ----------------------------------------------------------------------------------------------------------------

SOUND = '<h2 id="a">A</h2><a href="#a">x</a><a href="https://host/">y</a><label for="b"></label><input id="b">'


def test_a_sound_page(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(SOUND)
    (tmp_path / "other.html").write_text('<a href="index.html#a">x</a><a href="https://host/#part">z</a>')
    assert links.checked(tmp_path) == links.Found(2, {"https://host/": "index.html"})


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ('<a href="gone.html">x</a>', "a dead link: gone.html"),
        ('<a href="index.html#gone">x</a>', "a dead link: index.html#gone: there is no such place"),
        ('<a href="">x</a><a href="#gone">x</a>', "a dead link: #gone"),
        ('<img src="gone.svg" alt="x">', "a dead link: gone.svg"),
        ('<img src="data:," alt=" ">', "no words for those who cannot see it"),
        ('<b id="a"></b><b id="a"></b>', "two elements have the id 'a'"),
        ('<b aria-labelledby="a"></b>', "nothing has the id 'a'"),
        ('<script src="//host/x.js"></script>', "would ask another host for //host/x.js"),
        ('<link rel="stylesheet" href="https://host/x.css">', "would ask another host for https://host/x.css"),
        ('<b style="background: url(http://host/x)"></b>', "a style asks another host"),
        ("<style>@import 'https://host/x.css'</style>", "a style sheet asks another host"),
        (
            "<iframe srcdoc=\"<img src='https://host/x' alt='x'>\"></iframe>",
            "would ask another host for https://host/x",
        ),
        ("<iframe srcdoc=\"<b id='a'></b><b id='a'></b>\"></iframe>", "in a frame: two elements"),
    ],
)
def test_what_is_wrong_with_a_page_is_found(page: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(page)
    with pytest.raises(UserError, match="the site is not right, and was not written") as told:
        links.checked(tmp_path)
    assert words in str(told.value)
    assert "index.html: " in str(told.value)


def test_addresses_outside_are_asked(serve: Serve, refusing: str) -> None:
    there, gone = serve(b"hello"), serve(b"", status=404)
    assert links.trouble(there) is None
    assert links.trouble(gone) == "404 Not Found"
    assert links.trouble(refusing) == "no answer: ConnectionError"
    links.require_external(links.Found(0, {there: "a.html"}))
    with pytest.raises(UserError) as told:
        links.require_external(links.Found(0, {there: "a.html", gone: "b.html", refusing: "c.html"}))
    assert str(told.value).splitlines()[1:] == [
        f"b.html: {gone}: 404 Not Found",
        f"c.html: {refusing}: no answer: ConnectionError",
    ]


def test_addresses_outside_are_asked_if_one_wants(
    site: Path, clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(links, "trouble", asked.append)
    assert main_site([str(site)]) == 0
    assert asked == []
    assert "addresses outside, not asked: --external does" in capsys.readouterr().out
    assert main_site([str(site), "--external"]) == 0
    assert f"{REPOSITORY}/blob/main/README.md" in asked
    assert len(asked) == len(set(asked))
    monkeypatch.setattr(links, "trouble", lambda url: "404 Not Found" if "cpu" in url else None)
    with pytest.raises(UserError, match=r"02_small\.html: .*/tree/main/nanoeuler/cpu: 404 Not Found"):
        main_site([str(site), "--external"])


# Colours and widths ---------------------------------------------------------------------------------------------------


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_can_be_read_on_every_background() -> None:
    sheet = read(Path(command.__file__).parent / "site.css")
    for theme in sheet.split(":root {")[1:3]:
        colours = dict(re.findall(r"--([\w-]+): (#\w{6})", theme.partition("}")[0]))
        inks = ("ink", "dim", "link", "keyword", "string", "comment", "digit", "name")
        pairs = [(ink, paper) for ink in inks for paper in ("paper", "soft", "task")] + [("blank-ink", "blank")]
        for ink, paper in pairs:
            low, high = sorted((_luminance(colours[ink]), _luminance(colours[paper])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)


@browser
def test_no_page_is_wider_than_the_screen(site: Path, tmp_path: Path) -> None:
    require_fitting(site, tmp_path / "profile")


@browser
def test_a_page_that_is_too_wide_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><body style='margin:0'><p style='width:500px'>x")
    found = widths(tmp_path, tmp_path / "profile")
    assert found == {"index.html 360": 500, "index.html 390": 500, "index.html 1280": 1280}
