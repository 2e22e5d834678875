"""Starts a process that looks for a function of the main program."""

import multiprocessing
import sys


def doubled(number):
    return 2 * number


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(doubled, [1, 2]))
    sys.exit(7)
