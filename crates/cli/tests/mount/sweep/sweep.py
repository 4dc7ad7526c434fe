"""System calls with many combinations of arguments, and their results, one per line. Runs as root.

sweep.py DIR: makes the calls in the root DIR of a new volume. Two volumes with the same lines show the same behaviour.
"""

import os
import sys

import base
import data
import names
import rights

root = os.path.realpath(sys.argv[1])
for section in names.SECTIONS + rights.SECTIONS + data.SECTIONS:
    base.section = section.__name__
    os.chdir(root)
    os.mkdir(base.section)
    os.chmod(base.section, 0o777)
    os.chdir(base.section)
    section()
