"""The site's pages: one for each lesson, and the syllabus."""

import html
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from nanoeuler.console import plural
from nanoeuler.errors import UserError
from nanoeuler.lessons.blanks import opened
from nanoeuler.lessons.home import REPOSITORY
from nanoeuler.lessons.notebooks import PICTURE, picture
from nanoeuler.lessons.site.outputs import Outputs
from nanoeuler.lessons.site.text import Heading, Text, code, plain
from nanoeuler.lessons.source import Lesson
from nanoeuler.lessons.syllabus import PLACE
from nanoeuler.lessons.trying import kind_of
from nanoeuler.simt.traced.page.html import element

MADE_BY = "nanoeuler.lessons.site"  # by which a folder is known to be a site of ours
#: Nothing may come from elsewhere: the browser is told so.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src 'self' file: data:; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'"
)
#: Without scripts a stepper is one line, which says so.
NO_SCRIPT = '.frame iframe[title^="Steps of"] { height: 48px !important; }'


@dataclass(frozen=True)
class Site:
    """What the site is made of: its lessons in order, and the repository that has everything else."""

    lessons: Sequence[Lesson]

    @property
    def folder(self) -> Path:
        """The folder ``lessons``, with sources and pictures."""
        return self.lessons[0].path.parents[1]

    def page_of(self, lesson: Lesson) -> str:
        """Return the file name of a lesson's page."""
        return f"{lesson.name}.html"

    def resolve(self, where: str, target: str) -> str:
        """Return where a link leads on the site; ``where`` is the folder of the repository that it is written in.

        Raises:
            UserError: it leads to a file that the repository does not have.
        """
        if re.match(r"[a-z][a-z+.-]*:|#|//", target):
            return f"pictures/{target.removeprefix(PICTURE).split(';')[0]}" if target.startswith(PICTURE) else target
        path, hash_, fragment = target.partition("#")
        path = posixpath.normpath(posixpath.join(where, path))
        if path in ("lessons/README.md", "lessons/solved/README.md", "lessons"):
            return f"index.html{hash_}{fragment}"
        if picture_of := re.fullmatch(r"lessons/pictures/(.+)", path):
            return f"pictures/{picture_of[1]}"
        if notebook := re.fullmatch(r"lessons/(?:solved/)?(\d\d_\w+)\.ipynb", path):
            if any(lesson.name == notebook[1] for lesson in self.lessons):
                return f"{notebook[1]}.html{hash_}{fragment}"
            path = f"lessons/{notebook[1]}.ipynb"
        elif not (self.folder.parent / path).exists():
            raise UserError(f"a link leads to {path}, which is not there")
        return f"{at_repository(path, self.folder.parent)}{hash_}{fragment}"


def at_repository(path: str, root: Path | None = None) -> str:
    """Return the address of a file or folder on the repository's site."""
    kind = "tree" if root is not None and (root / path).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{path}"


# A lesson -------------------------------------------------------------------------------------------------------------


def lesson_page(site: Site, lesson: Lesson, notebook: NotebookNode) -> str:
    """Return the page of a lesson, of its executed solved notebook.

    Raises:
        UserError: a formula or a link of it is wrong.
    """
    text, outputs = Text(lambda target: site.resolve("lessons/solved", target)), Outputs()
    try:
        cells = [_cell(lesson, cell, text, outputs) for cell in notebook.cells[1:]]  # the first has title and question
    except UserError as error:
        raise UserError(f"{lesson.path}: {error}") from None
    at = list(site.lessons).index(lesson)
    before = site.lessons[at - 1] if at > 0 else None
    after = site.lessons[at + 1] if at + 1 < len(site.lessons) else None
    sections = [heading for heading in text.headings if heading.level == 2]
    main = element("main", _head(lesson), *cells, _neighbours(site, before, after), id="content")
    body = [_top(), element("div", _contents(sections), main, class_="page"), _foot()]
    return document(f"Lesson {lesson.number}: {lesson.title}", lesson.summary, body)


def _head(lesson: Lesson) -> str:
    file = f"lessons/{lesson.name}.ipynb"
    github = REPOSITORY.removeprefix("https://github.com/")
    links = {
        "open it in Colab": f"https://colab.research.google.com/github/{github}/blob/main/{file}",
        "the notebook": at_repository(file),
        "solved": at_repository(f"lessons/solved/{lesson.name}.ipynb"),
    }
    about = f"Lesson {lesson.number} · about {lesson.minutes} minutes · {plural(len(lesson.exercises), 'exercise')}"
    led = " · ".join(element("a", plain(name), href=target) for name, target in links.items())
    return element(
        "header",
        element("p", plain(about), class_="about"),
        element("h1", plain(lesson.title)),
        element("p", plain(lesson.question), class_="question"),
        element("p", f"To work through: {led}", class_="links"),
    )


