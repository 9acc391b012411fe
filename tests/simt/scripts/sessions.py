"""Finds the sessions of users: a new one starts where the user changes or pauses. Two launches, one after the other."""

import numpy as np
from numba import cuda

PAUSE = 3600


@cuda.jit
def starts(first, user, time):
    i = cuda.grid(1)
    if i < user.size:
        first[i] = i == 0 or user[i] != user[i - 1] or time[i] - time[i - 1] > PAUSE


@cuda.jit
def sessions(session, first):
    i = cuda.grid(1)
    if i < first.size:
        j = i
        while not first[j]:
            j -= 1
        session[i] = j


user = np.array([1, 1, 1, 2, 2, 3, 3, 3], np.int64)
time = np.array([0, 60, 9000, 9100, 9200, 100, 5000, 5001], np.int64)
first = cuda.device_array(user.size, np.bool_)
session = cuda.device_array(user.size, np.int64)
starts[2, 4](first, cuda.to_device(user), cuda.to_device(time))
sessions[2, 4](session, first)
print("sessions", session.copy_to_host().tolist())
