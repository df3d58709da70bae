"""All ranks get an argument that the script does not know: usage.py --learning-rat 1."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.parse_args()
