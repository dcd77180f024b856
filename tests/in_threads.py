"""Threads that stand for the processes of a federation, so that quick tests need no second process."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fova.machine.cluster import Cluster
from patience import PATIENCE


class _Meeting:
    """Where all threads bring something, and all get everything."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count, timeout=PATIENCE)
        self.brought = [None] * count

    def exchange(self, index, thing):
        self.brought[index] = thing
        self.barrier.wait()
        everything = list(self.brought)
        self.barrier.wait()
        return everything


class ThreadCluster(Cluster):
    def __init__(self, index, count, meeting):
        self.index, self.count, self._meeting = index, count, meeting
        self.bytes_sent = []

    def _exchange(self, message):
        self.bytes_sent.append(len(message))
        return self._meeting.exchange(self.index, message)

    def add(self, vector):
        self.bytes_sent.append(vector.nbytes)
        return np.sum(self._meeting.exchange(self.index, vector), axis=0, dtype=np.float32)


def in_threads(count, work):
    """The results of `work(cluster)` in so many threads, each one a process of the cluster."""
    meeting = _Meeting(count)

    def one(index):
        try:
            return work(ThreadCluster(index, count, meeting))
        except BaseException:
            meeting.barrier.abort()  # nobody waits for a thread that has failed
            raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(one, index) for index in range(count)]
    errors = [future.exception() for future in futures if future.exception() is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
