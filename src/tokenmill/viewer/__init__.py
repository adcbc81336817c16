"""A page to browse shards with: `tokenmill view`.

server.py is the door (loopback, token, Host, Origin), questions.py answers what the page asks, search.py and
lengths.py what takes longer than a moment, and page/ is what the browser gets.
"""
