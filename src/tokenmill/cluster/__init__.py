"""A run on several machines: the same units, receipts and shards, done by stations that all see the output.

tasks.py     what a station may be asked: plain data
cutting.py   receipts -> which stretches of tokens make up each shard; in the driver
station.py   does what it is asked on its node; knows nothing of Ray
crew.py      hands tasks to stations and takes results, whoever runs them
ray_link.py  Ray's actors as stations
"""
