#!/usr/bin/env python3
"""How well queries find what people marked as the answer, by `engramfs eval`.

Usage: retrieval.py BINARY FOLDER NAME ...

FOLDER holds for each NAME what BEIR-like sets have: NAME-docs.jsonl.gz (id, text, group), NAME-questions.jsonl.gz (question,
evidence, group), and the vectors of both as little-endian f16 in NAME-docs.f16.bin and NAME-questions.f16.bin. Each question is
asked within its group.
"""
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile

DIM = 384


def lines(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def vectors(path):
    with open(path, "rb") as file:
        return [list(row) for row in struct.iter_unpack(f"<{DIM}e", file.read())]


def main():
    binary, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    print("| set | mode | questions | recall@10 | nDCG@10 | MRR |\n|---|---|---|---|---|---|")
    for name in sys.argv[3:]:
        with tempfile.TemporaryDirectory(prefix="retrieval-") as work:
            store = f"{work}/store"
            subprocess.run([binary, "init", store], check=True, capture_output=True)
            with open(f"{work}/records.jsonl", "w") as out:
                for doc, vector in zip(lines(f"{folder}/{name}-docs.jsonl.gz"), vectors(f"{folder}/{name}-docs.f16.bin")):
                    record = {"id": doc["id"], "text": doc["text"], "metadata": {"group": doc["group"]}, "vector": vector}
                    out.write(json.dumps(record) + "\n")
            subprocess.run([binary, "import", f"{store}:main", f"{work}/records.jsonl"], check=True, capture_output=True)
            asked = zip(lines(f"{folder}/{name}-questions.jsonl.gz"), vectors(f"{folder}/{name}-questions.f16.bin"))
            with open(f"{work}/questions.jsonl", "w") as out:
                for question, vector in asked:
                    keys = {"question": question["question"], "evidence": question["evidence"], "vector": vector}
                    out.write(json.dumps(keys | {"filter": {"group": question["group"]}}) + "\n")
            command = [binary, "eval", f"{store}:main", f"{work}/questions.jsonl", "--json"]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for figures in (json.loads(line) for line in told.splitlines()):
                if "k" in figures:
                    shares = (f"{100 * figures[key]:.1f}" for key in ("recall", "ndcg", "mrr"))
                    print(f"| {name} | {figures['mode']} | {figures['questions']} |", " | ".join(shares), "|")


main()
