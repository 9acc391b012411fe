"""The page of a trace: one HTML file with all that there is to see."""

from nanoeuler.simt.traced.page.document import page, save_page, summary_of
from nanoeuler.simt.traced.page.notebook import notebook

__all__ = ["notebook", "page", "save_page", "summary_of"]
