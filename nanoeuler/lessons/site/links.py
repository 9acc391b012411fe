"""Looks through a site that was made: dead links, ids that are there twice, whatever asks another host."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nanoeuler.errors import UserError

#: Attributes by which a browser fetches something, without being asked.
FETCHED = ("src", "srcset", "data", "poster", "background", "action")
NAMED = ("for", "aria-labelledby", "aria-describedby", "aria-controls")  # attributes that name ids of the page
REMOTE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"]?)(?:https?:)?//", re.IGNORECASE)
PATIENCE = 20.0  # seconds for an address outside
MOST_TOLD = 20


@dataclass
class Page(HTMLParser):
    """A page as it is read: what it links to, what it fetches, the ids that it has, and what is wrong with it."""

    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    named: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what an element says."""
        given = {name: value or "" for name, value in attrs}
        if name := given.get("id"):
            if name in self.ids:
                self.wrong.append(f"two elements have the id '{name}'")
            self.ids.add(name)
        for attribute in NAMED:
            self.named += given.get(attribute, "").split()
        if "href" in given or "xlink:href" in given:
            target = given.get("href", given.get("xlink:href", ""))
            (self.links if tag == "a" else self.fetched).append(target)
        self.fetched += [given[name] for name in FETCHED if name in given]
        if tag == "img" and not given.get("alt", "").strip():
            self.wrong.append(f"a picture has no words for those who cannot see it: {given.get('src', '')[:80]}")
        if REMOTE.search(given.get("style", "")):
            self.wrong.append(f"a style asks another host: {given['style'][:80]}")
        if "srcdoc" in given:
            framed = read(given["srcdoc"])
            self.wrong += [f"in a frame: {word}" for word in framed.wrong]
            self.fetched += [target for target in framed.fetched if not target.startswith("#")]

    def handle_data(self, data: str) -> None:
        """Look into style sheets."""
        if self.cdata_elem == "style" and (found := REMOTE.search(data)):
            self.wrong.append(f"a style sheet asks another host: {data[found.start() :][:80]}")


def read(text: str) -> Page:
    """Return what a page has."""
    page = Page()
    page.feed(text)
    page.close()
    page.wrong += [
        f"nothing has the id '{name}', which an element names" for name in page.named if name not in page.ids
    ]
    return page


@dataclass(frozen=True)
class Found:
    """What a site links to: how many links within it, and the addresses outside, each with a page that has it."""

    inside: int
    outside: dict[str, str]


def checked(folder: Path) -> Found:
    """Look through a site.

    Raises:
        UserError: a link within it is dead, an id is there twice, or a page would ask another host.
    """
    pages = {path.name: read(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.html"))}
    wrong = [f"{name}: {word}" for name, page in pages.items() for word in page.wrong]
    inside, outside = 0, dict[str, str]()
    for name, page in pages.items():
        for target in (*page.links, *page.fetched):
            if _is_outside(target):
                outside.setdefault(target.partition("#")[0], name)
                if target in page.fetched:
                    wrong.append(f"{name}: it would ask another host for {target[:120]}")
            elif not target.startswith(("data:", "mailto:")):
                inside += 1
                wrong += [f"{name}: {word}" for word in _dead(folder, pages, name, target)]
    if wrong:
        more = [f"and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
        raise UserError("the site is not right, and was not written:\n" + "\n".join(wrong[:MOST_TOLD] + more))
    return Found(inside, outside)


def _is_outside(target: str) -> bool:
    return target.startswith("//") or urlsplit(target).scheme in ("http", "https")


def _dead(folder: Path, pages: dict[str, Page], name: str, target: str) -> Iterator[str]:
    """Yield what is wrong with a link within the site."""
    path, _, fragment = target.partition("#")
    if path and not (folder / unquote(path)).is_file():
        yield f"a dead link: {target}"
    elif fragment and unquote(fragment) not in pages.get(unquote(path) or name, Page()).ids:
        yield f"a dead link: {target}: there is no such place"


# Outside --------------------------------------------------------------------------------------------------------------


def require_external(found: Found) -> None:
    """Ask every address outside whether it is there.

    Raises:
        UserError: some are not.
    """
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(trouble, found.outside)
        dead = [
            f"{page}: {url}: {word}" for (url, page), word in zip(found.outside.items(), answers, strict=True) if word
        ]
    if dead:
        raise UserError("dead addresses, and nothing was written:\n" + "\n".join(dead))


def trouble(url: str) -> str | None:
    """Return what is wrong with an address; None if it answers."""
    import requests

    try:
        answer = requests.get(url, timeout=PATIENCE, stream=True, headers={"User-Agent": "nanoeuler-link-check"})
    except requests.RequestException as error:
        return f"no answer: {type(error).__name__}"
    with answer:
        return None if answer.ok or answer.status_code == 429 else f"{answer.status_code} {answer.reason}"
