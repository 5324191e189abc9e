"""Run antsibull-docs. Usage: docs.py ARGUMENTS

It puts the path of a temporary directory into reStructuredText, where a word that ends in an underscore is a reference:
here no name of such a directory has one.
"""

from __future__ import annotations

import string
import sys
import tempfile

from antsibull_docs.cli.antsibull_docs import main

if __name__ == "__main__":
    vars(tempfile)["_RandomNameSequence"].characters = string.ascii_lowercase + string.digits
    sys.exit(main())
