"""A picture as a document: complete, alone in a page of many, saved whole or not at all."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from simt.traced.pictures.reading import SVG, read

from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures.drawing import ROOT, tag, words
from nanoeuler.simt.traced.pictures.picture import Picture, picture


def small(title: str = "A <title> & more", width: float = 100.0) -> Picture:
    return picture(title, "What it \x00shows]]>", width, 50, [tag("path", d="M0 0h5", fill=f"url(#{ROOT}-wk)")])


def test_a_whole_document() -> None:
    root = read(small())
    assert root.findtext(f"{SVG}title") == "A <title> & more"
    assert root.findtext(f"{SVG}desc") == "What it \ufffdshows]]>"
    assert (root.get("role"), root.get("viewBox")) == ("img", "-16 -16 132 82")
    background = root.find(f"{SVG}rect")
    assert background is not None
    assert background.get("class") == "n-paper"


def test_names_are_its_own_and_the_same_each_time() -> None:
    first, second, other = small(), small(), small(width=101)
    assert first.svg == second.svg
    root, different = read(first).get("class", "?"), read(other).get("class")
    assert root != different
    style = read(first).findtext(f"{SVG}style") or ""
    for rule in style.replace("@media screen and (prefers-color-scheme:dark){", "").split("}"):
        for selector in rule.split("{")[0].split(","):
            assert not selector or root in selector or selector.startswith(":is(") or selector[0] in "bh", selector
    assert ROOT not in first.svg


def test_notebooks_show_it() -> None:
    made = small()
    assert made._repr_html_() == made.svg
    assert repr(made) == "<Picture: A <title> & more; save('name.svg') writes it>"
    page = f"<html><body>{made._repr_html_()}{small(width=7)._repr_html_()}</body></html>"
    ElementTree.fromstring(page)


def test_save(tmp_path: Path) -> None:
    made = small()
    made.save(tmp_path / "new" / "a.svg")
    assert (tmp_path / "new" / "a.svg").read_text(encoding="utf-8") == made.svg
    made.save(str(tmp_path / "b.SVG"))
    with pytest.raises(UserError, match=r"c\.png: a picture is an SVG file: call it c\.svg"):
        made.save(tmp_path / "c.png")
    (tmp_path / "d.svg").mkdir()
    with pytest.raises(UserError, match=r"d\.svg: cannot write it"):
        made.save(tmp_path / "d.svg")
    with pytest.raises(UserError, match="cannot write it"):
        made.save(tmp_path / "b.SVG" / "e.svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.SVG", "d.svg", "new"]


def test_what_xml_does_not_allow() -> None:
    text = "".join(map(chr, range(256))) + "\ufffe\uffff\U0001f600 漢"
    assert ElementTree.fromstring(f"<a>{words(text)}</a>").text is not None
    assert words("\ud800") == "\ufffd"
