"""Stations of a cluster in this very process, without Ray: they answer at once."""

from tokenmill.cluster.link import Ended
from tokenmill.cluster.station import Station


class Here:
    """Stands in for `RayLink`."""

    def __init__(self, address, n, out, job_name) -> None:
        self.made = {f"s{i}": Station(out, job_name) for i in range(n or 1)}
        self.answers: list[Ended] = []

    def stations(self):
        return list(self.made)

    def n_nodes(self):
        return 1

    def n_cpus(self):
        return len(self.made)

    def node_of(self, station):
        return "here"

    def submit(self, station, kind, task):
        self.answers.append(Ended(station, self.made[station].do(kind, task)))

    def wait(self, seconds):
        answers, self.answers = self.answers, []
        return answers

    def dismiss(self, station): ...
    def close(self):
        for station in self.made.values():
            station.do("end", b"")


def use_stations_of_this_process(monkeypatch) -> None:
    monkeypatch.setattr("tokenmill.cluster.means.RayLink", Here)
    monkeypatch.setattr("tokenmill.storage.local._all_shared", False)  # stations set it for their process
