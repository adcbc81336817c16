"""A run on several machines: the same units, receipts and shards, done by stations that all see the output.

means.py     START HERE: the run as the driver sees it
tasks.py     what makes up a shard, as plain data
cutting.py   receipts -> shard tasks
crew.py      hands tasks to stations and takes results, whoever runs them (link.py)
ray_link.py  Ray's actors as stations
sealer.py    shards that have come -> the journal
station.py   does what it is asked on its node, and knows nothing of Ray; shards.py, reach.py, pantry.py help it
"""