def _cell(lesson: Lesson, cell: NotebookNode, text: Text, outputs: Outputs) -> str:
    """Return a cell with what it put out; an exercise as its readers find it, with its blanks."""
    if cell.cell_type == "markdown":
        return element("section", text.html(cell.source), class_="text") + "\n"
    kind, shown = kind_of(cell), outputs.html(cell)
    if kind == "start":
        return _folded("the first cell of the notebook", code(cell.source) + shown, "start")
    if kind == "solved":
        return _folded("verified in the solved notebook", code(cell.source) + shown, "asserted")
    if kind == "exercise":
        name = str(cell.metadata.nanoeuler.exercise)
        label = element("p", "Exercise ", element("code", plain(name)), ": fill in each ", BLANK, class_="label")
        return element("div", label, code(opened(lesson.solution(name)).strip("\n")), shown, class_="cell exercise")
    label = element("p", "Check", class_="label") if kind == "check" else ""
    return element("div", label, code(cell.source), shown, class_=f"cell {kind}") + "\n"


BLANK = '<code class="blank">...</code>'


def _folded(name: str, content: str, kind: str) -> str:
    return element("details", element("summary", plain(name)), content, class_=f"cell {kind}") + "\n"


def _contents(sections: Sequence[Heading]) -> str:
    items = "".join(element("li", element("a", each.html, href=f"#{each.id}")) for each in sections)
    folded = element("details", element("summary", "On this page"), element("ol", items))
    return element("nav", folded, class_="contents", aria_label="on this page") if items else ""


def _neighbours(site: Site, before: Lesson | None, after: Lesson | None) -> str:
    links = [
        element(
            "a",
            element("span", word),
            f" {lesson.number}. {plain(lesson.title)}",
            href=site.page_of(lesson),
            rel=rel,
            class_=rel,
        )
        for rel, word, lesson in (("prev", "Previous lesson", before), ("next", "Next lesson", after))
        if lesson is not None
    ]
    return element("nav", *links, class_="neighbours", aria_label="other lessons") if links else ""


# The syllabus ---------------------------------------------------------------------------------------------------------


def index_page(site: Site) -> str:
    """Return the syllabus: what ``source/README.md`` says, with the lessons as cards.

    Raises:
        UserError: a link of it is wrong.
    """
    source = site.folder / "source" / "README.md"
    words = source.read_text(encoding="utf-8") if source.exists() else f"# The course\n\n{PLACE}\n"
    text = Text(lambda target: site.resolve("lessons", target))
    before, _, after = words.partition(PLACE)
    try:
        first, cards, rest = text.html(before), _cards(site), text.html(after)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    main = element(
        "main", element("div", first, class_="text"), cards, element("div", rest, class_="text"), id="content"
    )
    body = [_top(home=True), element("div", main, class_="page wide"), _foot()]
    return document("The course", "How a language model is trained, from the first thread to the last gradient.", body)


def _cards(site: Site) -> str:
    return element("ol", *(_card(site, lesson) for lesson in site.lessons), class_="lessons")


def _card(site: Site, lesson: Lesson) -> str:
    about = f"{lesson.minutes} minutes · {plural(len(lesson.exercises), 'exercise')}"
    svg = picture(lesson, lesson.picture)
    named = re.search(r"<title[^>]*>([^<]+)</title>", svg)
    alt = html.unescape(named[1]) if named else lesson.title
    shown = element("img", src=f"pictures/{lesson.picture}", alt=alt, loading="lazy")
    link = element("a", f"{lesson.number}. {plain(lesson.title)}", href=site.page_of(lesson))
    words = element("p", plain(lesson.question), class_="question") + element("p", plain(lesson.summary))
    told = element("div", element("h3", link), words, element("p", plain(about), class_="about"))
    return element("li", element("div", shown, class_="thumb"), told, id=f"lesson-{lesson.number}")


# Every page -----------------------------------------------------------------------------------------------------------


def pictures(site: Site, pages: Sequence[str]) -> dict[str, str]:
    """Return the pictures that the pages show, by name.

    Raises:
        UserError: one is not there.
    """
    names = sorted({name for page in pages for name in re.findall(r'(?:src|href)="pictures/([^"#?]+)"', page)})
    return {name: picture(site.lessons[0], name) for name in names}


def document(title: str, about: str, body: Sequence[str]) -> str:
    """Return a whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=MADE_BY),
        element("meta", name="description", content=about),
        element("title", plain(title) + " · nanoeuler"),
        element("style", (Path(__file__).parent / "site.css").read_text("utf-8")),
        element("noscript", element("style", NO_SCRIPT)),
    )
    skip = element("a", "Skip to the content", href="#content", class_="skip")
    return f"<!DOCTYPE html>\n{element('html', head, element('body', skip, *body), lang='en')}\n"


def _top(home: bool = False) -> str:
    name = element("a", "nanoeuler", href=REPOSITORY)
    course = element("a", "The course", href="index.html", aria_current="page" if home else None)
    return element("header", element("nav", name, course, aria_label="site"), class_="top")


def _foot() -> str:
    made = (
        "Made of the solved notebooks, run from the first cell to the last; the first output of each says whether its "
        "kernels ran on a CPU or on a GPU."
    )
    return element("footer", element("p", made))
