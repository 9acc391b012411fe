"""The course as a website: ``python -m nanoeuler.lessons site FOLDER``, pages to read without Jupyter.

Each lesson is a page with the outputs of its solved notebook, run for it; exercises stand there with their blanks.
The pages are plain HTML: they need no script, and ask nothing of any other host.
"""

from nanoeuler.lessons.site.command import main_site

__all__ = ["main_site"]
