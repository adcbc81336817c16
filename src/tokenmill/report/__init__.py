"""Shards -> one HTML file that says what is in them: `tokenmill report`.

counting.py   tokens by id, and bytes of text over the stream, from all shards or a seeded sample
facts.py      everything the page says, gathered
commands.py   the command that makes the output again
markup.py     escaped HTML
charts.py     bars, lines and points, as HTML and SVG that need no script
sections.py, run.py, documents.py   the parts of the page
page.py       the page
"""
