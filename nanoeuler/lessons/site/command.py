"""``python -m nanoeuler.lessons site FOLDER``."""

from importlib.util import find_spec
from pathlib import Path

from nanoeuler.config import Parser
from nanoeuler.console import format_bytes, plural
from nanoeuler.errors import UserError
from nanoeuler.files import folder_written_whole
from nanoeuler.lessons.notebooks import chosen_lessons, lesson_number
from nanoeuler.lessons.versions import INSTALL

NEEDED = ("nbclient", "ipykernel", "markdown_it", "mdit_py_plugins", "math_core", "pygments")


def main_site(arguments: list[str]) -> int:
    """Write the website of the lessons that the arguments name, or of all.

    Raises:
        UserError: a lesson fails, a link is dead, or the folder cannot be written; nothing is changed then.
    """
    parser = Parser(
        prog="python -m nanoeuler.lessons site",
        description="All lessons as a website, to read without Jupyter. The solved notebooks are run for it.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new folder, or a site to be made anew")
    parser.add_argument("lesson", nargs="*", type=lesson_number, help="numbers; default: all")
    parser.add_argument("--external", action="store_true", help="ask every address outside, too, whether it is there")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    chosen = sorted(set(chosen_lessons(options.lesson)), key=lambda lesson: lesson.number)
    _require(folder)
    from nanoeuler.lessons.site import links, pages, runs

    site = pages.Site(chosen)
    notebooks = runs.executed(chosen)
    made = {"index.html": pages.index_page(site)}
    for lesson, notebook in zip(chosen, notebooks, strict=True):
        made[site.page_of(lesson)] = pages.lesson_page(site, lesson, notebook)
    drawn = pages.pictures(site, list(made.values()))
    with folder_written_whole(folder) as new:
        (new / "pictures").mkdir()
        for name, page in made.items():
            (new / name).write_text(page, encoding="utf-8", newline="\n")
        for name, svg in drawn.items():
            (new / "pictures" / name).write_text(svg, encoding="utf-8", newline="\n")
        found = links.checked(new)
        if options.external:
            links.require_external(found)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    outside = "all there" if options.external else "not asked: --external does"
    print(f"{folder}: {plural(len(chosen), 'lesson')}, {format_bytes(size)}")
    print(f"links: {found.inside} within the site, none dead; {len(found.outside)} addresses outside, {outside}")
    print(f"to read: {folder / 'index.html'}")
    return 0


def _require(folder: Path) -> None:
    """Raise where a site cannot be made, or the folder has something else in it that would be lost.

    Raises:
        UserError: a package is missing, or the folder is none, or is not a site of ours.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UserError(f"a site takes {', '.join(missing)}: {INSTALL}")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file: give a folder")
    index = folder / "index.html"
    from nanoeuler.lessons.site.pages import MADE_BY

    ours = index.is_file() and MADE_BY in index.read_text(encoding="utf-8", errors="replace")[:2000]
    if any(folder.iterdir()) and not ours:
        raise UserError(f"{folder} has files in it that are no site of ours: give a new folder, or an empty one")
    if folder in (Path.cwd(), *Path.cwd().parents):
        raise UserError(f"{folder} is the folder that you are in: go elsewhere, since it is made anew")
