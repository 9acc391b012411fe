"""Corpora that have a name here, and where they are."""

from collections.abc import Mapping
from dataclasses import dataclass

from nanoeuler.corpus import plays, tinyshakespeare


@dataclass(frozen=True)
class HubName:
    """A data set of the hub."""

    dataset: str  # owner/name
    config: str | None  # unless another is asked for
    about: str
    rows_are_lines: bool = False  # of articles, each of which begins with a heading: see nanoeuler.corpus.hub


#: Names that are built in or looked for on this machine first; a blank line ends each of their documents.
LOCAL_NAMES: Mapping[str, str] = {
    tinyshakespeare.NAME: "a megabyte of his plays; a document is a speech, as llm.c cuts them",
    plays.NAME: "built in, no network: plays from a grammar",
}
HUB_NAMES: Mapping[str, HubName] = {
    "tinystories": HubName("roneneldan/TinyStories", None, "two million stories in a small child's words"),
    "fineweb-edu": HubName(
        "HuggingFaceFW/fineweb-edu", "sample-10BT", "educational web pages; :sample-100BT, :sample-350BT, :CC-MAIN-..."
    ),
    "openwebtext": HubName("Skylion007/openwebtext", None, "eight million web pages, after GPT-2's"),
    "wikitext": HubName(
        "Salesforce/wikitext", "wikitext-103-raw-v1", "articles of Wikipedia; :wikitext-2-raw-v1", rows_are_lines=True
    ),
}
NAMES = [*LOCAL_NAMES, *HUB_NAMES]
